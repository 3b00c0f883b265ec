"""Findings as text: how much evidence is shown, where it is, and how to look at it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.detectors import Evidence, Finding
from kafkasniff.cli.render.answer_text import SHOWN, check_text

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


def seen(*evidence: Evidence, captures: tuple[str, ...] = ("a.pcap",), **values: Any) -> str:
    lines = shown(finding(*evidence, **values), captures=captures, width=400)
    return next(line for line in lines if "crafted: " in line).split("crafted: ")[1]


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
    assert shown(finding(at(1)), captures=())[-1] == (
        "connection_id and exchange_id are the key of the export's tables; "
        "decode --exchange CONNECTION_ID/EXCHANGE_ID CAPTURE... shows an exchange"
    )
    assert shown()[-1] == "no problems found in a.pcap"
