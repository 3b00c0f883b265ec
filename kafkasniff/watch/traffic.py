"""Which topics a message carries records of, and how many: Produce, Fetch and ShareFetch."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafkasniff.model import Message

__all__ = ["FETCHED", "PRODUCED", "TopicTraffic", "topic_traffic"]

PRODUCED: Final = "produced"
FETCHED: Final = "fetched"

BATCH_OVERHEAD: Final = 12
"""Bytes in front of what `batch_length` counts: base offset and the length itself, alike in all three formats."""

# (API key, direction) → the arrays of topics and of their partitions, and which way the records go.
_PLACES: Final[dict[tuple[int | None, str], tuple[str, str, str]]] = {
    (0, "request"): ("topic_data", "partition_data", PRODUCED),
    (0, "response"): ("responses", "partition_responses", PRODUCED),
    (1, "response"): ("responses", "partitions", FETCHED),
    (78, "response"): ("responses", "partitions", FETCHED),
}


class TopicTraffic(NamedTuple):
    """What one message says about one topic."""

    topic: str | bytes
    """Its name; its id where no name is known."""
    way: str
    """PRODUCED or FETCHED."""
    records: int
    """Records of batches that tell their number; compressed message sets (before 0.11) do not."""
    bytes: int
    """Of the batches, as they are on the wire."""
    errors: int
    """Partitions with an error code."""


def topic_traffic(message: Message) -> list[TopicTraffic]:
    """One entry for each topic of the message, none for messages without records. Hot: once for each message."""
    place = _PLACES.get((message.api_key, message.type))
    if place is None or message.body is None:
        return []
    topics, partitions, way = place
    found: list[TopicTraffic] = []
    for topic in _structs(message.body.get(topics)):
        name = topic.get("name")
        if name is None:
            name = topic.get("topic")
        if name is None:
            name = topic.get("_topic_name")
        if name is None:
            name = topic.get("topic_id")
        if not isinstance(name, str | bytes):
            continue
        records = size = errors = 0
        for partition in _structs(topic.get(partitions)):
            if partition.get("error_code"):
                errors += 1
            held = partition.get("records")
            if isinstance(held, dict):
                for batch in held["batches"]:
                    records += batch.get("record_count") or 0
                    size += BATCH_OVERHEAD + batch["batch_length"]
        found.append(TopicTraffic(name, way, records, size, errors))
    return found


def _structs(value: Any) -> list[dict[str, Any]]:
    """An array of structs; a body that broke off may lack it, or end in a struct that does."""
    return value if isinstance(value, list) else []
