"""Recognizing records of KRaft's metadata log, in whole bodies and in bytes that were not decoded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.apis.cluster_metadata import (
    TOPIC_ID,
    TOPIC_NAME,
    may_hold_topic,
    metadata_records,
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


topics = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from([TOPIC_NAME, "orders", "__cluster_metadata2", None]),
        "topic_id": st.sampled_from([TOPIC_ID, "A" * 22, None]),
        "partitions": st.none()
        | st.lists(st.fixed_dictionaries({}, optional={"records": st.none() | st.integers(0, 99)}), max_size=3),
    },
)
bodies = st.fixed_dictionaries({}, optional={"responses": st.none() | st.lists(topics, max_size=4)})


@given(bodies)
def test_fetched_records(body: dict[str, Any]) -> None:
    """Bodies may be truncated, or have nulls where no message has any."""
    chosen = [
        one for one in body.get("responses") or () if one.get("topic") == TOPIC_NAME or one.get("topic_id") == TOPIC_ID
    ]
    test = metadata_test(FETCH, "response")
    assert test is not None
    assert test(body) is bool(chosen)
    expected = [
        partition["records"] for one in chosen for partition in one.get("partitions") or () if "records" in partition
    ]
    assert list(metadata_records(FETCH, "response", body)) == expected
