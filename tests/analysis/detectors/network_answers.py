"""As `known_answers`, for detectors of trouble between clients and brokers: captures and their exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from kafkasniff.analysis.detectors import Finding, run
from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.talks import capture_of, checked
from tests.cli.console import kafkasniff
from tests.craft.conversation import Conversation

CLIENT = {"client_id": "crafted", "client_ip": "10.0.0.5"}
AT = {**CLIENT, "broker": "10.0.0.9:9092"}
PAIR = {"client_ip": "10.0.0.5", "broker": "10.0.0.9:9092"}
CAPTURES_ALONE = {
    "accepted_by_a_dying_broker",
    "killed",
    "listed_again",
    "restarted",
    "restarted_unseen",
    "not_up_yet",
    "refused",
    "unanswered",
    "slow_reader",
    "another_continent",
}
"""Scenes of what exports do not contain: attempts to connect, windows, round trips."""
NOBODY = {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.10:9092"}
GONE = {"broker": "10.0.0.9:9092"}

Fine = tuple[str, Callable[[], Sequence[Conversation]]]
"""A detector, and a scene that is fine."""


class NetworkCase(NamedTuple):
    detector: str
    scene: Callable[[], Sequence[Conversation]]
    severity: str
    count: int
    subject: dict[str, Any]
    said: str
    """Part of the title."""
    evidence: list[tuple[int | None, int | None]]
    """Numbers of connection and exchange, the first three."""
    values: Mapping[str, Any] = MappingProxyType({})
    settings: tuple[str, ...] = ()


def name_of(value: NetworkCase | Fine) -> str:
    """For the id of a test."""
    detector, scene = value[:2]
    return f"{detector}-{getattr(scene, '__name__', scene)}"


def plain(findings: Sequence[Finding]) -> list[Finding]:
    """Without the numbers that exports do not have."""
    return [
        msgspec.structs.replace(
            one,
            evidence=tuple(msgspec.structs.replace(each, connection=None, exchange=None) for each in one.evidence),
        )
        for one in findings
    ]


def check_network(case: NetworkCase, folder: Path) -> None:
    """A detector finds one thing in a capture, the one of the case, and the same in its export."""
    path = folder / "crafted.pcap"
    answer = checked(path, case.scene(), case.detector, settings=case.settings)
    (found,) = answer.findings
    assert answer.notes == []
    told = (found.detector, found.severity, found.count, found.subject)
    assert told == (case.detector, case.severity, case.count, case.subject)
    assert case.said in found.title
    if case.detector != "slow-broker":
        assert [(one.connection, one.exchange) for one in found.evidence][:3] == case.evidence
    else:
        assert {one.connection for one in found.evidence} == {2}
    assert {name: found.values[name] for name in case.values} == dict(case.values)
    assert found.meaning.endswith(".")
    assert found.advice.endswith(".")
    msgspec.json.encode(found)
    assert kafkasniff("export", path, "-o", folder / "out").code == 0
    exported = run([str(folder / "out")], only=[case.detector], settings=case.settings).findings
    if case.scene is scenes.registered_again:
        (restart,) = exported
        assert "broker 0 restarted between" in restart.title
    else:
        assert exported == ([] if case.scene.__name__ in CAPTURES_ALONE else plain(answer.findings))


def check_fine(fine: Fine, folder: Path) -> None:
    """A detector finds nothing."""
    detector, scene = fine
    answer = checked(folder / "crafted.pcap", scene(), detector)
    assert (answer.findings, answer.notes, answer.broken) == ([], [], False)


def check_cut(case: NetworkCase, folder: Path) -> None:
    """Nothing fails on what is left of a capture."""
    path = capture_of(folder / "cut.pcap", case.scene())
    data = path.read_bytes()
    # A few bytes more: the cut must not fall between two packets.
    path.write_bytes(data[: len(data) * 2 // 3] + bytes(3))
    answer = run([str(path)], only=[case.detector], settings=case.settings)
    assert answer.broken
    assert {one.detector for one in answer.findings} <= {case.detector}
