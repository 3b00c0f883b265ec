"""Consumers, groups and positions: cases that the captures of real brokers do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkasniff.analysis.detectors import find_detector
from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.known_clusters import Known
from tests.analysis.tables import SECOND, START_NS, Row, batch_of, connection, exchange, partition


def found(name: str, *rows: Row) -> list[Finding]:
    detector = find_detector(name)()
    detector.update(batch_of([{**row, "exchange_id": place} for place, row in enumerate(rows)]))
    return list(detector.findings())


def severities(name: str, *rows: Row) -> list[str]:
    return [one.severity for one in found(name, *rows)]


def fetch(at: float, offset: int, end: int = 0, **values: Any) -> Row:
    known = {name: values.pop(name) for name in ("connection_id", "client_id") if name in values}
    place = partition(**{"offset": offset, "high_watermark": end, "record_count": 1, **values})
    return exchange("Fetch", at, partitions=[place], **known)


MEMBER = exchange("JoinGroup", 0, group_id="g", member_id="m")


def heartbeat(at: float, member: str, epoch: int = 5, code: int = 0) -> Row:
    body = {"member_epoch": epoch, "group_instance_id": "one"}
    named = {"group_id": "g", "member_id": member, "error_code": code, "client_id": member}
    return exchange("ConsumerGroupHeartbeat", at, request_body=body, response_body={"member_epoch": 5}, **named)


def test_a_name_that_is_not_released() -> None:
    """Two programs, if the member that holds the name is still there; otherwise one that was killed."""
    rows = [heartbeat(0, "old", 0), heartbeat(2, "new", 0, 111)]
    (one,) = found("shared-instances", *rows)
    assert (one.severity, one.subject["instance"]) == ("note", "one")
    assert "not released" in one.title
    assert severities("shared-instances", *rows, heartbeat(3, "old")) == ["error"]


def test_starts_at_one_offset() -> None:
    starts = [fetch(place, 7, connection_id=place) for place in range(3)]
    (one,) = found("repeated-starts", MEMBER, *starts)
    assert (one.subject, one.values["offset"], one.count) == ({"group_id": "g"}, 7, 3)
    assert found("repeated-starts", MEMBER, *starts[:2], fetch(2, 8, connection_id=2)) == []
    assert found("repeated-starts", *starts) == [], "not in a group"
    assert found("repeated-starts", MEMBER, *(fetch(place, 7, connection_id=1) for place in range(3))) == []
    idle = [fetch(place, 7, record_count=0, connection_id=place) for place in range(3)]
    assert found("repeated-starts", MEMBER, *idle) == []


def test_returns_to_one_offset() -> None:
    """An error if the consumer does not get beyond it. Fetches without records do not count."""
    returns = [fetch(place, 7, connection_id=1) for place in range(5)]
    (one,) = found("repeated-starts", MEMBER, *returns)
    assert (one.severity, one.subject, one.values["offset"], one.count) == ("error", {"group_id": "g"}, 7, 5)
    (one,) = found("repeated-starts", *returns, fetch(6, 8, connection_id=1))
    assert (one.severity, one.subject["client_ip"]) == ("warning", "10.0.0.5")
    assert found("repeated-starts", MEMBER, *returns[:4]) == []
    assert found("repeated-starts", *(fetch(place, 7, connection_id=1, record_count=0) for place in range(9))) == []


def commit(at: float, offset: int) -> Row:
    return exchange("OffsetCommit", at, group_id="g", partitions=[partition(offset=offset)])


def test_offsets_that_a_group_has_lost() -> None:
    """A group without offsets may be new, so only those that it had committed before are lost."""
    nothing = exchange("OffsetFetch", 3, group_id="g", partitions=[partition(offset=-1)])
    body = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    latest = exchange("ListOffsets", 4, partitions=[partition(offset=50)], request_body=body)
    (one,) = found("offsets-out-of-range", commit(1, 10), commit(2, 20), nothing, latest)
    assert (one.severity, one.values["offset"], one.values["skipped"]) == ("error", 20, 30)
    assert "no committed offset of group g" in one.title
    assert found("offsets-out-of-range", nothing, latest, commit(5, 20)) == []


def test_members_that_leave_and_come_back() -> None:
    """In the newer protocols members give no reason; one that ends or subscribes anew does not come back later."""
    late = [heartbeat(at, "slow", epoch) for at, epoch in ((0, 0), (3, -1), (5, 0))]
    (one,) = found("lost-members", *late)
    assert (one.severity, one.values["poll_timeouts"]) == ("warning", 1)
    assert found("lost-members", *late[:2]) == []
    assert found("lost-members", *late[:2], heartbeat(3.05, "slow", 0)) == []


def consumer(speed: int, every: int, seconds: int = 60) -> Iterator[Row]:
    """100 records a second are produced; the group commits `speed` of them, once in `every` seconds."""
    for second in range(seconds):
        yield exchange("Produce", second, partitions=[partition(offset=100 * second, record_count=100)])
        if second % every == 0:
            committed = partition(offset=speed * second)
            yield exchange("OffsetCommit", second + 0.5, group_id="g", partitions=[committed])


def test_growth_of_lag() -> None:
    waiting = [heartbeat(place, "reader") for place in range(40)]
    ends = [fetch(place, 7, 100 * place, client_id="reader", record_count=0) for place in range(40)]
    (one,) = found("growing-lag", *waiting, *ends)
    assert one.severity == "warning", "it never moved, as if a transaction were open"
    (one,) = found("growing-lag", *consumer(50, 1))
    assert (one.severity, one.subject) == ("warning", {"group_id": "g"})
    assert 2000 < one.values["lag"] - one.values["before"] < 3000
    assert found("growing-lag", *consumer(100, 1)) == []
    assert found("growing-lag", *consumer(100, 25)) == [], "it commits rarely"
    assert found("growing-lag", *consumer(50, 1, 10)) == [], "too short"


def test_a_consumer_that_hangs() -> None:
    """It commits nothing more, and its heartbeats continue; if these end, too, its program has ended."""
    hangs = [row for row in consumer(100, 1) if row["api"] == "Produce" or row["time_ns"] < START_NS + 20 * SECOND]
    beats = [exchange("Heartbeat", second, group_id="g", member_id="m") for second in range(60)]
    (one,) = found("growing-lag", *hangs, *beats)
    assert one.values["lag"] > 3000
    assert found("growing-lag", *hangs, *beats[:20]) == []
    assert found("growing-lag", *consumer(100, 1), *beats) == []


def share(deliveries: int, last: int = 0, **values: Any) -> Row:
    acquired = {"first_offset": 0, "last_offset": last, "delivery_count": deliveries}
    body = {"responses": [{"topic_id": "id", "partitions": [{"partition_index": 0, "acquired_records": [acquired]}]}]}
    return exchange("ShareFetch", 0, group_id="g", response_body=body, partitions=[partition(topic_id="id")], **values)


def test_deliveries_of_share_groups() -> None:
    assert severities("repeated-deliveries", share(1)) == []
    assert severities("repeated-deliveries", share(2)) == ["note"]
    assert severities("repeated-deliveries", share(2, 9)) == ["warning"]
    (one,) = found("repeated-deliveries", share(5))
    assert (one.severity, one.subject["topic"]) == ("error", "orders")
    assert severities("repeated-deliveries", share(2, 2**63 - 1)) == ["warning"]
    rejected = {"first_offset": 0, "last_offset": 11, "acknowledge_types": [3]}
    body = {"topics": [{"topic_id": "id", "partitions": [{"acknowledgement_batches": [rejected]}]}]}
    (one,) = found("repeated-deliveries", exchange("ShareAcknowledge", 0, group_id="g", request_body=body))
    assert (one.severity, one.values["rejected"]) == ("warning", 12)


def reset(at: float, number: int, offset: int, timestamp: int = -2) -> Row:
    asked = {"topics": [{"name": "orders", "partitions": [{"partition_index": number, "timestamp": timestamp}]}]}
    return exchange("ListOffsets", at, request_body=asked, partitions=[partition(number=number, offset=offset)])


def test_offsets_out_of_range() -> None:
    """All partitions of a topic are one finding, whose worst one is named."""
    refused = [fetch(1, 10, -1, number=number, error_code=1) for number in range(3)]
    (one,) = found("offsets-out-of-range", *refused, *(reset(2, number, 10 + 50 * number) for number in range(3)))
    assert (one.severity, one.count) == ("error", 3)
    assert "orders-2 at offset 10" in one.title
    assert one.values == {
        "partition": 2,
        "offset": 10,
        "reset": 110,
        "start": 110,
        "end": None,
        "skipped": 150,
        "again": 0,
        "offsets": 3,
    }
    assert severities("offsets-out-of-range", refused[0], reset(2, 0, 10)) == ["note"]
    assert severities("offsets-out-of-range", refused[0], reset(0, 0, 10)) == ["error"], "it did not continue"
    assert "it did not continue" in found("offsets-out-of-range", refused[0])[0].title


def test_topics_that_come_and_go() -> None:
    unknown = [
        exchange("Produce", at, partitions=[partition(error_code=3)], error_code=3, error_count=1) for at in (1, 2, 3)
    ]
    (one,) = found("missing-topics", *unknown)
    assert (one.severity, one.values["deleted"]) == ("error", False)
    (one,) = found("missing-topics", fetch(0, 5), *unknown)
    assert (one.severity, one.values["deleted"]) == ("error", True)
    assert severities("missing-topics", unknown[0]) == ["note"]
    assert found("missing-topics", *unknown, fetch(4, 5)) == [], "it was created"


ONE = {"10.0.0.9:9092": "a"}
ABSENT = exchange("OffsetFetch", 1, group_id="g", partitions=[partition(offset=-1)])


def unread(rows: list[Row], *, brokers: dict[str, str] = ONE, until: float = 9) -> list[str]:
    """Severities for a member of a group whose broker is in the capture, and `brokers` that others list."""
    detector = find_detector("offsets-out-of-range")()
    detector.clusters = Known(brokers)
    detector.update(batch_of([{**row, "exchange_id": place} for place, row in enumerate(rows)]))
    own = {"broker_ip": "10.0.0.9", "broker_port": 9092}
    detector.update(batch_of([{**connection(lived=until), **own}], "connections"), "connections")
    return [one.severity for one in detector.findings()]


def test_a_member_without_an_offset_that_reads_nothing() -> None:
    assert unread([MEMBER, ABSENT]) == ["error"]
    left = exchange("LeaveGroup", 1.1, group_id="g", member_id="m")
    assert unread([MEMBER, ABSENT, left], until=1.2) == ["error"]
    assert unread([MEMBER, ABSENT], brokers={"10.0.0.9:9092": "a", "kafka-1:9092": "a"}) == ["error"], "the same broker"


def test_a_member_without_an_offset_that_may_read() -> None:
    assert unread([MEMBER, ABSENT, fetch(1.1, 0)]) == []
    assert unread([MEMBER, ABSENT, exchange("ListOffsets", 1.1)]) == []
    assert unread([MEMBER, ABSENT], until=1.2) == [], "the capture ends"
    assert unread([ABSENT]) == [], "an administrator asks"
    others = {"10.0.0.9:9092": "a", "10.0.0.8:9092": "a"}
    assert unread([MEMBER, ABSENT], brokers=others) == [], "it may read at a broker that is not in the capture"
    assert unread([MEMBER, ABSENT], brokers={f"kafka-{number}:9092": "a" for number in range(3)}) == []


def test_a_member_that_joins_again_on_its_connection_did_not_poll() -> None:
    """Older clients give no reason. A program that ends has a new connection when it starts again."""
    left = exchange("LeaveGroup", 4, group_id="g", member_id="m")
    again = exchange("JoinGroup", 9, group_id="g", member_id="")
    (one,) = found("lost-members", MEMBER, left, again)
    assert (one.severity, one.values["poll_timeouts"]) == ("warning", 1)
    assert found("lost-members", MEMBER, left, {**again, "connection_id": 2}) == []
    assert found("lost-members", MEMBER, left, exchange("JoinGroup", 4.05, group_id="g", member_id="")) == []
