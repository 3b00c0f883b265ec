"""Recognizing records of KRaft's metadata log, in whole bodies and in bytes that were not decoded."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.apis.cluster_metadata import (
    may_hold_topic,
    metadata_test,
    secret_marks,
)
from kafkasniff.kafka.apis.named_apis import FETCH, PRODUCE
from kafkasniff.model import Direction

HEARTBEAT, UNKNOWN = 12, 9999
NAME_MARK, ID_MARK = b"__cluster_metadata", bytes(15) + b"\1"


@pytest.mark.parametrize(
    ("key", "direction", "version", "marks"),
    [
        (FETCH, "response", 12, {NAME_MARK}),
        (FETCH, "response", 13, {ID_MARK}),
        # In an unknown version either may be there.
        (FETCH, "response", 200, {NAME_MARK, ID_MARK}),
        (FETCH, "request", 12, set()),
        (PRODUCE, "request", 3, {NAME_MARK}),
        (PRODUCE, "response", 3, set()),
        (HEARTBEAT, "request", 0, set()),
        (UNKNOWN, "request", 0, set()),
    ],
)
def test_marks_of_bytes_that_were_not_decoded(key: int, direction: Direction, version: int, marks: set[bytes]) -> None:
    assert set(secret_marks(key, direction, version)) == marks
    assert may_hold_topic(key, direction) is bool(marks)
    assert (metadata_test(key, direction) is not None) is bool(marks)
