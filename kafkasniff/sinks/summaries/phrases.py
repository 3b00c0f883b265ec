"""Phrases for summaries. Every value from the wire goes through `word`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from kafkasniff.model import Body, ErrorCode, Message
from kafkasniff.sinks.tree import error_label
from kafkasniff.text.printable import Paint, word

NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The all-zero uuid, which means "none"."""
SHOWN: Final = 3
"""Items of a list shown in a line; of the rest the number is shown."""
PARTITIONS_SHOWN: Final = 6
"""Partition numbers of one topic shown in a line."""

_MESSAGE_WIDTH: Final = 160
_STEP: Final = re.compile(r"([a-z_0-9]+)(?:\[(\d+)\])?")
PARTITION_FIELDS: Final = ("partition_index", "partition", "index")
NAME_FIELDS: Final = (
    "_topic_name",
    "name",
    "topic",
    "topic_name",
    "group_id",
    "transactional_id",
    "resource_name",
    "key",
    "user",
    "member_id",
    "log_dir",
    "feature",
    "topic_id",
)


@lru_cache(maxsize=4096)  # sizes repeat, and formatting a float takes long
def amount(size: int) -> str:
    """Bytes with two or three digits: `512 B`, `3.1 kB`, `42 MB` (1 kB = 1000 B)."""
    if size < 1000:
        return f"{size} B"
    value = size / 1000
    for unit in ("kB", "MB", "GB"):
        # If rounding gives 1000, the next unit is shorter.
        if value < 999.5:
            return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def rate(records: float, size: float) -> str:
    """Records and their bytes per second: `9.2/s (810 B/s)`, `12,345/s (1.2 MB/s)`."""
    number = f"{records:,.0f}" if records >= 100 else f"{records:.2g}" if records < 10 else f"{records:.3g}"
    return f"{number}/s ({amount(round(size))}/s)"


def count(number: int, noun: str) -> str:
    """`1 record`, `12 records`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def few(items: Sequence[str], separator: str = ", ", shown: int = SHOWN) -> str:
    """The first items, and the number of the rest."""
    if len(items) <= shown:
        return separator.join(items)
    return separator.join(items[:shown]) + f"{separator}+{len(items) - shown} more"


def rows(value: object) -> list[Body]:
    """The structs of an array; none if a truncated body, or a null, has no array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def lists(value: object) -> list[Any]:
    """The elements of an array; none if there is no array."""
    return value if isinstance(value, list) else []


def topic_of(item: Body) -> str:
    """Name, else id, of a struct's topic. Hot."""
    value = item.get("name")
    if value is None:
        for field in ("topic", "topic_name", "_topic_name"):
            value = item.get(field)
            if value is not None:
                return word(value)
    else:
        return word(value)
    value = item.get("topic_id")
    return "?" if value is None or value == NO_ID else word(value)


def address(item: Body) -> str:
    """`host:port` of a struct that has both."""
    host = word(item.get("host"))
    port = word(item.get("port"))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def named_partitions(topics: object, field: str = "partitions", index: str = "partition_index") -> str:
    """`orders-0,1,2, payments-7` for topics that hold arrays of partitions; those with an error are skipped."""
    phrases: list[str] = []
    more = 0
    for topic in rows(topics):
        numbers = [_number(item, index) for item in lists(topic.get(field)) if not _failed(item)]
        if not numbers:
            continue
        if len(phrases) < SHOWN:
            rest = len(numbers) - PARTITIONS_SHOWN
            shown = ",".join(numbers[:PARTITIONS_SHOWN])
            phrases.append(f"{topic_of(topic)}-{shown}{f',+{rest} more' if rest > 0 else ''}")
        else:
            more += len(numbers)
    if more:
        phrases.append(f"+{count(more, 'partition')}")
    return ", ".join(phrases)


def _number(item: object, index: str) -> str:
    return word(item.get(index, "?") if isinstance(item, dict) else item)


def _failed(item: object) -> bool:
    return isinstance(item, dict) and bool(item.get("error_code") or item.get("partition_error_code"))


def records_phrase(records: object) -> str:
    """`12 records 3.1 kB lz4` for a `records` value; empty if it was null or skipped, `no records` for none."""
    if not isinstance(records, dict):
        return ""
    batches = records.get("batches")
    if not batches:
        return "no records"
    if len(batches) == 1:
        # The usual case, and this is called for every Produce and Fetch.
        batch = batches[0]
        total, size, codec = batch.get("record_count"), batch.get("batch_length", 0) + 12, batch.get("compression")
        codecs = "" if codec == "none" else f" {codec}"
    else:
        counts = [batch.get("record_count") for batch in batches]
        total = None if None in counts else sum(counts)
        size = sum(batch.get("batch_length", 0) + 12 for batch in batches)
        codecs = " " + "/".join(dict.fromkeys(batch.get("compression", "?") for batch in batches))
        if codecs == " none":
            codecs = ""
        codecs += f" in {len(batches)} batches"
    number = "records" if total is None else "1 record" if total == 1 else f"{total} records"
    return f"{number} {amount(size)}{codecs}"


def label_of(item: Body) -> str | None:
    """Name of a struct's subject, by its best known fields; None if it has none."""
    for field in NAME_FIELDS:
        value = item.get(field)
        if value is not None and value != NO_ID:
            return word(value)
    return None


def _place(body: Body, path: str) -> tuple[str | None, Body]:
    """The subject of an error code at `path` (`orders-0`), and the struct that contains it."""
    node: Any = body
    label: str | None = None
    steps = _STEP.findall(path)
    for name, index in steps[:-1]:
        node = node.get(name) if isinstance(node, dict) else None
        if index and isinstance(node, list) and int(index) < len(node):
            node = node[int(index)]
        if not isinstance(node, dict):
            return label, {}
        for field in PARTITION_FIELDS:
            if field in node:
                label = f"{label or '?'}-{node[field]}"
                break
        else:
            label = label_of(node) or label
    return label, node if isinstance(node, dict) else {}


def _explained(node: Body, paint: Paint) -> str:
    """Details next to an error code: the broker's message, the new leader."""
    text = ""
    message = node.get("error_message")
    if isinstance(message, str | bytes) and message:
        text += f" {paint.dim}{word(message, _MESSAGE_WIDTH)}{paint.reset}"
    leader = node.get("current_leader")
    if isinstance(leader, dict) and isinstance(leader.get("leader_id"), int) and leader["leader_id"] >= 0:
        text += f", leader now {leader['leader_id']}"
    return text


def error_phrase(message: Message, paint: Paint) -> str:
    """The errors of a response by name, each with its subject; the same error of many partitions once."""
    body = message.body or {}
    if len(message.errors) == 1:
        error = message.errors[0]
        label, node = _place(body, error.path)
        place = f"{label} " if label else ""
        return f"{place}{paint.error}{error_label(error)}{paint.reset}{_explained(node, paint)}"
    by_name: dict[str, list[ErrorCode]] = {}
    for error in message.errors:
        by_name.setdefault(error_label(error), []).append(error)
    phrases = []
    for name, errors in by_name.items():
        shown = [_place(body, error.path) for error in errors[:SHOWN]]
        labels = [label for label, _ in shown if label]
        rest = len(errors) - len(shown)
        if rest:
            labels.append(f"+{rest} more")
        place = f"{', '.join(labels)} " if labels else ""
        explained = _explained(shown[0][1], paint) if len(errors) == 1 else ""
        phrases.append(f"{place}{paint.error}{name}{paint.reset}{explained}")
    return few(phrases, "; ")


def first_words(items: Iterable[object], width: int = SHOWN) -> str:
    """The first names of an array, and the number of the rest."""
    return few([word(item) for item in items], shown=width)


# -- authentication ----------------------------------------------------------------------------------------------------


def message_phrase(described: object) -> str:
    """`SCRAM-SHA-256 client-first, user alice` for a described message; "" if nothing is known."""
    if not isinstance(described, dict):
        return ""
    head = " ".join(word(described[name]) for name in ("mechanism", "message") if described.get(name) is not None)
    parts = [head]
    if "username" in described:
        parts.append(f"{'delegation token' if described.get('token_auth') else 'user'} {word(described['username'])}")
    if described.get("authzid") not in (None, described.get("username")):
        parts.append(f"acting as {word(described['authzid'])}")
    if "iterations" in described:
        parts.append(f"{described['iterations']} iterations")
    if "extensions" in described:
        parts.append(f"extensions {first_words(lists(described['extensions']))}")
    if "error" in described:
        error = described["error"]
        parts.append(f"error {word(error.get('status') if isinstance(error, dict) else error)}")
    return ", ".join(parts)
