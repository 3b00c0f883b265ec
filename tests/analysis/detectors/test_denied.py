"""What brokers did not authorize."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.detectors import Detectors
from kafkasniff.analysis.detectors.finding import worst_first
from tests.analysis.detectors.talks import findings_of
from tests.analysis.tables import batch_of, connection, exchange, partition

DENIED = 29


def found(*exchanges: dict[str, Any]) -> list[tuple[Any, ...]]:
    detectors = Detectors(only=["denied", "hidden-errors"])
    detectors.update(batch_of(exchanges))
    detectors.update(batch_of([connection(connection_id=1, principal="alice")], "connections"), "connections")
    names = ("principal", "resource_type", "resource")
    return [(one.detector, *map(one.subject.get, names), one.count) for one in detectors.findings()]


def denied(api: str, body: dict[str, Any], count: int = 1, code: int = DENIED, **values: Any) -> dict[str, Any]:
    return exchange(api, error_code=code, error_count=count, response_body=body, **values)


TOPICS = {"topics": [{"name": "a", "error_code": 0}, {"name": "b", "error_code": 29}]}
PARTITIONS = [{"index": 0, "error_code": 29}, {"index": 1, "error_code": 29}]
REFUSED = [partition("x", number, error_code=DENIED) for number in (0, 1)]
CUT = {"response_body": '{"error_code": 3'}


@pytest.mark.parametrize(
    ("row", "resource"),
    [
        # Several partitions of a topic are one denial of an exchange.
        (denied("Produce", {"responses": [{"name": "x", "partition_responses": PARTITIONS}]}, 2, partitions=REFUSED),
         ("topic", "x")),
        (denied("Metadata", TOPICS, topics=["a", "b"]), ("topic", "b")),
        (denied("JoinGroup", {"error_code": 30}, code=30, group_id="g"), ("group", "g")),
        (denied("InitProducerId", {"error_code": 53}, code=53, transactional_id="t"), ("transactional id", "t")),
        (denied("CreateAcls", {"error_code": 31}, code=31), ("cluster", None)),
        (denied("Fetch", {"error_code": 29}, topics=["x", "y"]), ("topic", None)),
        # Without bodies, or with one that is cut, the columns decide.
        (exchange("JoinGroup", error_code=30, error_count=1, group_id="g"), ("group", "g")),
        (exchange("JoinGroup", error_code=30, error_count=1, group_id="g") | CUT, ("group", "g")),
        (exchange("Produce", error_code=DENIED, error_count=1, partitions=REFUSED[:1]), ("topic", "x")),
    ],
)  # fmt: skip
def test_what_is_denied(row: dict[str, Any], resource: tuple[str, str | None]) -> None:
    assert found(row) == [("denied", "alice", *resource, 1)]


def test_other_errors() -> None:
    # 3 may be the answer about a topic that must not be described, and is mostly not.
    other = denied("Metadata", {"topics": [{"name": "b", "error_code": 3}]}, code=3, topics=["b"])
    assert "denied" not in [one[0] for one in found(other)]
    assert found(denied("Metadata", {"topics": [{"name": "b", "error_code": 5}], "x": 129}, code=5)) == []


def refused(*who: tuple[int, str, str], group: str = "g") -> list[dict[str, Any]]:
    return [
        exchange(
            "JoinGroup", error_code=30, error_count=1, group_id=group, connection_id=number, exchange_id=number,
            client_id=name, client_ip=address,
        )
        for number, name, address in who
    ]  # fmt: skip


def test_who_is_denied_the_same_things_is_one_case() -> None:
    rows = refused((1, "a", "10.0.0.1"), (2, "b", "10.0.0.2"), (3, "a", "10.0.0.1"), (4, "c", "10.0.0.3"))
    other = refused((5, "d", "10.0.0.4"), group="h")
    people = [connection(connection_id=number, principal=name) for number, name in enumerate("ABA", 1)]
    denials = worst_first(findings_of("denied", [*rows, *other], connections=people))
    assert [(one.title, one.count, one.values["clients"]) for one in denials] == [
        ("A, B may not use group g: GROUP_AUTHORIZATION_FAILED for JoinGroup, 3 times", 3, 2),
        ("c at 10.0.0.3 may not use group g: GROUP_AUTHORIZATION_FAILED for JoinGroup, once", 1, 1),
        ("d at 10.0.0.4 may not use group h: GROUP_AUTHORIZATION_FAILED for JoinGroup, once", 1, 1),
    ]


def test_administration_that_is_denied_is_a_warning() -> None:
    [one] = findings_of("denied", [denied("CreateAcls", {"error_code": 31, "error_message": "Nope."}, code=31)])
    assert one.severity == "warning"
    assert one.title.endswith('may not use the cluster: CLUSTER_AUTHORIZATION_FAILED for CreateAcls, once: "Nope."')
