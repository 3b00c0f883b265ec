"""Phrases for data that members of classic groups exchange: subscriptions, assignments, Connect and Streams tasks."""

from __future__ import annotations

from kafkasniff.model import Body
from kafkasniff.sinks.summaries.phrases import few, first_words, lists, named_partitions, rows
from kafkasniff.text.printable import word

TASKS_SHOWN = 6
"""Tasks of one kind shown in a line."""
_ITSELF = -1
"""Represents the connector itself among its tasks (ConnectProtocol.CONNECTOR_TASK)."""


def joins(read: object) -> str:
    """`subscribes orders, owns orders-0,1` or `worker http://…` for `_metadata`; "" if the bytes were not decoded."""
    value = _value(read)
    if value is None:
        return ""
    if "url" in value:
        return f"worker {word(value['url'])}"
    if "topics" not in value:
        return ""
    phrase = f"subscribes {first_words(lists(value['topics'])) or 'nothing'}"
    owned = named_partitions(value.get("owned_partitions"))
    return f"{phrase}, owns {owned}" if owned else phrase


def assigned(read: object) -> str | None:
    """`orders-0,1`, `nothing`, or Connect's connectors and tasks for `_assignment`; None if it was not decoded."""
    value = _value(read)
    if value is None:
        return None
    if "config_offset" in value:
        return _connect(value)
    parts = [named_partitions(value.get("assigned_partitions")) or "nothing"]
    streams = _value(value.get("_user_data"))
    if streams is not None:
        for kind in ("active", "standby"):
            held = rows(streams.get(f"{kind}_tasks"))
            tasks = [f"{task.get('topic_group_id')}_{task.get('partition')}" for task in held]
            if tasks:
                parts.append(f"{kind} {few(tasks, ' ', TASKS_SHOWN)}")
    return ", ".join(parts)


def _value(read: object) -> Body | None:
    value = read.get("value") if isinstance(read, dict) else None
    return value if isinstance(value, dict) else None


def _connect(value: Body) -> str:
    parts = [few(_connectors(value.get("assignment"))) or "nothing"]
    revoked = few(_connectors(value.get("revoked")))
    if revoked:
        parts.append(f"revoked {revoked}")
    if value.get("delay"):
        parts.append(f"rebalance in {value['delay']} ms")
    if value.get("error"):
        parts.append("CONFIG_MISMATCH" if value["error"] == 1 else f"error {value['error']}")
    return ", ".join(parts)


def _connectors(assignment: object) -> list[str]:
    """`connector copy`, `copy-0,1` (Connect's names for its tasks)."""
    phrases = []
    for item in rows(assignment):
        name, tasks = word(item.get("connector")), lists(item.get("tasks"))
        if _ITSELF in tasks:
            phrases.append(f"connector {name}")
        numbers = [str(task) for task in tasks if task != _ITSELF]
        if numbers:
            phrases.append(f"{name}-{few(numbers, ',', TASKS_SHOWN)}")
    return phrases
