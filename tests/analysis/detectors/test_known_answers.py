"""Each detector finds its trouble in crafted scenes, and nothing in scenes that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.analysis.detectors import detector_names, run
from kafkasniff.analysis.detectors.registry import SECURITY
from tests.analysis.detectors.known_answers import FOLDER, LOOK_ALIKES, NAMES, SHOWN, answer, cases_of, look
from tests.analysis.detectors.test_faults import LOOK_ALIKES as LOOKING_ALIKE
from tests.analysis.detectors.test_faults import named
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft.read import read_packets
from tests.craft.write import write_pcap

ELSEWHERE = {
    *("blocked-streams-groups", "damaged-records", "idle-members", "lost-records", "overwritten-records"),
    "undecoded-traffic",
    *SECURITY,
    *(one.split()[1] for _, trouble in LOOKING_ALIKE for one in named(trouble) if not one.startswith("note ")),
}
"""Detectors with known answers for rows (`test_rows`, …), or with captures of both kinds (`test_faults`)."""


def test_every_detector_has_both_kinds_of_scenes() -> None:
    assert set(NAMES) == {case.detector for case in LOOK_ALIKES}
    assert {*NAMES, *ELSEWHERE} == set(detector_names())
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(NAMES)
    for cases in (SHOWN, LOOK_ALIKES):
        assert len({case[:2] for case in cases}) == len(cases)


@pytest.mark.parametrize("detector", NAMES)
def test_findings_match_the_reviewed_files(detector: str, tmp_path: Path) -> None:
    found = answer(detector, tmp_path)
    assert found == (FOLDER / f"{detector}.txt").read_text(encoding="utf-8")
    assert all(line.isprintable() for line in found.splitlines()), "a terminal would interpret it"
    scenes_of_it = found.split("== ")[1:]
    assert all(len(one.splitlines()) > 6 for one in scenes_of_it), "a scene shows nothing"


@pytest.mark.parametrize("detector", NAMES)
def test_look_alikes_yield_nothing(detector: str, tmp_path: Path) -> None:
    for case in cases_of(LOOK_ALIKES, detector):
        found = look(case, tmp_path / "crafted.pcap")
        assert (found.findings, found.notes, found.broken) == ([], [], False), case.name


def test_one_direction_of_tls(tmp_path: Path) -> None:
    """The broker's direction is missing: no claim that it did not answer, with or without packets."""
    packets = read_packets(ROOT / "captures" / "faults" / "tls-at-plaintext.pcap")
    asked = [one for one in packets if one.dport == packets[0].dport]
    assert 0 < len(asked) < len(packets)
    path = write_pcap(tmp_path / "half.pcap", asked)
    assert kafkasniff("export", path, "-o", tmp_path / "out").code in (0, 4)
    for source in (path, tmp_path / "out"):
        assert run([str(source)], only=["wrong-protocol", "tls-failures"]).findings == []
