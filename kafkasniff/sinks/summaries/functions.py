"""Functions for templates: phrases that need more than fields, such as embedded structures.

Each takes a struct and the name of the enclosing topic. Its phrase is escaped, and empty if there is nothing to show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from kafkasniff.kafka.apis.entities import METADATA_TOPIC_ID
from kafkasniff.model import Body
from kafkasniff.sinks.summaries.phrases import (
    address,
    amount,
    count,
    few,
    first_words,
    lists,
    message_phrase,
    named_partitions,
    rows,
)
from kafkasniff.text.printable import word

# -- data that members of classic groups exchange ----------------------------------------------------------------------


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


# -- functions ---------------------------------------------------------------------------------------------------------


TYPES_SHOWN: Final = 4
"""Types of records that a line shows."""
METRICS_SHOWN: Final = 2
"""Names of metrics that a line shows."""
_DULL: Final = "NoOpRecord"
"""A controller writes one every half a second."""

INTERNAL: Final = ("__", METADATA_TOPIC_ID)
"""Prefixes of the topics whose records have types."""


def record_types(topic: str, records: object) -> str:
    """`TopicRecord, 2 PartitionRecord` for records of Kafka's own topics; "" for others."""
    if not topic.startswith(INTERNAL) or not isinstance(records, dict):
        return ""
    types: Counter[str] = Counter()
    for batch in rows(records.get("batches")):
        for record in rows(batch.get("records")):
            control = record.get("_control")
            # A deletion has no value.
            read = record.get("_value") or record.get("_key") or {}
            name = control.get("name") if isinstance(control, dict) else read.get("type")
            if isinstance(name, str):
                types[name] += 1
    if len(types) > 1:
        del types[_DULL]
    return few([f"{number} {name}" if number > 1 else name for name, number in types.items()], shown=TYPES_SHOWN)


def _types(item: Body, topic: str) -> str:
    return record_types(topic, item.get("records", item.get("unaligned_records")))


def _cut_batches(item: Body, _topic: str) -> str:
    """Bytes of a slice of the log that belong to truncated batches."""
    records = item.get("unaligned_records")
    if not isinstance(records, dict):
        return ""
    cut = records.get("leading_bytes", 0) + records.get("truncated_bytes", 0)
    return amount(cut) if cut else ""


def _address(item: Body, _topic: str) -> str:
    return address(item)


def _acquired(item: Body, _topic: str) -> str:
    """Number of records that a member of a share group acquired, from ranges of offsets."""
    return str(sum(_span(row) for row in rows(item.get("acquired_records"))))


def _span(item: Body) -> int:
    first, last = item.get("first_offset"), item.get("last_offset")
    return last - first + 1 if isinstance(first, int) and isinstance(last, int) else 0


def _joins(item: Body, _topic: str) -> str:
    # A member repeats its data for each protocol that it supports.
    return next(filter(None, (joins(row.get("_metadata")) for row in rows(item.get("protocols")))), "")


def _assigned(item: Body, _topic: str) -> str:
    return assigned(item.get("_assignment")) or ""


def _assignments(item: Body, _topic: str) -> str:
    """The assignments of a group's leader to its members."""
    read = [assigned(row.get("_assignment")) for row in rows(item.get("assignments"))]
    return few([one for one in read if one is not None], "; ")


def _sasl(item: Body, _topic: str) -> str:
    return message_phrase(item.get("_auth_bytes"))


def _metrics(item: Body, _topic: str) -> str:
    """`3 metrics (a, b, +1 more)`, if they were decoded."""
    read = item.get("_metrics")
    if not isinstance(read, dict):
        return ""
    metrics = [metric for resource in rows(read.get("resources")) for metric in rows(resource.get("metrics"))]
    names = few([word(name) for name in dict.fromkeys(metric.get("name") for metric in metrics)], shown=METRICS_SHOWN)
    return f"{count(len(metrics), 'metric')}{f' ({names})' if names else ''}"


FUNCTIONS: Final[dict[str, Callable[[Body, str], str]]] = {
    "acquired": _acquired,
    "address": _address,
    "assigned": _assigned,
    "assignments": _assignments,
    "cut_batches": _cut_batches,
    "joins": _joins,
    "metrics": _metrics,
    "sasl": _sasl,
    "types": _types,
}
"""By their names in templates."""
