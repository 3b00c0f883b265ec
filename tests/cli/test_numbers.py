"""Every number of an exchange or connection that a command prints can be passed to `decode`."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkasniff.analysis.detectors.running import run
from kafkasniff.capture import open_captures
from kafkasniff.cli.environment import Exit
from kafkasniff.engine.inspector import Inspector
from kafkasniff.live.top import TopModel
from kafkasniff.model import Connection, Exchange
from tests.choice import ALL
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

Object = dict[str, Any]
Sources = tuple[str, ...]

# Errors, broken streams, raw SASL tokens, brokers talking to each other, and two captures as one timeline.
SOURCES: list[Sources] = [
    ("captures/java-errors.pcap", "captures/old-raw-sasl.pcap"),
    *([(f"captures/{name}.pcap",) for name in ("librdkafka-snaplen-128", "kraft-2.8")] if ALL else []),
]
LINE = re.compile(
    r"^[\d:.]{15}  (?P<client>\S+) [→←] (?P<broker>\S+) +(?P<label>\S.*?) +#(?P<exchange>\d+) +corr (?P<corr>-?\d+) "
)
TOKEN = re.compile(r"^[\d:.]{15}  (?P<client>\S+) [→←] (?P<broker>\S+) +SASL token +conn (?P<connection>\d+) ")
STREAM_PROBLEM = re.compile(r"^[\d:.]{15} .*[a-z]: .*\((?:.*, )?conn (?P<connection>\d+)(?:, |\))")
UNANSWERED = re.compile(r"#(?P<exchange>\d+) (?P<api>\w+) v(?P<version>\d+) corr (?P<corr>-?\d+): ")
PLACE = re.compile(r"#(?P<exchange>\d+)\b|\bconn (?P<connection>\d+)\b")

pytestmark = pytest.mark.parametrize(
    "sources", SOURCES, ids=lambda sources: "+".join(Path(one).stem for one in sources)
)


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


class What(NamedTuple):
    """Identity of an exchange without its number."""

    client: str
    broker: str
    api: str | None
    corr: int | None
    time: str
    """The time of its first message."""


@functools.cache
def decoded(sources: Sources, *options: str) -> list[Object]:
    result = kafkasniff("decode", "--quiet", "--format", "json", *options, *sources)
    assert result.code == (Exit.OK if any(one["type"] != "problem" for one in result.objects) else Exit.NOTHING)
    return result.objects


def what(lines: Iterable[Object]) -> What:
    """From the lines of one exchange."""
    first = next(iter(lines))
    return What(first["client"], first["broker"], first["api"], first["correlation_id"], first["time"])


@functools.cache
def exchange(sources: Sources, number: int) -> What:
    """Output of `decode --exchange N`, which is this exchange alone."""
    lines = [line for line in decoded(sources, "--exchange", str(number)) if line["type"] in {"request", "response"}]
    assert {line["exchange"] for line in lines} == {number}
    assert len({(line["connection"], line["client"], line["broker"], line["correlation_id"]) for line in lines}) == 1
    return what(lines)


@functools.cache
def connection(sources: Sources, number: int) -> tuple[str, str] | None:
    """Client and broker of all lines of `decode --connection N`; None if it has no lines."""
    lines = [line for line in decoded(sources, "--connection", str(number)) if line["type"] != "problem"]
    assert {line["connection"] for line in lines} <= {number}
    ends = {(line["client"], line["broker"]) for line in lines}
    assert len(ends) <= 1
    return next(iter(ends), None)


@functools.cache
def seen(sources: Sources) -> tuple[list[Exchange], dict[int, Connection], TopModel]:
    """The same from the library's inspector and in the model of `live --top`."""
    inspector, model = Inspector(connections=True), TopModel()
    exchanges, connections = [], {}

    def take(events: Iterable[Any]) -> None:
        for event in events:
            model.take(event)
            if isinstance(event, Exchange):
                exchanges.append(event)
            elif isinstance(event, Connection):
                connections[event.connection] = event

    with open_captures(sources) as source:
        for batch in source:
            take(inspector.feed(batch))
    take(inspector.close())
    return exchanges, connections, model


def test_text_of_decode(sources: Sources) -> None:
    """Each line's number selects its exchange, all numbers at once and some of them alone."""
    shown = kafkasniff("decode", "-q", *sources).lines
    found = {int(match["exchange"]): match for line in shown if (match := LINE.match(line))}
    everything = decoded(sources)
    assert sorted(found) == sorted({line["exchange"] for line in everything if "type" in line and "exchange" in line})
    pasted = decoded(sources, "--exchange", ",".join(f"#{number}" for number in found))
    messages = [line for line in everything if line["type"] in {"request", "response"}]
    assert [line for line in pasted if line["type"] in {"request", "response"}] == messages
    of_all: dict[int, list[Object]] = {}
    for line in messages:
        of_all.setdefault(line["exchange"], []).append(line)
    for number, match in found.items():
        reported = what(of_all[number])
        assert (match["client"], match["broker"], int(match["corr"])) == (
            reported.client,
            reported.broker,
            reported.corr,
        )
        assert match["label"].split(" v")[0] == (reported.api or "?")
    for number in list(found)[::9]:
        assert exchange(sources, number) == what(of_all[number])


def test_connection_numbers_in_text_of_decode(sources: Sources) -> None:
    """Connection numbers below messages, tokens and problems."""
    shown = kafkasniff("decode", "-qv", *sources).lines
    checked = 0
    for line, below in zip(shown, [*shown[1:], ""], strict=True):
        match = LINE.match(line)
        place = re.match(r" {4}conn (\d+), packets? ", below)
        if match and place:
            assert connection(sources, int(place[1])) == (match["client"], match["broker"])
            checked += 1
        if token := TOKEN.match(line):
            assert connection(sources, int(token["connection"])) == (token["client"], token["broker"])
            checked += 1
        if problem := STREAM_PROBLEM.match(line):
            assert int(problem["connection"]) in seen(sources)[1]
        if without := UNANSWERED.search(line):
            reported = exchange(sources, int(without["exchange"]))
            assert (reported.api, reported.corr) == (without["api"], int(without["corr"]))
    assert checked > 5


def test_evidence_of_check(sources: Sources) -> None:
    (answer,) = kafkasniff("check", "--format", "json", *sources).objects
    connections = seen(sources)[1]
    evidence = [one for finding in answer["findings"] for one in finding["evidence"]]
    of_connections = [
        one
        for finding in answer["findings"]
        if finding["detector"].startswith("plaintext-")
        for one in finding["evidence"]
    ]
    for one in evidence:
        if one["connection"] is None:
            assert (one["exchange"], one["exchange_id"]) == (None, None)  # an attempt to connect
            continue
        assert connections[one["connection"]].connection_id == one["connection_id"]
        if one["exchange"] is None:
            assert one["exchange_id"] is None
            ends = connection(sources, one["connection"])
            client, broker = connections[one["connection"]].client, connections[one["connection"]].broker
            assert ends in {None, (str(client), str(broker))}
        else:
            reported = exchange(sources, one["exchange"])
            assert (reported.client, reported.broker) == connection(sources, one["connection"])
            # Facts of authentication have the time of the connection.
            assert reported.time == one["time"] or (one["time"] < reported.time and one in of_connections)
    shown = {(one["exchange"], None if one["exchange"] else one["connection"]) for one in evidence}
    text = " ".join(kafkasniff("check", "--color", "never", *sources).text.split())
    printed = [
        tuple(None if number is None else int(number) for number in found.groups()) for found in PLACE.finditer(text)
    ]
    assert set(printed) <= shown
    assert bool(printed) == any(one["connection"] for one in evidence)
    by_library = run(sources)
    assert [
        (one.connection, one.exchange) for finding in by_library.findings for one in finding.evidence
    ] == [(one["connection"], one["exchange"]) for one in evidence]  # fmt: skip


def test_timing(sources: Sources) -> None:
    (answer,) = kafkasniff("timing", "--by", "connection", "--format", "json", *sources).objects
    connections = seen(sources)[1]
    for group in answer["groups"]:
        number = group["keys"]["connection"]
        assert connections[number].connection_id == group["keys"]["connection_id"]
        assert group["exchanges"] == len(
            {line["exchange"] for line in decoded(sources, "--connection", str(number)) if "exchange" in line}
        )
    for one in answer["slowest"]:
        reported = exchange(sources, one["exchange"])
        assert (one["client"], one["broker"], one["api"], one["correlation_id"]) == reported[:4]
        assert connection(sources, one["connection"]) == (one["client"], one["broker"])
    text = kafkasniff("timing", "--by", "connection", *sources, width=160).text
    assert re.findall(r"^  conn (\d+) ", text, re.M) == [str(one["keys"]["connection"]) for one in answer["groups"]]
    slowest = re.findall(r"^ +#(\d+)  (\S+) v", text, re.M)
    assert slowest == [(str(one["exchange"]), one["api"]) for one in answer["slowest"]]
    number = answer["slowest"][0]["exchange"]
    head, ends, *_ = kafkasniff("timing", *sources, "--exchange", number, width=160).lines
    reported = exchange(sources, number)
    assert re.fullmatch(rf"#{number}  {reported.api} v\d+ of .*, conn {answer['slowest'][0]['connection']}", head)
    assert re.fullmatch(rf"{reported.client} to {reported.broker}( \(broker \d+\))?, corr {reported.corr}", ends)


PLACES = ("type", "exchange", "connection", "client", "broker", "correlation_id", "first_packet", "capture")


def places(lines: Iterable[Object]) -> set[str]:
    return {json.dumps([line.get(name) for name in PLACES]) for line in lines if line["type"] != "problem"}


@pytest.mark.parametrize(
    "options",
    [
        ("--api", "Fetch,Metadata,ApiVersions"),
        ("--errors",),
        ("--client-id", "*1*"),
        ("--no-records", "--two-pass"),
        ("--jobs", "3", "--api", "ApiVersions"),
        ("--filter", "connection > 2 and record_count > 0"),
    ],
    ids=" ".join,
)
def test_options_do_not_change_numbers(sources: Sources, options: tuple[str, ...]) -> None:
    assert places(decoded(sources, *options)) <= places(decoded(sources))
