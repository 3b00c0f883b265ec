"""Every number of an exchange or connection that a command prints can be passed to `decode`."""

from __future__ import annotations

import functools
import html
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkasniff as library
from kafkasniff.analysis.detectors.running import run
from kafkasniff.capture import open_captures
from kafkasniff.cli.environment import Exit
from kafkasniff.engine.inspector import Inspector
from kafkasniff.live.top import TopModel
from kafkasniff.model import Connection, Exchange
from tests.choice import ALL, one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

Object = dict[str, Any]
Sources = tuple[str, ...]

# Errors, broken streams, raw SASL tokens, brokers talking to each other, and two captures as one timeline.
SOURCES: list[Sources] = [
    ("captures/java-errors.pcap",),
    *([(f"captures/{name}.pcap",) for name in ("librdkafka-snaplen-128", "old-raw-sasl", "kraft-2.8")] if ALL else []),
    ("captures/java-2.4.pcap", "captures/old-raw-sasl.pcap"),
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
    assert result.code == Exit.OK
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


def test_problem_lines_of_decode(sources: Sources) -> None:
    for line in decoded(sources):
        if line["type"] == "problem" and "exchange" in line:
            reported = exchange(sources, line["exchange"])
            unanswered = UNANSWERED.match(line["detail"])
            assert unanswered
            assert (int(unanswered["exchange"]), int(unanswered["corr"])) == (line["exchange"], reported.corr)
            assert connection(sources, line["connection"]) == (reported.client, reported.broker)


def test_evidence_of_check(sources: Sources) -> None:
    (answer,) = kafkasniff("check", "--format", "json", *sources).objects
    connections = seen(sources)[1]
    evidence = [one for finding in answer["findings"] for one in finding["evidence"]]
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
            assert reported.time == one["time"]
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


def test_analyze(sources: Sources) -> None:
    rows = kafkasniff("analyze", "latency", "-q", "--by", "connection,api", "--format", "json", *sources).objects
    assert rows
    for row in rows:
        assert seen(sources)[1][row["connection"]].connection_id == row["connection_id"]
    waiting = kafkasniff("analyze", "outstanding", "-q", "--status", "unanswered", "--format", "json", *sources).objects
    for row in waiting:
        reported = exchange(sources, row["exchange"])
        assert (f"{row['client_ip']}:{row['client_port']}", row["broker"]) == connection(sources, row["connection"])
        assert (reported.client, reported.broker) == connection(sources, row["connection"])
        assert (reported.api, reported.corr) == (row["api"], row["correlation_id"])
    text = kafkasniff("analyze", "outstanding", "-q", "--status", "unanswered", *sources, width=200).text
    assert re.findall(r"conn (\d+) +#(\d+)$", text, re.M) == [
        (str(row["connection"]), str(row["exchange"])) for row in waiting
    ]


def test_report(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    # Charts have no numbers of exchanges and take most of the time.
    monkeypatch.setattr("kafkasniff.report.charts.svg_of", lambda spec, label: "")
    pytest.importorskip("vl_convert")
    pytest.importorskip("jinja2")
    page = html.unescape(kafkasniff("report", "-q", "-o", "-", *sources).text)
    ladders = re.findall(r'<details class="ladder".*?</details>', page, re.S)
    assert ladders
    for ladder in ladders:
        client, broker, number = re.search(
            r"<summary><b>(\S+)</b> → <b>(\S+)</b>.*?<small>conn (\d+), ", ladder, re.S
        ).groups()  # type: ignore[union-attr]  # else the test fails here
        assert connection(sources, int(number)) == (client, broker)
        steps = re.findall(r"#(\d+), corr (-?\d+)", ladder)
        assert steps
        for step, corr in steps[::7]:
            reported = exchange(sources, int(step))
            assert (reported.client, reported.broker, reported.corr) == (client, broker, int(corr))
    # Findings that only packets show are not in the page.
    skipped = ("--skip", "transport-trouble,broker-gone,unreached-listeners")
    (answer,) = kafkasniff("check", "--format", "json", *skipped, *sources).objects
    evidence = [one for finding in answer["findings"] for one in finding["evidence"]]
    listed = set(re.findall(r"<li>(?:<a [^>]*>)?(#\d+|conn \d+)\b", page))
    assert {f"#{one['exchange']}" if one["exchange"] else f"conn {one['connection']}" for one in evidence} <= listed


def test_the_library(sources: Sources) -> None:
    read = list(library.read(list(sources)))
    by_number: dict[int, list[Object]] = {}
    for line in decoded(sources):
        if line["type"] in {"request", "response"}:
            by_number.setdefault(line["exchange"], []).append(line)
    assert sorted(one.exchange for one in read) == sorted(by_number)
    for one in read:
        first = one.request or one.response
        assert first is not None
        reported = what(by_number[one.exchange])
        assert (str(first.client), str(first.broker), first.api, first.correlation_id) == reported[:4]
        assert {line["connection"] for line in by_number[one.exchange]} == {one.connection}


def test_top(sources: Sources) -> None:
    _, connections, model = seen(sources)
    for number in list(connections)[::3]:
        detail = model.snapshot(focus=number).detail
        if detail is None or detail.row.client == "":
            continue
        assert connection(sources, number) == (detail.row.client, detail.row.broker)
        for one in detail.recent[:3]:
            assert exchange(sources, one.exchange)[2:4] == (one.api, one.correlation_id)


COMMANDS = [
    ("check", "--fail-on", "never"),
    ("timing", "--by", "connection"),
    ("stats",),
    ("analyze", "outstanding", "--status", "unanswered"),
    ("audit", "--target", "4.0"),
    ("diff", "captures/java-errors.pcap"),
    ("decode", "-q"),
]


def test_hashes_of_connections_are_not_printed(sources: Sources) -> None:
    """They are for joins of tables. By default, each source is tested with half of the commands."""
    hashes = {str(abs(one.connection_id)) for one in seen(sources)[1].values()}
    for command in one_in(2, COMMANDS, SOURCES.index(sources) % 2):
        if command[0] == "diff" and len(sources) > 1:
            continue  # it compares two captures
        text = kafkasniff(*command, *sources, width=200).text
        assert not hashes & set(re.findall(r"\d{12,}", text)), command


PLACES = ("type", "exchange", "connection", "client", "broker", "correlation_id", "first_packet", "capture")


def places(lines: Iterable[Object]) -> set[str]:
    return {json.dumps([line.get(name) for name in PLACES]) for line in lines if line["type"] != "problem"}


@pytest.mark.parametrize(
    "options",
    [
        ("--api", "Fetch,Metadata,ApiVersions"),
        ("--errors",),
        ("--slower-than", "5"),
        ("--client-id", "*1*"),
        ("--since", "+500ms"),
        ("--count", "9"),
        ("--no-records", "--two-pass"),
        ("--jobs", "2"),
        ("--jobs", "3", "--api", "ApiVersions"),
        ("--filter", "connection > 2 and record_count > 0"),
        ("--no-payload", "--memory", "256M"),
    ],
    ids=" ".join,
)
def test_options_do_not_change_numbers(sources: Sources, options: tuple[str, ...]) -> None:
    assert places(decoded(sources, *options)) <= places(decoded(sources))


def test_ports_do_not_renumber_connections(sources: Sources) -> None:
    port = decoded(sources)[0]["broker"].rpartition(":")[2]
    some, numbers = connection_of(decoded(sources, "--port", port)), connection_of(decoded(sources))
    assert some.keys() & numbers.keys()
    assert all(numbers[packet] == number for packet, number in some.items() if packet in numbers)


def connection_of(lines: Iterable[Object]) -> dict[tuple[str | None, int], int]:
    """Connections, by capture and first packet of their messages."""
    return {(line.get("capture"), line["first_packet"]): line["connection"] for line in lines if "first_packet" in line}


def test_a_connection_without_messages_is_explained(sources: Sources) -> None:
    connections = seen(sources)[1]
    for number, one in connections.items():
        if one.verdict != "kafka":
            err = kafkasniff("decode", "--connection", number, *sources).err
            assert f"conn {number}, {one.client} to {one.broker}, " in err
            return
    err = kafkasniff("decode", "--connection", 9999, *sources).err
    assert "there is no conn 9999: the captures have" in err
