"""Consumers, groups and positions: cases that the captures of real brokers do not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kafkasniff.analysis.detectors.finding import Finding
from tests.analysis.detectors.talks import findings_of, numbered
from tests.analysis.tables import SECOND, START_NS, Row, exchange, partition


def found(name: str, *rows: Row) -> list[Finding]:
    return findings_of(name, numbered(*rows))


def fetch(at: float, offset: int, end: int = 0, **values: Any) -> Row:
    known = {name: values.pop(name) for name in ("connection_id", "client_id") if name in values}
    place = partition(**{"offset": offset, "high_watermark": end, "record_count": 1, **values})
    return exchange("Fetch", at, partitions=[place], **known)


MEMBER = exchange("JoinGroup", 0, group_id="g", member_id="m")


def heartbeat(at: float, member: str, epoch: int = 5, code: int = 0) -> Row:
    body = {"member_epoch": epoch, "group_instance_id": "one"}
    named = {"group_id": "g", "member_id": member, "error_code": code, "client_id": member}
    return exchange("ConsumerGroupHeartbeat", at, request_body=body, response_body={"member_epoch": 5}, **named)


def consumer(speed: int, every: int, seconds: int = 60) -> Iterator[Row]:
    """100 records a second are produced; the group commits `speed` of them, once in `every` seconds."""
    for second in range(seconds):
        yield exchange("Produce", second, partitions=[partition(offset=100 * second, record_count=100)])
        if second % every == 0:
            committed = partition(offset=speed * second)
            yield exchange("OffsetCommit", second + 0.5, group_id="g", partitions=[committed])


def share(deliveries: int, last: int = 0, **values: Any) -> Row:
    acquired = {"first_offset": 0, "last_offset": last, "delivery_count": deliveries}
    body = {"responses": [{"topic_id": "id", "partitions": [{"partition_index": 0, "acquired_records": [acquired]}]}]}
    return exchange("ShareFetch", 0, group_id="g", response_body=body, partitions=[partition(topic_id="id")], **values)


def reset(at: float, number: int, offset: int, timestamp: int = -2) -> Row:
    asked = {"topics": [{"name": "orders", "partitions": [{"partition_index": number, "timestamp": timestamp}]}]}
    return exchange("ListOffsets", at, request_body=asked, partitions=[partition(number=number, offset=offset)])


def commit(offset: int) -> Row:
    return exchange("OffsetCommit", 1, group_id="g", partitions=[partition(offset=offset)])


def leave(at: float) -> Row:
    return exchange("LeaveGroup", at, group_id="g", member_id="m")


STARTS = [fetch(place, 7, connection_id=place) for place in range(3)]
RETURNS = [fetch(place, 7, connection_id=1) for place in range(5)]
AWAY = [heartbeat(at, "slow", epoch) for at, epoch in ((0, 0), (3, -1), (5, 0))]
BEATS = [exchange("Heartbeat", second, group_id="g", member_id="m") for second in range(60)]
# It commits nothing more after 20 seconds.
HANGS = [row for row in consumer(100, 1) if row["api"] == "Produce" or row["time_ns"] < START_NS + 20 * SECOND]
ENDS = [row for row in consumer(100, 1) if row["api"] == "Produce"]
REFUSED = [fetch(1, 10, -1, number=number, error_code=1) for number in range(3)]


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [
        ("repeated-starts", [MEMBER, *STARTS], ["error"]),
        ("repeated-starts", [MEMBER, *STARTS[:2], fetch(2, 8, connection_id=2)], []),
        ("repeated-starts", STARTS, []),
        ("repeated-starts", [MEMBER, *RETURNS[:3]], []),
        ("repeated-starts", [MEMBER, *(fetch(at, 7, record_count=0, connection_id=at) for at in range(3))], []),
        # Returns: an error if the consumer does not get beyond the offset. Fetches without records do not count.
        ("repeated-starts", [MEMBER, *RETURNS], ["error"]),
        ("repeated-starts", [*RETURNS, fetch(6, 8, connection_id=1)], ["warning"]),
        ("repeated-starts", [MEMBER, *RETURNS[:4]], []),
        ("repeated-starts", [fetch(at, 7, connection_id=1, record_count=0) for at in range(9)], []),
        # In the newer protocols members give no reason; one that ends or subscribes anew does not come back later.
        ("lost-members", AWAY, ["warning"]),
        ("lost-members", AWAY[:2], []),
        ("lost-members", [*AWAY[:2], heartbeat(3.05, "slow", 0)], []),
        ("growing-lag", consumer(50, 1), ["warning"]),
        ("growing-lag", consumer(100, 1), []),
        ("growing-lag", consumer(100, 25), []),
        ("growing-lag", consumer(50, 1, 10), []),
        # A consumer that hangs, or that ends without leaving its group.
        ("growing-lag", [*HANGS, *BEATS], ["warning"]),
        ("growing-lag", [*HANGS, *BEATS[:20]], ["warning"]),
        ("growing-lag", [*HANGS, *BEATS[:20], leave(20)], []),
        ("growing-lag", [*HANGS, *BEATS[:20], fetch(40, 4000)], []),
        ("growing-lag", HANGS, []),
        # One that leaves records that were there when it began, and nobody continues.
        ("growing-lag", [*ENDS, commit(7), *BEATS[:2], leave(2)], ["warning"]),
        ("growing-lag", [*ENDS, commit(100), *BEATS[:2], leave(2)], []),
        ("growing-lag", [*ENDS[2:], commit(200), *BEATS[:2], leave(2)], []),
        ("growing-lag", [*ENDS[:9], commit(7), *BEATS[:2], leave(2)], []),
        ("growing-lag", [*ENDS, commit(7), *BEATS[:2], leave(2), heartbeat(58, "other")], []),
        ("growing-lag", [*consumer(100, 1), *BEATS], []),
        ("repeated-deliveries", [share(1)], []),
        ("repeated-deliveries", [share(2)], ["note"]),
        ("repeated-deliveries", [share(2, 9)], ["warning"]),
        ("repeated-deliveries", [share(2, 2**63 - 1)], ["warning"]),
        ("repeated-deliveries", [share(5)], ["error"]),
        ("offsets-out-of-range", [REFUSED[0], reset(2, 0, 10)], ["note"]),
        ("offsets-out-of-range", [REFUSED[0], reset(0, 0, 10)], ["error"]),
    ],
)
def test_severities(name: str, rows: Sequence[Row], expected: list[str]) -> None:
    assert [one.severity for one in found(name, *rows)] == expected


def test_rejected_records() -> None:
    rejected = {"first_offset": 0, "last_offset": 11, "acknowledge_types": [3]}
    body = {"topics": [{"topic_id": "id", "partitions": [{"acknowledgement_batches": [rejected]}]}]}
    (one,) = found("repeated-deliveries", exchange("ShareAcknowledge", 0, group_id="g", request_body=body))
    assert (one.severity, one.values["rejected"]) == ("warning", 12)


def test_offsets_of_a_topic_are_one_finding() -> None:
    """Its worst partition is named."""
    (one,) = found("offsets-out-of-range", *REFUSED, *(reset(2, number, 10 + 50 * number) for number in range(3)))
    assert (one.severity, one.count) == ("error", 3)
    assert "orders-2 at offset 10" in one.title
    values = {"partition": 2, "offset": 10, "reset": 110, "start": 110, "end": None, "skipped": 150, "again": 0}
    assert one.values == {**values, "offsets": 3}


def given(at: float, *partitions: int, connection_id: int = 1, client_id: str = "idle") -> Row:
    body = {"assignment": {"topic_partitions": [{"topic_id": "id", "partitions": [*partitions]}] if partitions else []}}
    named: dict[str, Any] = {"group_id": "g", "client_id": client_id, "connection_id": connection_id}
    return exchange("ConsumerGroupHeartbeat", at, response_body=body, **named)


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([given(0), given(6)], ["idle"]),
        ([given(0, 1), given(1), exchange("ConsumerGroupHeartbeat", 9, group_id="g", client_id="idle")], ["idle"]),
        ([given(0), given(2, 1), given(9)], []),
        # A member that gets partitions soon, or that ends.
        ([given(0), given(3, 0), exchange("ConsumerGroupHeartbeat", 9, group_id="g", client_id="idle")], []),
        ([given(0), given(4)], []),
        ([given(0, 0), given(9, 0)], []),
    ],
)
def test_members_without_partitions(rows: list[Row], names: list[str]) -> None:
    busy = given(0, 1, connection_id=2, client_id="busy")
    assert [one.title.rpartition(": ")[2] for one in found("idle-members", busy, *rows)] == names


def test_a_name_that_is_not_released() -> None:
    """Two programs, if the member that holds the name is still there; otherwise one that was killed."""
    rows = [heartbeat(0, "old", 0), heartbeat(2, "new", 0, 111)]
    (one,) = found("shared-instances", *rows)
    assert (one.severity, one.subject["instance"]) == ("note", "one")
    assert "not released" in one.title
    assert [one.severity for one in found("shared-instances", *rows, heartbeat(3, "old"))] == ["error"]


def test_a_member_that_joins_again_on_its_connection_did_not_poll() -> None:
    """Older clients give no reason. A program that ends has a new connection when it starts again."""
    left = exchange("LeaveGroup", 4, group_id="g", member_id="m")
    again = exchange("JoinGroup", 9, group_id="g", member_id="")
    (one,) = found("lost-members", MEMBER, left, again)
    assert (one.severity, one.values["poll_timeouts"]) == ("warning", 1)
    assert found("lost-members", MEMBER, left, {**again, "connection_id": 2}) == []
    assert found("lost-members", MEMBER, left, exchange("JoinGroup", 4.05, group_id="g", member_id="")) == []
