"""Findings about rows: who is to blame, what was done instead, and what only looks like trouble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kafkasniff.analysis.detectors import connections
from kafkasniff.analysis.detectors.connections import Identities, identities_of
from kafkasniff.analysis.security import SecurityView
from kafkasniff.model import Connection, Endpoint
from kafkasniff.tables.rows.connections import ConnectionRows, Login
from tests.analysis.detectors.talks import findings_of
from tests.analysis.tables import SECOND, START_NS, Row, connection, exchange, partition

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


def test_the_transaction_is_named() -> None:
    """By the first batch of it, at the last stable offset."""
    written = exchange("Produce", transactional_id="ledger", partitions=[partition(offset=5)], client_id="writer")
    (found,) = findings_of("stuck-stable-offsets", [written, *waiting(1, 9, 5)])
    assert (found.subject["transactional_id"], found.subject["client_id"]) == ("ledger", "writer")
    assert found.values["records"] == 35
