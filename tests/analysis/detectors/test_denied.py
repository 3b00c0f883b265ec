"""What brokers did not authorize."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.detectors import Detectors
from tests.analysis.tables import batch_of, connection, exchange, partition

DENIED = 29


def found(*exchanges: dict[str, Any], principals: tuple[str | None, ...] = ("alice",)) -> list[tuple[Any, ...]]:
    detectors = Detectors(only=["denied", "hidden-errors"])
    detectors.update(batch_of(exchanges))
    rows = [connection(connection_id=number, principal=name) for number, name in enumerate(principals, 1)]
    detectors.update(batch_of(rows, "connections"), "connections")
    return [
        (
            one.detector,
            one.subject.get("principal"),
            one.subject.get("resource_type"),
            one.subject.get("resource"),
            one.count,
        )
        for one in detectors.findings()
    ]


def denied(api: str, body: dict[str, Any], count: int = 1, code: int = DENIED, **values: Any) -> dict[str, Any]:
    return exchange(api, error_code=code, error_count=count, response_body=body, **values)


def test_several_partitions_of_a_topic_are_one_denial_of_an_exchange() -> None:
    parts = [partition("x", number, error_code=DENIED) for number in (0, 1)]
    body = {
        "responses": [
            {"name": "x", "partition_responses": [{"index": 0, "error_code": 29}, {"index": 1, "error_code": 29}]}
        ]
    }
    assert found(denied("Produce", body, 2, partitions=parts)) == [("denied", "alice", "topic", "x", 1)]


def test_the_topic_of_an_error() -> None:
    body = {"topics": [{"name": "a", "error_code": 0}, {"name": "b", "error_code": 29}]}
    row = denied("Metadata", body, topics=["a", "b"])
    assert found(row) == [("denied", "alice", "topic", "b", 1)]
    # 3 may be the answer about a topic that must not be described, and is mostly not.
    other = denied("Metadata", {"topics": [{"name": "b", "error_code": 3}]}, code=3, topics=["b"])
    assert "denied" not in [one[0] for one in found(other)]


@pytest.mark.parametrize(
    ("api", "code", "values", "resource"),
    [
        ("JoinGroup", 30, {"group_id": "g"}, ("group", "g")),
        ("InitProducerId", 53, {"transactional_id": "t"}, ("transactional id", "t")),
        ("CreateAcls", 31, {}, ("cluster", None)),
        ("Fetch", 29, {"topics": ["x", "y"]}, ("topic", None)),
    ],
)
def test_errors_of_whole_responses(
    api: str, code: int, values: dict[str, Any], resource: tuple[str, str | None]
) -> None:
    row = denied(api, {"error_code": code}, code=code, **values)
    assert found(row) == [("denied", "alice", *resource, 1)]


def test_without_bodies_the_columns_decide() -> None:
    assert found(exchange("JoinGroup", error_code=30, error_count=1, group_id="g")) == [
        ("denied", "alice", "group", "g", 1)
    ]
    parts = [partition("x", 0, error_code=DENIED)]
    row = exchange("Produce", error_code=DENIED, error_count=1, partitions=parts)
    assert found(row) == [("denied", "alice", "topic", "x", 1)]


def test_principals_are_kept_apart_across_connections() -> None:
    rows = [
        exchange("JoinGroup", error_code=30, error_count=1, group_id="g", connection_id=number, exchange_id=number)
        for number in (1, 2, 3, 4)
    ]
    assert found(*rows, principals=("alice", "bob", "alice", None)) == [
        ("denied", "alice", "group", "g", 2),
        ("denied", "bob", "group", "g", 1),
        ("denied", None, "group", "g", 1),
    ]
