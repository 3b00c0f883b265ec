"""Findings as text: the heading, evidence grouped by its notes, and how to look at it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.detectors import Detectors, Evidence, Finding
from kafkasniff.cli.render.check_text import SHOWN, check_text, finding_object, headline, list_objects, list_text
from kafkasniff.text.printable import display_width

NOON = 1_795_003_200 * 10**9


def finding(*evidence: Evidence, severity: Any = "error", title: str = "it is wrong", **values: Any) -> Finding:
    fields: dict[str, Any] = {
        "detector": "crafted",
        "meaning": "what it means",
        "advice": "do something",
        "subject": {},
        "count": len(evidence),
        "first": None,
        "last": None,
        **values,
    }
    return Finding(severity=severity, title=title, evidence=evidence, **fields)


def at(exchange: int | None, note: str = "", connection: int | None = 1) -> Evidence:
    return Evidence(9, 8, NOON, note, connection, exchange)


def shown(
    *findings: Finding, captures: tuple[str, ...] = ("a.pcap",), width: int = 90, coloured: bool = False
) -> list[str]:
    text = check_text(findings, "a.pcap", captures=captures, width=width, coloured=coloured)
    return text.splitlines()


@pytest.mark.parametrize(
    ("severities", "text"),
    [
        ([], ""),
        (["note"], "1 note"),
        (["note", "error", "note", "warning"], "1 error, 1 warning, 2 notes"),
        (["error"] * 1200, "1,200 errors"),
    ],
)
def test_headlines(severities: list[str], text: str) -> None:
    assert headline([finding(severity=severity) for severity in severities]) == text


def test_a_finding() -> None:
    one = finding(at(3), at(5), first=NOON, last=NOON + 1_500_000_000)
    assert shown(one) == [
        "1 error in a.pcap",
        "",
        "error    it is wrong",
        "         what it means",
        "         Try: do something",
        "         crafted: 2026-11-18 12:00:00.000 to 12:00:01.500 UTC; #3, #5",
        "",
        "To look at #N: kafkasniff decode -v a.pcap --exchange N",
    ]


def seen(*evidence: Evidence, captures: tuple[str, ...] = ("a.pcap",), **values: Any) -> str:
    lines = shown(finding(*evidence, **values), captures=captures, width=400)
    return next(line for line in lines if "crafted: " in line).split("crafted: ")[1]


def test_evidence_is_grouped_by_its_notes() -> None:
    assert seen(at(1, "X"), at(2, "Y"), at(3, "X")) == "#1, #3 (X); #2 (Y)"
    # A note that all share and that the title says is not repeated.
    assert seen(at(1, "X"), at(2, "X"), title="error X") == "#1, #2"
    assert seen(at(1), at(1), at(1)) == "#1 (3 times)"


def test_only_so_much_evidence() -> None:
    """But a place for each of the first notes."""
    assert seen(*(at(number) for number in range(20))) == "#0, #1, #2, #3, #4 and 15 more"
    notes = [at(number, f"note {number}") for number in range(SHOWN + 2)]
    assert seen(*notes).endswith("(note 4); and 2 more")
    assert seen(at(1), count=7) == "#1; and more"
    assert seen() == "evidence not kept"


@pytest.mark.parametrize(
    ("evidence", "captures", "text"),
    [
        (at(None), ("a.pcap",), "conn 1"),
        (Evidence(9, 8, NOON), (), "connection_id 9 exchange_id 8"),
        (Evidence(9, None, NOON), (), "connection_id 9"),
        (Evidence(9, None, NOON, "10.0.0.5 to 10.0.0.9"), ("a.pcap",), "10.0.0.5 to 10.0.0.9"),
    ],
)
def test_places(evidence: Evidence, captures: tuple[str, ...], text: str) -> None:
    assert seen(evidence, captures=captures) == text


def test_commands_can_be_pasted() -> None:
    lines = shown(finding(at(1), at(None)), captures=("a b.pcap", "c;d.pcap"))
    assert lines[-2:] == [
        "To look at #N: kafkasniff decode -v 'a b.pcap' 'c;d.pcap' --exchange N",
        "To look at conn N: kafkasniff decode -v 'a b.pcap' 'c;d.pcap' --connection N",
    ]
    assert shown(finding(at(1)), captures=())[-1] == "connection_id and exchange_id are the key of the export's tables"
    assert shown()[-1] == "no problems found in a.pcap"


@pytest.mark.parametrize("width", [40, 60, 90])
def test_sentences_are_wrapped(width: int) -> None:
    words = "word " * 60
    lines = shown(finding(at(1), title=words, meaning=words, advice=words), width=width)
    assert max(map(display_width, lines[2:-2])) <= width
    long = "x" * 200
    assert any(long in line for line in shown(finding(at(1), title=long), width=width))


def test_colours_only_if_asked_for() -> None:
    assert "\x1b" not in "".join(shown(finding(at(1))))
    assert "\x1b" in "".join(shown(finding(at(1)), coloured=True))


def test_times_in_json() -> None:
    found = finding_object(finding(at(3), first=NOON, last=None))
    assert (found["first"], found["last"]) == ("2026-11-18T12:00:00.000000000Z", None)
    (evidence,) = found["evidence"]
    assert evidence["time"] == "2026-11-18T12:00:00.000000000Z"
    assert "time_ns" not in evidence


def test_detectors_with_their_thresholds() -> None:
    detectors = Detectors(["slow-broker", "skewed-partitions"])
    objects = list_objects(detectors)
    assert {one["name"] for one in objects} == {"slow-broker", "skewed-partitions"}
    lines = list_text(detectors, width=80, coloured=False).splitlines()
    assert max(map(len, (line for line in lines if line.startswith(" ")))) <= 80
    for one in objects:
        assert any(line.startswith(f"{one['name']}  ") for line in lines)
        for name, value in one["thresholds"].items():
            assert any(line.strip().startswith(f"{name}={value}") for line in lines)
