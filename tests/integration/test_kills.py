"""What `kafkasniff live` shows when a client, and then the broker, is killed (SIGKILL)."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cli.console import kafkasniff
from tests.evidence.compare import Line
from tests.evidence.decoded import Decoded
from tests.integration import compare, latencies
from tests.integration.kept_connections import Connection, Place, connections
from tests.integration.kills import GROUP, LAST_WORD, PARTIES, SHORT_WAIT_MS, Kills, outstanding
from tests.integration.latencies import CLOCKS_MS, client_port
from tests.integration.processes import OWN_STATE

pytestmark = [pytest.mark.broker, pytest.mark.root, pytest.mark.xdist_group("broker")]

every_party = pytest.mark.parametrize("party", PARTIES, ids=lambda party: party.name)

KINDS = {"victim": "python", "survivor": "librdkafka", "watcher": "python"}
"""The kind of client of each party (of `client_logs.LOGS`)."""

SOON_NS = 1_000_000_000
"""How long after a kill the kernel may take to end the connections of the killed process."""


def nanoseconds(time: str) -> int:
    """A line's time since 1970."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    return int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()) * 1_000_000_000 + int(fraction)


def messages(run: Kills, kind: str) -> list[Line]:
    return [line for line in run.lines if line["type"] == kind]


def unanswered(lines: tuple[Line, ...]) -> list[Line]:
    """Requests without responses."""
    answered = {line["exchange"] for line in lines if line["type"] == "response"}
    return [line for line in lines if line["type"] == "request" and line["exchange"] not in answered]


def table(run: Kills, name: str) -> list[dict[str, Any]]:
    import pyarrow.dataset

    return pyarrow.dataset.dataset(run.tables / name, format="parquet").to_table().to_pylist()


def place(line: Line) -> Place:
    """Key of a message's connection."""
    return client_port(line), int(line["broker"].rpartition(":")[2])


def place_of_row(row: dict[str, Any]) -> Place:
    """The same key, from a row of the tables."""
    return row["client_port"], row["broker_port"]


def on_the_wire(run: Kills) -> tuple[Connection, ...]:
    return connections(run.kept, frozenset(run.ports.values()))


def connection_at(run: Kills, where: Place, time: int) -> Connection:
    """The latest connection with these ports at this time."""
    return [one for one in on_the_wire(run) if one.place == where and one.begun_ns <= time][-1]


def connection_of(run: Kills, line: Line) -> Connection:
    return connection_at(run, place(line), nanoseconds(line["time"]))


def with_connections_as_made(run: Kills, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Lines where messages that crossed a RST on the wire are assigned to the connection that was reset.

    A segment that the client was about to send when the RST arrived is captured after it. kafkasniff reports it as part
    of another connection whose beginning was not captured.
    """
    numbers: dict[Connection, int] = {}
    found = []
    for line in lines:
        connection = connection_of(run, line)
        number = numbers.setdefault(connection, line["connection"])
        reset = any("R" in flags and time <= nanoseconds(line["time"]) for time, _, flags in connection.marked)
        found.append({**line, "connection": number} if reset else line)
    return tuple(found)


def test_there_was_a_run(killing: Kills | str) -> None:
    assert isinstance(killing, Kills), killing


def test_nothing_is_lost_and_nothing_is_invented(kills_run: Kills) -> None:
    assert kills_run.exit_code == 0
    addresses = {f"127.0.0.1:{port}" for port in kills_run.ports.values()}
    for line in kills_run.lines:
        if line["type"] == "problem":
            # A segment from a closed socket may have a sequence number that is no longer expected.
            if line["kind"] == "connection-rejected":
                # The kill may directly follow a response to ApiVersions; that is one of the causes in the message.
                assert "a broker that stops" in line["detail"]
                continue
            assert line["kind"] in {"request-unanswered", "tcp-rst-ignored"} | OWN_STATE
        else:
            assert line["type"] in {"request", "response"}
            assert line["broker"] in addresses
            assert line["problems"] == []
    assert "0 bytes lost" in kills_run.said


@every_party
def test_client_log_and_kafkasniff_have_the_same_messages(kills_run: Kills, party: Any) -> None:
    account = kills_run.accounts[party.name]
    ours = [one for one in on_the_wire(kills_run) if one.place[1] == kills_run.ports[party.name]]
    seen = Decoded(account.lines, ())
    broken = [one.place[0] for one in ours if one.broken_off]
    assert [*compare.messages(account, seen, broken), *compare.pairs(account, seen)] == []
    assert list(latencies.longer_than_logged(account, KINDS[party.name])) == []
    made = dataclasses.replace(account, lines=with_connections_as_made(kills_run, account.lines))
    silent = [one.place[0] for one in ours if one.silent]
    assert list(latencies.connections_differ(made, KINDS[party.name], silent)) == []


@every_party
def test_requests_without_response_in_the_client_log_are_unanswered(kills_run: Kills, party: Any) -> None:
    """According to the client's own log, except for responses that arrived when the client was killed, idle, or closing
    the connection, and for requests that were never sent."""
    account = kills_run.accounts[party.name]
    reported = Counter((entry["api"], entry["correlation_id"]) for entry in outstanding(account.logged).values())
    ours = Counter((line["api"], line["correlation_id"]) for line in unanswered(account.lines))
    logged, decoded = Counter[Any](), Counter[Any]()
    for entries, found, kind in ((account.logged, logged, "kind"), (account.lines, decoded, "type")):
        found.update((one[kind], one["api"], one["correlation_id"]) for one in entries)

    def only(one: Counter[Any], other: Counter[Any], kind: str) -> Counter[Any]:
        return Counter({key[1:]: count for key, count in (one - other).items() if key[0] == kind})

    assert ours + only(decoded, logged, "response") + only(logged, decoded, "request") == reported
    assert any(api == "Fetch" for api, _ in ours)


def test_each_unanswered_request_is_reported_when_its_connection_ends(kills_run: Kills) -> None:
    """One problem for each, at the packet that ended the connection; none for connections open at the end."""
    reported: dict[int, list[int]] = defaultdict(list)
    for line in messages(kills_run, "problem"):
        if line["kind"] == "request-unanswered":
            assert line["direction"] == "request"
            reported[line["connection"]].append(nanoseconds(line["time"]))
    waiting: dict[int, list[Line]] = defaultdict(list)
    for line in unanswered(kills_run.lines):
        waiting[line["connection"]].append(line)
    assert reported.keys() <= waiting.keys()
    over = 0
    for connection, requests in waiting.items():
        over_at = set(connection_of(kills_run, requests[0]).over_ns)
        if over_at:
            assert len(reported[connection]) == len(requests)
            assert len(set(reported[connection])) == 1
            assert set(reported[connection]) <= over_at
            over += len(requests)
        else:
            assert connection not in reported
    # At least one fetch each by victim, survivor and watcher; the last two wait again at the end.
    assert over >= 3
    assert len(unanswered(kills_run.lines)) >= over + 2


def test_the_tables_show_how_each_exchange_and_connection_ended(kills_run: Kills) -> None:
    exchanges = table(kills_run, "exchanges")
    reported = Counter(line["kind"] for line in messages(kills_run, "problem"))
    statuses = Counter(one["status"] for one in exchanges)
    assert statuses.keys() == {"answered", "unanswered", "open"}
    assert statuses["answered"] == len(messages(kills_run, "response"))
    assert statuses["unanswered"] == reported["request-unanswered"]
    assert statuses["unanswered"] + statuses["open"] == len(unanswered(kills_run.lines))
    restarted = kills_run.times_ns["restarted"][0]
    assert all(one["time_ns"] > restarted for one in exchanges if one["status"] == "open")
    assert all(one["problems"] == ["request-unanswered"] for one in exchanges if one["status"] == "unanswered")

    rows = table(kills_run, "connections")
    assert len(rows) == len({line["connection"] for line in kills_run.lines if line["connection"] is not None})
    for one in rows:
        found = connection_at(kills_run, place_of_row(one), one["time_ns"]).marked
        finished = {by_client for _, by_client, flags in found if "F" in flags}
        if finished == {True, False}:
            assert one["ended"] in {"fin", "rst"}  # a RST may come before the second FIN, or after it
        elif any("R" in flags for _, _, flags in found):
            assert one["ended"] == "rst"
        else:
            assert one["ended"] == "end"
        of_it = [exchange for exchange in exchanges if exchange["connection_id"] == one["connection_id"]]
        assert one["verdict"] == "kafka"
        assert (one["requests"], one["responses"]) == (
            len(of_it),
            sum(exchange["status"] == "answered" for exchange in of_it),
        )
        assert one["unanswered"] == one["requests"] - one["responses"]


def test_the_kernel_ends_the_connections_of_a_killed_client(kills_run: Kills) -> None:
    """Nothing arrives from it afterwards."""
    before, after = kills_run.times_ns["client-killed"]
    lines = kills_run.accounts["victim"].lines
    assert all(nanoseconds(line["time"]) < after for line in lines if line["type"] == "request")
    killed = 0
    for one in {connection_of(kills_run, line) for line in lines}:
        closed = [time for time, by_client, flags in one.marked if by_client and set("FR") & set(flags)]
        if min(closed) > before:
            killed += 1
            assert min(closed) < after + SOON_NS
    assert killed >= 3  # connections: the member's fetches, its coordinator, the reader's fetches


def test_the_broker_answers_a_fetch_of_a_killed_client(kills_run: Kills) -> None:
    """A broker does not read from a connection while it handles a request: it finds the client gone when it
    responds."""
    _, killed = kills_run.times_ns["client-killed"]
    late = [
        line
        for line in kills_run.accounts["victim"].lines
        if line["type"] == "response" and nanoseconds(line["time"]) > killed + SOON_NS // 10
    ]
    assert [(line["api"], line["client_id"]) for line in late] == [("Fetch", "victim")]
    assert late[0]["latency_ms"] >= SHORT_WAIT_MS - CLOCKS_MS
    time = nanoseconds(late[0]["time"])
    rows = [one for one in table(kills_run, "connections") if place_of_row(one) == place(late[0])]
    row = max((one for one in rows if one["time_ns"] <= time), key=lambda one: int(one["time_ns"]))
    assert (row["ended"], row["unanswered"]) == ("rst", 0)
    assert row["end_time_ns"] >= time


def test_an_unanswered_fetch_of_a_killed_client(kills_run: Kills) -> None:
    """The other fetch is held for longer than the broker lives."""
    waiting = unanswered(kills_run.accounts["victim"].lines)
    assert {line["client_id"] for line in waiting} == {"victim-reader"}
    reported = [
        nanoseconds(line["time"])
        for line in messages(kills_run, "problem")
        if line["kind"] == "request-unanswered" and line["connection"] == waiting[0]["connection"]
    ]
    before, after = kills_run.times_ns["broker-killed"]
    assert len(reported) == len(waiting)
    assert all(before < time < after + SOON_NS for time in reported)


def test_the_group_continues_without_its_killed_member(kills_run: Kills) -> None:
    """The member did not leave: the coordinator notices when its session expires, and informs the other by
    heartbeat."""
    _, killed = kills_run.times_ns["client-killed"]
    survivor, victim = (Decoded(kills_run.accounts[name].lines, ()) for name in ("survivor", "victim"))
    assert victim.messages("LeaveGroup", "request") == []
    names = [one["member_id"] for one in kills_run.accounts["victim"].reports if one["kind"] == "assigned"]
    joined = [line for line in survivor.messages("JoinGroup", "response") if not line["errors"]]
    with_it = [line for line in joined if nanoseconds(line["time"]) < killed]
    without = [line for line in joined if nanoseconds(line["time"]) > killed]
    assert {one["member_id"] for one in with_it[-1]["body"]["members"]} > set(names)
    assert {one["member_id"] for one in without[0]["body"]["members"]} == {without[0]["body"]["member_id"]}
    assert without[0]["body"]["generation_id"] == with_it[-1]["body"]["generation_id"] + 1
    reported = [
        line
        for line in survivor.messages("Heartbeat", "response")
        if nanoseconds(line["time"]) > killed and [one["name"] for one in line["errors"]] == ["REBALANCE_IN_PROGRESS"]
    ]
    assert reported
    assert nanoseconds(reported[0]["time"]) < nanoseconds(without[0]["time"])
    assert survivor.assignments("survivor")[-1] == {"vigil-0", "vigil-1"}
    assert {line["body"]["group_id"] for line in survivor.messages("JoinGroup", "request")} == {GROUP}


def test_a_killed_broker_ends_every_connection_and_sends_nothing_more(kills_run: Kills) -> None:
    before, after = kills_run.times_ns["broker-killed"]
    restarted, _ = kills_run.times_ns["restarted"]
    for line in kills_run.lines:
        if line["type"] != "problem":
            assert not after + SOON_NS // 2 < nanoseconds(line["time"]) < restarted
    connections = [one for one in table(kills_run, "connections") if one["time_ns"] < before]
    still = [one for one in connections if one["end_time_ns"] > before]
    assert {one["broker_port"] for one in still} == set(kills_run.ports.values())
    for one in connections:
        assert one["ended"] in {"fin", "rst"}
        assert one["end_time_ns"] < after + SOON_NS


def test_refused_connection_attempts_are_not_conversations(kills_run: Kills) -> None:
    """A SYN that is answered with a RST yields no messages, problems or rows, and neither does a connection that is
    reset before anything is sent."""
    killed, _ = kills_run.times_ns["broker-killed"]
    refused = {one for one in on_the_wire(kills_run) if one.refused}
    assert len(refused) >= 2
    assert all(one.begun_ns > killed for one in refused)
    rows = table(kills_run, "connections")
    ours = {connection_at(kills_run, place_of_row(one), one["time_ns"]) for one in rows}
    ours |= {connection_of(kills_run, line) for line in kills_run.lines if line["type"] != "problem"}
    assert not ours & refused
    assert not [one for one in ours if one.silent]


def test_connections_to_the_restarted_broker_are_new(kills_run: Kills) -> None:
    restarted, _ = kills_run.times_ns["restarted"]
    for name in ("survivor", "watcher"):
        lines = kills_run.accounts[name].lines
        old = {line["connection"] for line in lines if nanoseconds(line["time"]) < restarted}
        new = {line["connection"] for line in lines if nanoseconds(line["time"]) > restarted}
        assert new
        assert old
        assert max(old) < min(new)
        for connection in new:
            first = next(line for line in lines if line["connection"] == connection)
            assert (first["type"], first["api"]) == ("request", "ApiVersions")


def test_messages_after_the_restart_are_decoded(kills_run: Kills) -> None:
    restarted, _ = kills_run.times_ns["restarted"]
    everything = Decoded(kills_run.lines, ())
    produced = {(one.topic, one.partition, one.offset, one.record["value"]) for one in everything.produced}
    assert produced == {
        ("vigil", one["partition"], one["offset"], one["value"])
        for one in kills_run.accounts["survivor"].reports
        if one["kind"] == "produced"
    }
    assert {value for *_, value in produced} == {LAST_WORD}
    for name in ("survivor", "watcher"):
        account = kills_run.accounts[name]
        consumed = Counter(
            (one.partition, one.record["value"]) for one in Decoded(account.lines, ()).consumed if one.topic == "vigil"
        )
        reported = Counter((one["partition"], one["value"]) for one in account.reports if one["kind"] == "consumed")
        assert consumed == reported
    assert all(nanoseconds(line["time"]) > restarted for line in everything.messages("Produce", "request"))


def test_the_broker_logs_the_same_requests(kills_run: Kills) -> None:
    """The requests that it answered: its log ends when it is killed. At the end of the capture, no client sends any."""
    listeners = {party.listener for party in PARTIES}
    differences = list(latencies.broker_differs(kills_run.lines, kills_run.handled, listeners))
    assert [one for one in differences if not one.startswith("answered, but not logged")] == []
    assert len(differences) <= 1  # killed between its answer and its log


def test_the_saved_packets_decode_to_the_same_messages(kills_run: Kills) -> None:
    result = kafkasniff("decode", "--quiet", "--format", "json", kills_run.kept)
    assert (result.code, result.err) == (0, "")

    def facts(lines: Any) -> Counter[tuple[Any, ...]]:
        return Counter(
            ("problem", line["kind"], line["connection"], line["time"], line["packet"])
            if line["type"] == "problem"
            else (line["type"], line["exchange"], line["connection"], line["api"], line["correlation_id"], line["time"])
            for line in lines
            if line.get("kind") not in OWN_STATE
        )

    assert facts(result.objects) == facts(kills_run.lines)
