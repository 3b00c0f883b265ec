"""What the tests of detectors have in common: a capture that shows what a detector looks for, or only looks like it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.analysis.detectors.scenes import Scene
from tests.analysis.detectors.talks import checked

PRODUCER = {"client_id": "crafted", "client_ip": "10.0.0.5"}
AT = {**PRODUCER, "broker": "10.0.0.9:9092"}
ORDERS = {**PRODUCER, "topic": "orders"}
GROUP = {**PRODUCER, "group_id": "workers"}
IN_PAYMENTS = {"transactional_id": "payments", **PRODUCER}

Fine = tuple[str, Scene, tuple[str, ...]]
"""A detector, a scene that is fine, and settings."""


class Case(NamedTuple):
    detector: str
    scene: Scene
    severity: str
    count: int
    subject: dict[str, Any]
    said: str
    """Part of the title."""
    evidence: list[int | None]
    """Numbers of exchanges, the first five."""
    values: Mapping[str, Any] = MappingProxyType({})
    settings: tuple[str, ...] = ()


def name_of(value: Case | Fine) -> str:
    """For the id of a test."""
    return f"{value.detector}-{value.severity}" if isinstance(value, Case) else value[0]


def check_found(case: Case, folder: Path) -> None:
    """A detector finds one thing, the one of the case."""
    answer = checked(folder / "crafted.pcap", case.scene(), case.detector, settings=case.settings)
    (found,) = answer.findings
    assert answer.notes == []
    assert (found.detector, found.severity, found.count, found.subject) == (
        case.detector,
        case.severity,
        case.count,
        case.subject,
    )
    assert case.said in found.title
    assert [one.exchange for one in found.evidence][:5] == case.evidence
    assert {one.connection for one in found.evidence} == {1}
    assert {name: found.values[name] for name in case.values} == case.values
    assert found.first is not None
    assert found.last is not None
    assert found.first <= found.last
    assert found.meaning.endswith(".")
    assert found.advice.endswith(".")


def check_fine(fine: Fine, folder: Path) -> None:
    """A detector finds nothing."""
    detector, scene, settings = fine
    answer = checked(folder / "crafted.pcap", scene(), detector, settings=settings)
    assert (answer.findings, answer.notes, answer.broken) == ([], [], False)
