"""Every number of an exchange or connection that a command prints can be passed to `decode`."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis.detectors.registry import run
from kafkasniff.cli.environment import Exit
from tests.choice import ALL, one_in
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
    r"^[\d:.]{15}  (\S+) [→←] (\S+) +(?:(\S.*?) +#(\d+) +corr (-?\d+)|SASL token +conn (\d+)) "
    r".*(?:\n    conn (\d+), )?",
    re.M,
)
PLACE = re.compile(r"#(\d+)\b|\bconn (\d+)\b")
NAMES = ("type", "exchange", "connection", "client", "broker", "correlation_id", "api", "time", "capture")

pytestmark = pytest.mark.parametrize(
    "sources", SOURCES, ids=lambda sources: "+".join(Path(one).stem for one in sources)
)


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@functools.cache
def decoded(sources: Sources, *options: str) -> list[Object]:
    """The lines of messages and tokens."""
    result = kafkasniff("decode", "--quiet", "--format", "json", *options, *sources)
    assert result.code in (Exit.OK, Exit.NOTHING)
    return [{name: one.get(name) for name in NAMES} for one in result.objects if one["type"] != "problem"]


def exchange(sources: Sources, number: int) -> Object:
    """The first line of an exchange; `--exchange N` prints this exchange alone."""
    lines = [line for line in decoded(sources) if line["exchange"] == number]
    assert decoded(sources, f"--exchange=#{number}") == lines != []
    return lines[0]


def connection(sources: Sources, number: int) -> tuple[str, str] | None:
    """Client and broker of a connection, which `--connection N` prints alone; None if it has no lines."""
    lines = [line for line in decoded(sources) if line["connection"] == number]
    assert decoded(sources, f"--connection={number}") == lines
    ends = {(line["client"], line["broker"]) for line in lines}
    assert len(ends) <= 1
    return next(iter(ends), None)


def test_text_of_decode(sources: Sources) -> None:
    lines = decoded(sources)
    found = LINE.findall(kafkasniff("decode", "-qv", *sources).text)
    assert len(found) == len(lines)
    for (client, broker, label, number, corr, token, place), line in zip(found, lines, strict=True):
        assert (client, broker) == (line["client"], line["broker"])
        assert token or (int(number), int(corr)) == (line["exchange"], line["correlation_id"])
        assert token or label.split(" v")[0] == (line["api"] or "?")
        assert (token or place) in (str(line["connection"]), "")
    for number in sorted({line["exchange"] for line in lines if line["exchange"]})[::9]:
        exchange(sources, number)
    assert any(place for *_, place in found)


def test_evidence_of_check(sources: Sources) -> None:
    (answer,) = kafkasniff("check", "--format", "json", *sources).objects
    evidence = [one for finding in answer["findings"] for one in finding["evidence"]]
    for one in one_in(4, evidence):
        if one["connection"] is None:
            assert (one["exchange"], one["exchange_id"]) == (None, None), "an attempt to connect"
        elif one["exchange"] is not None:
            line = exchange(sources, one["exchange"])
            assert line["connection"] == one["connection"]
            # Facts of authentication have the time of the connection.
            assert line["time"] >= one["time"]
        else:
            connection(sources, one["connection"])
    shown = {(one["exchange"], None if one["exchange"] else one["connection"]) for one in evidence}
    text = " ".join(kafkasniff("check", "--color", "never", *sources).text.split())
    printed = {tuple(int(number) if number else None for number in found) for found in PLACE.findall(text)}
    assert printed <= shown
    assert bool(printed) == any(one["connection"] for one in evidence)
    by_library = [one for finding in run(sources).findings for one in finding.evidence]
    assert [(one.connection, one.exchange) for one in by_library] == [
        (one["connection"], one["exchange"]) for one in evidence
    ]


def test_timing(sources: Sources) -> None:
    command = ("timing", "--by", "connection", *sources)
    (answer,) = kafkasniff(*command, "--format", "json").objects
    for group in answer["groups"]:
        lines = decoded(sources, f"--connection={group['keys']['connection']}")
        assert group["exchanges"] == len({line["exchange"] for line in lines if line["exchange"]})
    for one in answer["slowest"]:
        line = exchange(sources, one["exchange"])
        assert {name: one[name] for name in ("connection", "client", "broker", "api", "correlation_id")} == {
            name: line[name] for name in ("connection", "client", "broker", "api", "correlation_id")
        }
    text = kafkasniff(*command, width=160).text
    assert re.findall(r"^  conn (\d+) ", text, re.M) == [str(one["keys"]["connection"]) for one in answer["groups"]]
    assert re.findall(r"^ +#(\d+)  ", text, re.M) == [str(one["exchange"]) for one in answer["slowest"]]
