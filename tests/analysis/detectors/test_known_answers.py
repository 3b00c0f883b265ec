"""Each detector finds its trouble in crafted scenes, and nothing in scenes that only look like it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkasniff.analysis.detectors import detector_names, run
from kafkasniff.analysis.detectors.registry import SECURITY
from tests.analysis.detectors import network_scenes, scenes
from tests.analysis.detectors.known_answers import FOLDER, LOOK_ALIKES, NAMES, SHOWN, answer, cases_of, look
from tests.analysis.detectors.talks import capture_of
from tests.analysis.detectors.test_faults import CAUSES
from tests.choice import ALL
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

ELSEWHERE = {
    "blocked-streams-groups",
    "damaged-records",
    "lost-records",
    "overwritten-records",
    *(detector for _, detector, _ in CAUSES),
    *SECURITY,
} - {
    "denied",
    "sasl-failures",
    "tls-failures",
}
"""Detectors with known answers for rows (`test_damaged`, `test_lost_records`, …), or with captures of
both kinds (`test_faults`)."""


def test_every_detector_has_both_kinds_of_scenes() -> None:
    known = {case.detector for case in LOOK_ALIKES}
    assert set(NAMES) == known
    assert known | ELSEWHERE == set(detector_names())
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(NAMES)
    for cases in (SHOWN, LOOK_ALIKES):
        assert len({case[:2] for case in cases}) == len(cases)


@pytest.mark.parametrize("detector", NAMES)
def test_findings_match_the_reviewed_files(detector: str, tmp_path: Path) -> None:
    """With all tests, including what the exports of the scenes show."""
    found = answer(detector, tmp_path, exports=ALL)
    expected = (FOLDER / f"{detector}.txt").read_text(encoding="utf-8")
    assert found == (expected if ALL else re.sub(r"^(not )?(in|note for) the export.*\n", "", expected, flags=re.M))
    assert all(line.isprintable() for line in found.splitlines()), "a terminal would interpret it"
    scenes_of_it = found.split("== ")[1:]
    assert all(len(one.splitlines()) > 6 for one in scenes_of_it), "a scene shows nothing"


@pytest.mark.parametrize("detector", NAMES)
def test_look_alikes_yield_nothing(detector: str, tmp_path: Path) -> None:
    for case in cases_of(LOOK_ALIKES, detector):
        found = look(case, tmp_path / "crafted.pcap")
        assert (found.findings, found.notes, found.broken) == ([], [], False), case.name


@pytest.mark.parametrize("scene", [network_scenes.killed, network_scenes.tls_where_tls_works, scenes.hanging])
def test_all_detectors_survive_a_cut_capture(scene: scenes.Scene, tmp_path: Path) -> None:
    path = capture_of(tmp_path / "cut.pcap", scene())
    data = path.read_bytes()
    # A few bytes more: the cut must not fall between two packets.
    path.write_bytes(data[: len(data) * 2 // 3] + bytes(3))
    assert run([str(path)]).broken


def test_one_direction_of_tls(tmp_path: Path) -> None:
    """The broker's direction is missing: no claim that it did not answer, with or without packets."""
    talk = network_scenes.secure(("client", network_scenes.client_hello()))
    talk.packets = [packet for packet in talk.packets if packet.src == "10.0.0.5"]
    path = capture_of(tmp_path / "half.pcap", [network_scenes.plain(), talk])
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
    for source in (path, tmp_path / "out"):
        assert run([str(source)], only=["wrong-protocol", "tls-failures"]).findings == []


def test_batches_in_flight_after_a_refused_one(tmp_path: Path) -> None:
    """Nothing above a note if all of them are accepted when they are sent again."""
    for again, worst in ((3, {"note"}), (2, {"error", "note"})):
        path = capture_of(tmp_path / "crafted.pcap", scenes.concurrent(again)())
        assert {one.severity for one in run([str(path)]).findings} == worst


def test_a_member_that_asks_for_its_id_is_healthy(tmp_path: Path) -> None:
    """MEMBER_ID_REQUIRED is how a broker gives an id."""
    path = capture_of(tmp_path / "crafted.pcap", scenes.member_id_asked(1)())
    assert {one.detector for one in run([str(path)]).findings} == {"without-authentication"}


def test_an_end_that_another_finding_explains() -> None:
    """The request that made the broker close the connection is not reported once more; alone it is."""
    path = str(ROOT / "captures" / "faults" / "old-client.pcap")
    assert {one.detector for one in run([path]).findings} == {"wrong-protocol", "without-authentication"}
    assert [one.count for one in run([path], only=["unanswered-requests"]).findings] == [5]
