"""Tests of detectors with crafted captures: some show what a detector looks for, and some only look like it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from kafkasniff.analysis.detectors import Finding
from tests.analysis.detectors.talks import checked
from tests.craft.conversation import Conversation

PRODUCER = {"client_id": "crafted", "client_ip": "10.0.0.5"}
AT = {**PRODUCER, "broker": "10.0.0.9:9092"}
ORDERS = {**PRODUCER, "topic": "orders"}
GROUP = {**PRODUCER, "group_id": "workers"}
IN_PAYMENTS = {"transactional_id": "payments", **PRODUCER}

Scene = Callable[[], Sequence[Conversation]]
LookAlike = tuple[str, Scene, *tuple[str, ...]]
"""A detector, a scene that only looks like its trouble, and settings."""


class Case(NamedTuple):
    detector: str
    scene: Scene
    severity: str
    count: int
    subject: dict[str, Any]
    title: str
    """Part of the title."""
    evidence: Sequence[int | None] | Sequence[tuple[int | None, int | None]]
    """Numbers of the first exchanges; in `network_answers`, of connection and exchange."""
    values: Mapping[str, Any] = MappingProxyType({})
    settings: tuple[str, ...] = ()


def name_of(value: Case | LookAlike) -> str:
    """For the id of a test."""
    detector, scene = value[:2]
    return f"{detector}-{scene.__qualname__.partition('.')[0]}"


def the_finding(case: Case, path: Path) -> Finding:
    """The only finding in a capture of the case's scene, compared with the case except for its evidence."""
    answer = checked(path, case.scene(), case.detector, settings=case.settings)
    (found,) = answer.findings
    assert answer.notes == []
    assert (found.detector, found.severity, found.count, found.subject) == (
        case.detector,
        case.severity,
        case.count,
        case.subject,
    )
    assert case.title in found.title
    assert {name: found.values[name] for name in case.values} == case.values
    assert found.meaning.endswith(".")
    assert found.advice.endswith(".")
    return found


def finds(cases: Sequence[Case]) -> Callable[[Case, Path], None]:
    """A test for each case: its detector finds one thing in the capture, with evidence from its only connection."""

    @pytest.mark.parametrize("case", cases, ids=name_of)
    def test(case: Case, tmp_path: Path) -> None:
        found = the_finding(case, tmp_path / "crafted.pcap")
        assert [one.exchange for one in found.evidence][:5] == case.evidence
        assert {one.connection for one in found.evidence} == {1}
        assert found.first is not None
        assert found.last is not None
        assert found.first <= found.last

    return test


def ignores(look_alikes: Sequence[LookAlike]) -> Callable[[LookAlike, Path], None]:
    """A test for each look-alike: its detector finds nothing."""

    @pytest.mark.parametrize("look_alike", look_alikes, ids=name_of)
    def test(look_alike: LookAlike, tmp_path: Path) -> None:
        detector, scene, *settings = look_alike
        answer = checked(tmp_path / "crafted.pcap", scene(), detector, settings=settings)
        assert (answer.findings, answer.notes, answer.broken) == ([], [], False)

    return test
