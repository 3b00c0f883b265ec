"""Findings about rows: who is to blame, what was done instead, and what only looks like trouble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kafkasniff.analysis.detectors import Detectors, connections
from kafkasniff.analysis.detectors.connections import Identities, identities_of
from kafkasniff.analysis.detectors.finding import Finding, worst_first
from kafkasniff.analysis.security import SecurityView
from kafkasniff.model import Connection, Endpoint
from kafkasniff.tables.rows.connections import ConnectionRows, Login
from tests.analysis.detectors.talks import findings_of, numbered
from tests.analysis.tables import SECOND, START_NS, Row, batch_of, connection, exchange, partition

USERS = ("alice", "bob", "carol")


def attempts(*tries: tuple[str, bool], mechanism: str = "PLAIN", by_token: bool = False, apps: str = "a") -> list[str]:
    """What findings say about authentications of these users, one a second, that succeed or not.

    `apps` names the clients of the first ones; the last one has the others, too.
    """
    connections: list[Row] = []
    refused: list[Row] = []
    for number, (user, accepted) in enumerate(tries):
        app = apps[min(number, len(apps) - 1)]
        said = "succeeded" if accepted else "failed"
        own = {"connection_id": number, "client_ids": [app], "sasl_mechanism": mechanism, "principal": user}
        own |= {"broker_ip": "10.0.0.9", "broker_port": 9092, "authentication": said, "by_token": by_token}
        connections.append({**connection(at=number), **own})
        if not accepted:
            own = {"connection_id": number, "client_id": app}
            refused.append({**exchange("SaslAuthenticate", at=number + 0.5, error_code=58), **own})
    found = findings_of("sasl-failures", refused, connections=connections)
    return [f"{one.title} {one.meaning} {one.advice}" for one in found]


@pytest.mark.parametrize(
    ("tries", "expected"),
    [
        ([(user, True) for user in USERS] + [(user, False) for user in USERS], "all of them were accepted before"),
        ([(user, False) for user in USERS], "nobody is accepted"),
    ],
    ids=["worked-before", "never-worked"],
)
def test_several_principals_at_once(tries: list[tuple[str, bool]], expected: str) -> None:
    (words,) = attempts(*tries)
    assert "3 authentications of 3 principals (alice, bob, carol)" in words
    assert expected in words


@pytest.mark.parametrize(
    ("mechanism", "by_token", "advice"),
    [
        ("PLAIN", False, "give the client the new ones"),
        ("OAUTHBEARER", False, "gets a new token in time"),
        ("SCRAM-SHA-256", True, "Renew the delegation token"),
    ],
)
def test_credentials_that_worked_before(mechanism: str, by_token: bool, advice: str) -> None:
    (words,) = attempts(("alice", True), ("alice", False), ("bob", True), mechanism=mechanism, by_token=by_token)
    assert "was accepted before" in words
    assert advice in words
    (words,) = attempts(("alice", True), ("alice", False), ("alice", True), mechanism=mechanism, by_token=by_token)
    assert "was accepted before" not in words


def test_a_token_that_was_never_accepted() -> None:
    (words,) = attempts(("alice", False), mechanism="SCRAM-SHA-256", by_token=True)
    assert "does not know this delegation token" in words
    assert "Renew the delegation token" in words


def test_another_client_of_the_same_user() -> None:
    """That it was accepted says nothing about the password that this one has."""
    (words,) = attempts(("alice", True), ("alice", False), apps="ab")
    assert "the password or token is wrong" in words


CONNECTION = Connection(
    *(1, 11, "kafka", "fin", Endpoint("10.0.0.1", 50_000), Endpoint("10.0.0.9", 9092)),
    time_ns=5,
    syn_seen=True,
    client_ids=("app",),
    protocol="Kafka",
)


def _counted(*connections: Connection, login: Login | None = None) -> Identities:
    rows, view = ConnectionRows(), SecurityView()
    for one in connections:
        rows.append(one, login or Login())
    view.update(rows.take())
    return identities_of(view.parts["logins"], 2)


def _with(**changes: Any) -> Connection:
    return msgspec.structs.replace(CONNECTION, **changes)


def test_the_number_of_identities_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_IDENTITIES", 2)
    counted = _counted(*(_with(client_ids=(str(number),)) for number in (1, 2, 3, 1)))
    assert (len(counted.found), counted.beyond) == (2, 1)


@pytest.mark.parametrize(
    ("ids", "count", "ended", "expected"),
    [
        (1, 25, "fin", "app-0 at 10.0.0.5 opened 25 connections"),
        (1, 25, "end", None),
        (1, 19, "fin", None),
        (30, 60, "fin", "30 clients at 10.0.0.5 opened 60 connections"),
        (30, 59, "fin", None),
    ],
)
def test_short_connections(ids: int, count: int, ended: str, expected: str | None) -> None:
    """Those that the end of the capture cut are not short."""
    rows = [connection(lived=1, client_ids=[f"app-{number % ids}"], ended=ended) for number in range(count)]
    found = findings_of("connection-churn", connections=rows)
    assert [one.title.partition(" within")[0] for one in found] == ([expected] if expected else [])


def metadata(at: float, leader: int, epoch: int | None = None, *, port: int = 9092) -> Row:
    """A broker's answer that this one leads orders-0."""
    one = {"partition_index": 0, "leader_id": leader, **({} if epoch is None else {"leader_epoch": epoch})}
    return exchange(
        "Metadata", at, response_body={"topics": [{"name": "orders", "partitions": [one]}]}, broker_port=port
    )


TURNS = [metadata(2 * at, 1 + at % 2) for at in range(6)]
LATER = [metadata(at + 0.1, 1 if at < 3 else 2, port=9093) for at in range(6)]
"""Another broker, which learns late of the only move."""


@pytest.mark.parametrize(
    ("rows", "moves"),
    [
        (TURNS, 5),
        (TURNS[:4], None),
        ([metadata(at, 1 + at % 2, epoch) for at, epoch in enumerate((0, 1, 2, 3, 4))], 4),
        # Answers that are out of date.
        ([metadata(at, 1 + at % 2, at % 2) for at in range(6)], None),
        ([*LATER, *(metadata(at, 2) for at in range(6))], None),
        ([*TURNS, *LATER], 5),
    ],
    ids=["without-epochs", "few", "epochs", "stale", "stale-without-epochs", "two-brokers"],
)
def test_moves_of_leaders(rows: Sequence[Row], moves: int | None) -> None:
    for order in (rows, rows[::-1]):
        assert [one.count for one in findings_of("not-leader", order, size=1)] == ([] if moves is None else [moves])


def produce(connection: int, at: float, *, producer: int = 7, client_ip: str = "10.0.0.5") -> Row:
    places = [partition(producer_id=producer, producer_epoch=0)]
    return {**exchange("Produce", at=at, partitions=places, client_ip=client_ip), "connection_id": connection}


def ended(connection: int, until: float, *, closed: bool = False) -> Row:
    """A connection whose last packet was at `until`."""
    end = START_NS + round(until * SECOND)
    times = {"time_ns": START_NS, "end_time_ns": end, "ended_ns": end if closed else None}
    return {"connection_id": connection, **times}


USED = [produce(1, 0), produce(2, 20), produce(3, 40)]


@pytest.mark.parametrize(
    ("requests", "connections", "expected"),
    [
        (USED, [ended(1, 1), ended(2, 21)], ["warning"]),
        (USED, [ended(1, 1), ended(2, 21, closed=True)], ["note"]),
        (USED, [ended(1, 1, closed=True), ended(2, 21, closed=True)], []),
        (USED, [ended(1, 41), ended(2, 41)], []),
        ([produce(1, 0), produce(2, 20, producer=8)], [ended(1, 1)], []),
        ([produce(1, 0, producer=-1), produce(2, 20, producer=-1)], [ended(1, 1)], []),
        ([produce(1, 0), produce(2, 20, client_ip="10.0.0.6")], [ended(1, 1)], []),
    ],
    ids=["two", "one", "closed", "still-used", "other-producers", "no-producer-id", "other-hosts"],
)
def test_a_producer_goes_on_with_another_connection(
    requests: list[Row], connections: list[Row], expected: list[str]
) -> None:
    found = findings_of("forgotten-connections", requests, transport=connections)
    assert [one.severity for one in found] == expected


def fetch(at: float, stable: int, *, end: int = 40, records: int = 0, offset: int | None = None) -> Row:
    """A consumer at the last stable offset, unless it asks for another one."""
    offset = stable if offset is None else offset
    place = partition(offset=offset, high_watermark=end, last_stable_offset=stable, record_count=records)
    return exchange("Fetch", at=at, partitions=[place], exchange_id=round(at * 10))


def waiting(since: float, until: float, stable: int) -> list[Row]:
    return [fetch(since, stable), fetch((since + until) / 2, stable), fetch(until, stable)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (waiting(0, 9, 5), [("warning", False)]),
        (waiting(0, 4, 5), []),
        ([*waiting(0, 9, 5), fetch(10, 30, records=3)], [("note", True)]),
        # The last of several alike may still be open.
        ([*waiting(0, 9, 5), *waiting(10, 19, 20)], [("note", True)]),
        ([*waiting(0, 3, 5), *waiting(4, 14, 20)], [("warning", False)]),
        # Records that are not committed are read, up to the end.
        ([fetch(at, 5, offset=40) for at in (0, 5, 9)], []),
        ([fetch(at, 5, records=2) for at in (0, 5, 9)], []),
        ([fetch(at, 40) for at in (0, 5, 9)], []),
    ],
    ids=["stuck", "short", "moved", "usual", "longer", "uncommitted", "with-records", "at-the-end"],
)
def test_waits(rows: list[Row], expected: list[tuple[str, bool]]) -> None:
    found = findings_of("stuck-stable-offsets", rows)
    assert [(one.severity, one.values["moved"]) for one in found] == expected


def fetch_of(at: float, size: int = 0, *, wait: float = 0.5, **values: Any) -> Row:
    """A fetch that the broker answers after `wait` seconds."""
    return exchange("Fetch", at, partitions=[partition(bytes=size)], latency_us=round(wait * 1e6), **values)


def beat(at: float) -> Row:
    return exchange("Heartbeat", at, group_id="g")


def still(*rows: Row) -> list[str]:
    return [one.severity for one in findings_of("still-members", numbered(*rows)[::-1], size=1)]


IDLE = [fetch_of(place * 0.501) for place in range(6)]
"""The last one is answered after 3 seconds."""


def test_a_consumer_without_a_group() -> None:
    assert still(*IDLE, fetch_of(10)) == ["warning"]
    assert still(*IDLE, fetch_of(6.5)) == ["note"]
    assert still(*IDLE, fetch_of(4)) == []
    assert still(*IDLE[:2], fetch_of(10)) == [], "too few fetches to know its pace"
    assert still(*IDLE[:5], fetch_of(2.6, 100), fetch_of(10)) == []
    other = fetch_of(1, 100, wait=2.5, connection_id=2)
    assert still(*IDLE, other, fetch_of(10)) == [], "from another broker"


def test_a_consumer_that_waits_or_goes_elsewhere() -> None:
    assert still(*IDLE, {**fetch_of(3.1), "latency_us": None}, fetch_of(10)) == []
    assert still(*IDLE, fetch_of(3.1, wait=6), fetch_of(9.2)) == []
    assert still(*IDLE, *(fetch_of(3.1 + place, connection_id=2) for place in range(6)), fetch_of(10)) == []
    assert still(*IDLE, fetch_of(10), exchange("OffsetCommit", 11, group_id="g")) == [], "a group's consumer"
    assert still(*IDLE, fetch_of(10, connection_id=2)) == [], "it may have left and come back"


def test_a_member_that_waits_for_a_fetch_before_its_next_heartbeat() -> None:
    beats = [beat(place) for place in range(5)]
    assert still(*beats, beat(10)) == ["warning"]
    assert still(*beats, fetch_of(4.1, wait=5.8, client_id="other"), beat(10)) == ["warning"]
    assert still(*beats, fetch_of(4.1, wait=5.8), beat(10)) == []
    assert still(*beats, fetch_of(4.1), beat(10)) == ["warning"]


def streams_beat(at: float, *codes: int, epoch: int = 3) -> Row:
    statuses = [{"status_code": code, "status_detail": f"detail {code}"} for code in codes]
    body = {"member_epoch": epoch, "status": statuses}
    return exchange("StreamsGroupHeartbeat", at, group_id="app", response_body=body)


def statuses(*rows: Row) -> list[Finding]:
    return sorted(findings_of("blocked-streams-groups", rows), key=lambda one: one.subject["status"])


def severities(*rows: Row) -> list[str]:
    return [one.severity for one in statuses(*rows)]


def test_streams_topics_that_are_missing_or_do_not_fit() -> None:
    """Until a heartbeat has another list. Members that leave get an empty one."""
    (one,) = statuses(streams_beat(0, 2, 5))
    assert (one.severity, one.subject, one.count) == ("error", {"group_id": "app", "status": 2}, 1)
    assert '"detail 2"' in one.title
    assert severities(streams_beat(0, 1), streams_beat(1, epoch=-1)) == ["error"]
    assert severities(streams_beat(0, 1), streams_beat(1)) == ["warning"]
    assert severities(streams_beat(0, 1, 2), streams_beat(1, 2)) == ["warning", "error"]
    assert severities(streams_beat(0, 4)) == ["error"]


def test_streams_statuses_that_are_usual_for_a_short_time() -> None:
    assert severities(streams_beat(0, 5), streams_beat(1, 6)) == []
    assert severities(streams_beat(0, 3), streams_beat(9)) == ["note"]
    assert severities(streams_beat(0, 3), streams_beat(9, 3)) == ["note"], "the capture ends"
    assert severities(streams_beat(0, 0), streams_beat(20, 0)) == ["error"]
    assert severities(streams_beat(0, 3), streams_beat(20)) == ["note"]
    assert severities(streams_beat(0, 3), streams_beat(16, 3), streams_beat(20)) == ["warning"]


def test_streams_bodies_that_are_cut_off() -> None:
    cut = {**streams_beat(1), "response_body": '{"member_epoch":3,"status":[{"status_code":'}
    assert severities(cut) == []
    assert severities(streams_beat(0, 1), cut, {**cut, "response_body": None}) == ["error"]


def brokers_of(*brokers: tuple[int, str, int]) -> Row:
    unreached = [{"node_id": node, "host": host, "port": port, "rack": None} for node, host, port in brokers]
    return exchange("Metadata", response_body={"brokers": unreached, "topics": []})


def silent(port: int, *, lasting: int, responses: int = 0, client_ip: str = "10.0.0.5") -> Row:
    """A connection with a request."""
    times = {"time_ns": START_NS, "end_time_ns": START_NS + lasting * SECOND}
    counts = {"requests": 1, "responses": responses, "broker_bytes": 50 * responses, "captured": "both"}
    ends = {"broker_ip": "10.0.0.9", "broker_port": port, "client_ip": client_ip}
    return {**connection(), **ends, **times, **counts}


def unreached(asked: Row, *connections: Row) -> list[Finding]:
    rows = [{**row, "connection_id": place} for place, row in enumerate(connections)]
    return findings_of("unreached-listeners", [asked], connections=rows)


def test_brokers_with_one_address() -> None:
    (one,) = unreached(brokers_of((1, "10.0.0.9", 9092), (2, "10.0.0.9", 9092), (3, "10.0.0.9", 9093)))
    assert (one.severity, one.values["brokers"]) == ("error", [1, 2])
    assert unreached(brokers_of((1, "10.0.0.9", 9092), (2, "10.0.0.9", 9093), (3, "10.0.0.8", 9092))) == []
    assert unreached(brokers_of((1, "10.0.0.9", 9092), (1, "10.0.0.9", 9092))) == [], "a broker that is listed twice"


def test_an_address_that_never_answers() -> None:
    """Unless the capture ends soon after, or it answers others: then the broker is slow."""
    asked = brokers_of((1, "10.0.0.9", 9999))
    (one,) = unreached(asked, silent(9999, lasting=5))
    assert (one.severity, one.values["opening"]) == ("error", "silent")
    assert unreached(asked, silent(9999, lasting=1)) == []
    assert unreached(asked, silent(9999, lasting=5), silent(9999, lasting=5, responses=1, client_ip="10.0.0.6")) == []
    assert unreached(asked, silent(9998, lasting=5)) == [], "it is not advertised"


@pytest.mark.parametrize(("api", "who"), [("BrokerRegistration", "brokers"), ("ControllerRegistration", "controllers")])
def test_an_address_that_a_node_registers(api: str, who: str) -> None:
    """Others learn it from the cluster's metadata log, which is not read."""
    listeners = [{"name": "INTERNAL", "host": "10.0.0.9", "port": 9999, "security_protocol": 0}]
    (one,) = unreached(exchange(api, request_body={"listeners": listeners}), silent(9999, lasting=5))
    assert (one.severity, one.subject["broker"]) == ("error", "10.0.0.9:9999")
    assert f"as advertised by {who}" in one.title
    assert unreached(exchange(api, request_body={"listeners": []}), silent(9999, lasting=5)) == []


def test_a_leader_that_is_named_beside_an_error() -> None:
    """As of the quorum's leader, which nodes ask in Fetch requests."""
    leader = {"node_id": 1, "host": "10.0.0.9", "port": 9999, "rack": None}
    asked = exchange("Fetch", client_id="raft-client-2", response_body={"node_endpoints": [leader]})
    (one,) = unreached(asked, silent(9999, lasting=5))
    assert "as advertised by controllers" in one.title
    asked["client_id"] = "shop"
    assert "as advertised by brokers" in unreached(asked, silent(9999, lasting=5))[0].title


DENIED = 29


def denials(*exchanges: dict[str, Any]) -> list[tuple[Any, ...]]:
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
    assert denials(row) == [("denied", "alice", *resource, 1)]


def test_other_errors() -> None:
    # 3 may be the answer about a topic that must not be described, and is mostly not.
    other = denied("Metadata", {"topics": [{"name": "b", "error_code": 3}]}, code=3, topics=["b"])
    assert "denied" not in [one[0] for one in denials(other)]
    assert denials(denied("Metadata", {"topics": [{"name": "b", "error_code": 5}], "x": 129}, code=5)) == []


def refused_joins(*who: tuple[int, str, str], group: str = "g") -> list[dict[str, Any]]:
    return [
        exchange(
            "JoinGroup", error_code=30, error_count=1, group_id=group, connection_id=number, exchange_id=number,
            client_id=name, client_ip=address,
        )
        for number, name, address in who
    ]  # fmt: skip


def test_who_is_denied_the_same_things_is_one_case() -> None:
    rows = refused_joins((1, "a", "10.0.0.1"), (2, "b", "10.0.0.2"), (3, "a", "10.0.0.1"), (4, "c", "10.0.0.3"))
    other = refused_joins((5, "d", "10.0.0.4"), group="h")
    people = [connection(connection_id=number, principal=name) for number, name in enumerate("ABA", 1)]
    denials = worst_first(findings_of("denied", [*rows, *other], connections=people))
    assert [(one.title, one.count, one.values["clients"]) for one in denials] == [
        ("A, B may not use group g: GROUP_AUTHORIZATION_FAILED for JoinGroup, 3 times", 3, 2),
        ("c at 10.0.0.3 may not use group g: GROUP_AUTHORIZATION_FAILED for JoinGroup, once", 1, 1),
        ("d at 10.0.0.4 may not use group h: GROUP_AUTHORIZATION_FAILED for JoinGroup, once", 1, 1),
    ]
