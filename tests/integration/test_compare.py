"""The comparison of a run finds every mistake: a missing or additional message or report, and a wrong value."""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.evidence.compare import Line
from tests.evidence.decoded import Decoded, Entry, objects
from tests.integration import compare, latencies
from tests.integration.run import PROGRAMS, Account, Run

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.root, pytest.mark.xdist_group("broker")]


@pytest.fixture(scope="module")
def decoded(attempt: Run | str) -> dict[str, Decoded]:
    """The lines of each account, for tests that change only reports."""
    return {} if isinstance(attempt, str) else {one.name: Decoded(one.lines, ()) for one in attempt.accounts}


def is_different(account: Account, reports: Sequence[Entry], seen: Decoded) -> bool:
    """Whether the comparison finds these reports wrong; stops at the first difference."""
    return any(compare.differences(dataclasses.replace(account, reports=tuple(reports)), seen))


every_client = pytest.mark.parametrize("name", [program.name for program in PROGRAMS])


@every_client
def test_missing_and_duplicate_messages_are_found(real_run: Run, name: str) -> None:
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
        # Not every place: the client does not log the last responses on a connection that it is about to close.
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
def test_what_no_client_reports_is_found(real_run: Run, decoded: dict[str, Decoded], name: str, kind: str) -> None:
    account = real_run.account(name)
    places = [index for index, entry in enumerate(account.reports) if REPORTS[kind](entry)]
    for place in (places[0], places[-1]):
        reports = account.reports[:place] + account.reports[place + 1 :]
        assert is_different(account, reports, decoded[name])


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
def test_a_wrong_value_is_found(real_run: Run, name: str, change: Any) -> None:
    check, apis, kind, field, changed = change
    account = real_run.account(name)
    lines = list(account.lines)
    for index, line in enumerate(account.lines):
        if line["type"] != kind or line["api"] not in apis.split() or line.get("errors"):
            continue
        wrong = copy.deepcopy(line)
        # A partition for which a fetch returns no records is not compared.
        places = [
            one
            for one in objects(wrong["body"])
            if one.get(field) not in (None, "") and ("high_watermark" not in one or one["records"]["batches"])
        ]
        for place in places:
            place[field] = changed(place[field])
        lines[index] = wrong
        # Members appear with their names and assignments many times; all of them are changed.
        if places and check not in {compare.members, compare.assignments}:
            break
    assert lines != list(account.lines)
    assert any(check(account, Decoded(tuple(lines), ())))


def changed_responses(lines: tuple[Line, ...], change: Callable[[Line], Line]) -> tuple[Line, ...]:
    return tuple(change(line) if line["type"] == "response" else line for line in lines)


@every_client
@pytest.mark.parametrize("latency", [None, -0.1, 10_000.0])
def test_a_latency_above_the_clients_is_found(real_run: Run, name: str, latency: float | None) -> None:
    account = real_run.account(name)
    lines = changed_responses(account.lines, lambda line: {**line, "latency_ms": latency, "duration_ms": 20_000.0})
    wrong = dataclasses.replace(account, lines=lines)
    reported = list(latencies.longer_than_logged(wrong, name))
    assert len(reported) > 100, reported


def test_a_latency_below_the_brokers_is_found(real_run: Run) -> None:
    """Requests that the broker held for longer, above all fetches."""
    listeners = {program.listener for program in PROGRAMS}
    lines = changed_responses(real_run.lines, lambda line: {**line, "latency_ms": line["latency_ms"] / 2 - 1.5})
    assert len(list(latencies.broker_differs(lines, real_run.handled, listeners))) > 100


def test_a_request_missing_or_duplicate_in_the_brokers_log_is_found(real_run: Run) -> None:
    listeners = {program.listener for program in PROGRAMS}
    answered = {line["exchange"] for line in real_run.lines if line["type"] == "response"}
    place = next(
        index
        for index, line in enumerate(real_run.lines)
        if line["type"] == "request" and line["exchange"] in answered and index > 100
    )
    again = {**real_run.lines[place], "exchange": -1}
    reported = tuple(one for one in real_run.handled if one.listener in listeners)
    # An answered request: for the others, either side may have no record of it.
    request = real_run.lines[place]
    key = (latencies.client_port(request), request["api_key"], request["correlation_id"], request["client_id"])
    without = tuple(one for one in reported if key != (one.client_port, one.api_key, one.correlation_id, one.client_id))
    assert len(without) == len(reported) - 1
    for lines, handled in (
        ((*real_run.lines, again), reported),
        (real_run.lines[:place] + real_run.lines[place + 1 :], reported),
        (real_run.lines, without),
    ):
        assert list(latencies.broker_differs(lines, handled, listeners))


@every_client
def test_a_connection_without_decoded_messages_is_found(real_run: Run, name: str) -> None:
    account = real_run.account(name)
    connection = account.lines[0]["connection"]
    lines = tuple(line for line in account.lines if line["connection"] != connection)
    less = dataclasses.replace(account, lines=lines)
    assert list(latencies.connections_differ(less, name))
