"""The comparison of a run finds out whatever is wrong: a message or report too many or too few, a wrong value."""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tests.evidence.compare import Line
from tests.evidence.decoded import Decoded, Entry, objects
from tests.integration import compare, latencies
from tests.integration.run import PROGRAMS, Run

pytestmark = [pytest.mark.broker, pytest.mark.root, pytest.mark.xdist_group("broker")]

every_client = pytest.mark.parametrize("name", [program.name for program in PROGRAMS])


@every_client
def test_a_message_that_is_missing_or_there_twice(real_run: Run, name: str) -> None:
    account = real_run.account(name)
    lines = account.lines
    kinds = defaultdict(list)
    for index, line in enumerate(lines):
        kinds[line["api"], line["type"]].append(index)
    assert len(kinds) > 30

    def found(*changed: Line) -> bool:
        seen = Decoded(changed, ())
        return any(next(check(account, seen), None) for check in (compare.messages, compare.pairs))

    assert not found(*lines)
    for kind, places in kinds.items():
        assert all(found(*lines[: place + 1], *lines[place:]) for place in places[:3]), kind
        # Not each: the client does not log the last answers on a connection that it is about to close.
        assert any(found(*lines[:place], *lines[place + 1 :]) for place in places), kind


REPORTS: dict[str, Callable[[Entry], Any]] = {
    "created": lambda entry: entry["kind"] == "created",
    "produced": lambda entry: entry["kind"] == "produced",
    "consumed": lambda entry: entry["kind"] == "consumed",
    "committed": lambda entry: entry["kind"] == "committed",
    "left": lambda entry: entry["kind"] == "left",
    "transaction": lambda entry: entry["kind"] == "transaction",
    "refused": lambda entry: entry["kind"] == "failed" and "produce" in entry["operation"] and entry["error_code"],
}


@every_client
@pytest.mark.parametrize("kind", REPORTS)
def test_what_no_client_tells(real_run: Run, name: str, kind: str) -> None:
    account = real_run.account(name)
    places = [index for index, entry in enumerate(account.reports) if REPORTS[kind](entry)]
    for place in (places[0], places[-1]):
        reports = account.reports[:place] + account.reports[place + 1 :]
        assert compare.differences(dataclasses.replace(account, reports=reports))


@every_client
@pytest.mark.parametrize("number", ["1", "2"])
def test_a_member_of_a_group_that_nobody_tells_of(real_run: Run, name: str, number: str) -> None:
    account = real_run.account(name)
    reports = tuple(
        entry
        for entry in account.reports
        if entry["kind"] not in {"assigned", "revoked"} or not entry["client_id"].endswith(number)
    )
    assert len(account.reports) - len(reports) >= 2
    assert compare.differences(dataclasses.replace(account, reports=reports))


CHANGES: list[tuple[Any, str, str, str, Callable[[Any], Any]]] = [
    (compare.software, "ApiVersions", "request", "client_software_version", lambda value: "0.0.1"),
    (compare.topics, "CreateTopics", "request", "num_partitions", lambda value: value + 1),
    (compare.topics, "CreateTopics", "response", "name", lambda value: value + "x"),
    (compare.produced, "Produce", "request", "value", lambda value: "another value"),
    (compare.produced, "Produce", "request", "key", lambda value: "another key"),
    (compare.produced, "Produce", "request", "timestamp", lambda value: value + 1),
    (compare.produced, "Produce", "request", "headers", lambda value: [{"key": "another", "value": "header"}]),
    (compare.produced, "Produce", "request", "index", lambda value: value + 7),
    (compare.produced, "Produce", "response", "base_offset", lambda value: value + 1000),
    (compare.consumed, "Fetch", "response", "value", lambda value: "another value"),
    (compare.consumed, "Fetch", "response", "timestamp", lambda value: value + 1),
    (compare.consumed, "Fetch", "response", "offset", lambda value: value + 1000),
    (compare.consumed, "Fetch", "response", "partition_index", lambda value: value + 7),
    (compare.consumed, "Fetch", "response", "headers", lambda value: [{"key": "another", "value": "header"}]),
    (compare.members, "Heartbeat ConsumerGroupHeartbeat", "request", "member_id", lambda value: "somebody"),
    (compare.assignments, "SyncGroup ConsumerGroupHeartbeat", "response", "assignment", lambda value: None),
    (compare.commits, "OffsetCommit", "request", "committed_offset", lambda value: value + 1),
    (compare.commits, "OffsetCommit", "request", "partition_index", lambda value: value + 7),
    (compare.commits, "OffsetCommit", "request", "group_id", lambda value: "another"),
    (compare.transactions, "EndTxn", "request", "committed", lambda value: not value),
    (compare.transactions, "EndTxn", "request", "transactional_id", lambda value: "another"),
]


@every_client
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[1].split()[0]}-{change[2]}-{change[3]}")
def test_a_value_that_is_wrong(real_run: Run, name: str, change: Any) -> None:
    check, apis, kind, field, changed = change
    account = real_run.account(name)
    lines = list(account.lines)
    for index, line in enumerate(account.lines):
        if line["type"] != kind or line["api"] not in apis.split() or line.get("errors"):
            continue
        wrong = copy.deepcopy(line)
        # A partition of which a fetch brings no record is not compared.
        places = [
            one
            for one in objects(wrong["body"])
            if one.get(field) not in (None, "") and ("high_watermark" not in one or one["records"]["batches"])
        ]
        for place in places:
            place[field] = changed(place[field])
        lines[index] = wrong
        # Members name themselves, and are told their assignment, many times: all of it is changed.
        if places and check not in {compare.members, compare.assignments}:
            break
    assert lines != list(account.lines)
    assert list(check(account, Decoded(tuple(lines), ())))


@every_client
def test_an_error_that_is_wrong(real_run: Run, name: str) -> None:
    account = real_run.account(name)
    lines = copy.deepcopy(account.lines)
    wrong = next(line for line in lines if line.get("errors") and line["errors"][0]["name"] == "MESSAGE_TOO_LARGE")
    wrong["errors"][0] |= {"code": 11, "name": "NONE_SUCH"}
    assert list(compare.errors(account, Decoded(lines, ())))


@pytest.mark.parametrize("name", ["java", "python"])  # librdkafka does not tell its programs
@pytest.mark.parametrize("wrong_by", [-1, 100])
def test_a_generation_that_is_wrong(real_run: Run, name: str, wrong_by: int) -> None:
    account = real_run.account(name)
    lines = copy.deepcopy(account.lines)
    for one in (one for line in lines for one in objects(line["body"])):
        for field in ("generation_id", "member_epoch"):
            if one.get(field, 0) > 0:
                one[field] += wrong_by
    assert list(compare.generations(account, Decoded(lines, ())))


@every_client
def test_a_record_that_a_report_names_is_looked_for(real_run: Run, name: str) -> None:
    """The checks of the sidecars are asked too."""
    account = real_run.account(name)
    told = next(entry for entry in account.reports if entry["kind"] == "produced")
    wrong = dataclasses.replace(account, reports=({**told, "value": "another value"},))
    assert list(compare.each_report(wrong, Decoded(account.lines, ())))


def changed_responses(lines: tuple[Line, ...], change: Callable[[Line], Line]) -> tuple[Line, ...]:
    return tuple(change(line) if line["type"] == "response" else line for line in lines)


@every_client
@pytest.mark.parametrize("latency", [None, -0.1, 10_000.0])
def test_a_latency_that_the_client_would_have_noticed(real_run: Run, name: str, latency: float | None) -> None:
    account = real_run.account(name)
    lines = changed_responses(account.lines, lambda line: {**line, "latency_ms": latency, "duration_ms": 20_000.0})
    wrong = dataclasses.replace(account, lines=lines)
    told = list(latencies.longer_than_told(wrong, name))
    assert len(told) > 100, told


def test_a_latency_that_the_broker_would_have_noticed(real_run: Run) -> None:
    """Those of all requests that it had for longer: fetches above all."""
    listeners = {program.listener for program in PROGRAMS}
    lines = changed_responses(real_run.lines, lambda line: {**line, "latency_ms": line["latency_ms"] / 2 - 1.5})
    assert len(list(latencies.broker_differs(lines, real_run.handled, listeners))) > 100


def test_a_request_that_the_broker_does_not_tell_of_or_that_is_there_twice(real_run: Run) -> None:
    listeners = {program.listener for program in PROGRAMS}
    answered = {line["exchange"] for line in real_run.lines if line["type"] == "response"}
    place = next(
        index
        for index, line in enumerate(real_run.lines)
        if line["type"] == "request" and line["exchange"] in answered and index > 100
    )
    again = {**real_run.lines[place], "exchange": -1}
    told = tuple(one for one in real_run.handled if one.listener in listeners)
    # One that was answered: of the others either may be silent.
    request = real_run.lines[place]
    key = (latencies.client_port(request), request["api_key"], request["correlation_id"], request["client_id"])
    untold = tuple(one for one in told if key != (one.client_port, one.api_key, one.correlation_id, one.client_id))
    assert len(untold) == len(told) - 1
    for lines, handled in (
        ((*real_run.lines, again), told),
        (real_run.lines[:place] + real_run.lines[place + 1 :], told),
        (real_run.lines, untold),
    ):
        assert list(latencies.broker_differs(lines, handled, listeners))


def test_a_port_that_comes_back(real_run: Run) -> None:
    """The same port, API, number and client on another connection: the broker has to tell of it as often."""
    listeners = {program.listener for program in PROGRAMS}
    lines, told = real_run.lines, real_run.handled
    answer = next(line for line in reversed(lines) if line["type"] == "response")
    both = [line for line in lines if line.get("exchange") == answer["exchange"]]
    again = tuple({**line, "exchange": -1, "connection": -1} for line in both)
    key = (latencies.client_port(answer), answer["api_key"], answer["correlation_id"], answer["client_id"])
    of_it = tuple(one for one in told if key == (one.client_port, one.api_key, one.correlation_id, one.client_id))
    assert len(both) == 2
    assert len(of_it) == 1
    assert list(latencies.broker_differs((*lines, *again), told, listeners))
    assert list(latencies.broker_differs(lines, (*told, *of_it), listeners))
    assert list(latencies.broker_differs((*lines, *again), (*told, *of_it), listeners)) == []


@every_client
def test_a_connection_that_is_no_other(real_run: Run, name: str) -> None:
    """What the client did on two connections, decoded as if it had been one."""
    account = real_run.account(name)
    ids = {"java": "java-idle", "librdkafka": "rdkafka-idle", "python": "python-idle"}
    lines = tuple(
        {**line, "connection": -1, "client": "127.0.0.1:1"} if line["client_id"] == ids[name] else line
        for line in account.lines
    )
    assert list(latencies.connections_differ(dataclasses.replace(account, lines=lines), name))


@every_client
def test_a_connection_of_which_nothing_was_decoded(real_run: Run, name: str) -> None:
    """It is missed, unless there was one on the wire on which the client said nothing."""
    account = real_run.account(name)
    port, connection = latencies.client_port(account.lines[0]), account.lines[0]["connection"]
    lines = tuple(line for line in account.lines if line["connection"] != connection)
    less = dataclasses.replace(account, lines=lines)
    assert list(latencies.connections_differ(less, name))
    assert list(latencies.connections_differ(less, name, [port])) == []
    assert list(latencies.connections_differ(account, name, [port])) == []
    twice = dataclasses.replace(account, stderr=account.stderr + account.stderr)
    assert list(latencies.connections_differ(twice, name, [port]))
    if name == "python":  # its log names ports
        assert list(latencies.connections_differ(less, name, [port + 1]))


def test_a_request_that_never_left(real_run: Run) -> None:
    """Nobody misses the last one that was logged on a connection that its peer broke off; any other is missed."""
    account = real_run.account("python")
    port = latencies.client_port(account.lines[0])
    ids = [one["correlation_id"] for one in account.logged if one["client_port"] == port and one["kind"] == "request"]
    assert len(ids) > 1

    def found(without: int, *broken: int) -> list[str]:
        lines = tuple(
            line for line in account.lines if (latencies.client_port(line), line["correlation_id"]) != (port, without)
        )
        logged = tuple(
            one
            for one in account.logged
            if one["kind"] == "request" or (one["client_port"], one["correlation_id"]) != (port, without)
        )
        return list(compare.messages(dataclasses.replace(account, logged=logged), Decoded(lines, ()), broken))

    assert found(-1) == []
    assert found(ids[-1])
    assert found(ids[-1], port) == []
    assert found(ids[-1], port + 1)
    assert found(ids[0], port)
