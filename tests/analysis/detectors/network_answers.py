"""As `known_answers`, for detectors of trouble between clients and brokers: captures and their exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from kafkasniff.analysis.detectors import Finding, run
from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import Case, name_of, the_finding
from tests.analysis.detectors.talks import capture_of
from tests.cli.console import kafkasniff

PAIR = {"client_ip": "10.0.0.5", "broker": "10.0.0.9:9092"}
NOBODY = {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.10:9092"}
GONE = {"broker": "10.0.0.9:9092"}
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


def plain(finding: Finding) -> Finding:
    """Without the numbers that exports do not have."""
    evidence = tuple(msgspec.structs.replace(one, connection=None, exchange=None) for one in finding.evidence)
    return msgspec.structs.replace(finding, evidence=evidence)


def finds(cases: Sequence[Case]) -> Callable[[Case, Path], None]:
    """A test for each case: its detector finds one thing in the capture, and the same in its export."""

    @pytest.mark.parametrize("case", cases, ids=name_of)
    def test(case: Case, tmp_path: Path) -> None:
        path = tmp_path / "crafted.pcap"
        found = the_finding(case, path)
        if case.detector != "slow-broker":
            assert [(one.connection, one.exchange) for one in found.evidence][:3] == case.evidence
        else:
            assert {one.connection for one in found.evidence} == {2}
        msgspec.json.encode(found)
        assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
        exported = run([str(tmp_path / "out")], only=[case.detector], settings=case.settings).findings
        if case.scene is scenes.registered_again:
            (restart,) = exported
            assert "broker 0 restarted between" in restart.title
        else:
            assert exported == ([] if case.scene.__name__ in CAPTURES_ALONE else [plain(found)])

    return test


def survives_a_cut(case: Case) -> Callable[[Path], None]:
    """A test that nothing fails on what is left of a capture."""

    def test(tmp_path: Path) -> None:
        path = capture_of(tmp_path / "cut.pcap", case.scene())
        data = path.read_bytes()
        # A few bytes more: the cut must not fall between two packets.
        path.write_bytes(data[: len(data) * 2 // 3] + bytes(3))
        answer = run([str(path)], only=[case.detector], settings=case.settings)
        assert answer.broken
        assert {one.detector for one in answer.findings} <= {case.detector}

    return test
