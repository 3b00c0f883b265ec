"""What decoded messages take in memory, in bytes: estimated at a glance, or gone through where it has to be right."""

from __future__ import annotations

from sys import getsizeof
from typing import Any, Final

from kafkasniff.model import Body, RenderedBody, RenderedRecords

__all__ = [
    "BODY_RATIO",
    "EARLY_BYTES",
    "FRAME_BYTES",
    "PROBLEM_BYTES",
    "RECORD_BYTES",
    "REQUEST_BYTES",
    "SEARCHED_SEGMENT_BYTES",
    "WITH_RECORDS",
    "body_bytes",
    "likely_bytes",
]

BODY_RATIO: Final = 128
"""Bytes of memory for a byte of a body, at most, where no records are in it: a struct of two empty fields takes two
bytes on the wire and some 250 in memory."""
RECORD_BYTES: Final = 400
"""Bytes of memory of a record, or of a batch, without keys and values."""

FRAME_BYTES: Final = 420
"""Bytes of memory of a frame that was cut and waits, without its own."""
EARLY_BYTES: Final = 1_400
"""A response that waits for its request, without its own bytes: its frame, and where it is found by its id."""
REQUEST_BYTES: Final = 1_700
"""A request that waits for its response, without what was decoded of it."""
SEARCHED_SEGMENT_BYTES: Final = 200
"""A segment that is searched for frames, without its bytes."""
PROBLEM_BYTES: Final = 300
"""A problem that waits for the verdict."""

_TOPICS: Final = {0: "topic_data", 1: "responses", 78: "responses"}
"""Where the topics with records are, by key: Produce requests, Fetch and ShareFetch responses."""
_PARTITIONS: Final = {0: "partition_data", 1: "partitions", 78: "partitions"}


WITH_RECORDS: Final = frozenset(_TOPICS)
"""Keys of the APIs whose records `likely_bytes` counts; all others take BODY_RATIO."""


def likely_bytes(api_key: int | None, size: int, body: Body | RenderedBody | None) -> int:
    """About what a message of `size` bytes on the wire takes, or more. Hot: of records only their number is asked."""
    if body is None:
        return size
    if isinstance(body, RenderedBody):
        return size + len(body.json)
    topics = None if api_key is None or api_key not in _TOPICS else body.get(_TOPICS[api_key])
    if not topics:
        return size * BODY_RATIO
    total = size
    partitions_in = _PARTITIONS[api_key]  # type: ignore[index]  # it is one of them
    for topic in topics:
        total += RECORD_BYTES
        for partition in topic.get(partitions_in) or ():
            total += 2 * RECORD_BYTES
            field = partition.get("records")
            if isinstance(field, RenderedRecords):
                # Its JSON, and its bytes on the wire.
                total += 2 * len(field.json)
                continue
            for batch in () if field is None else field["batches"]:
                total += RECORD_BYTES + RECORD_BYTES * len(batch.get("records") or ())
                if batch.get("compression") != "none":
                    records = batch.get("records") or ()
                    total += sum([len(one.get("key") or b"") + len(one.get("value") or b"") for one in records])
    return total


def body_bytes(value: Any) -> int:
    """What a body takes, by all that it consists of; objects that it holds twice count twice."""
    total = 0
    left = [value]
    while left:
        one = left.pop()
        if one is None or one is True or one is False:
            continue
        total += getsizeof(one)
        if isinstance(one, dict):
            left.extend(one.values())
        elif one.__class__ is list or one.__class__ is tuple:
            left.extend(one)
    return total
