"""Generated captures are what they are said to be: sound, complete, and the same for the same seed."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import generate
from benchmarks.bodies import bodies_of, equal_share
from benchmarks.disturbed_segments import disturbed
from benchmarks.generate import Maker, Sizes, captures, path_of
from benchmarks.pcap_files import write_beginning
from tests.conftest import ROOT
from tests.craft.outcome import Outcome, files_outcome, packets_outcome
from tests.craft.read import read_packets
from tests.craft.streams import stream_bytes

RECORDED = ROOT / "captures" / "franz-go.pcap"
SIZES = Sizes(
    base_mb=1,
    mixed_copies=2,
    large_copies=2,
    segment_copies=2,
    disturbed_copies=2,
    packets=900,
    connections=20,
    seed=5,
    deep_exchanges=200,
)


def give_recording(path: Path, *_: object) -> list[int]:
    """A real capture instead of a recording, and the ports of its broker."""
    shutil.copy(RECORDED, path)
    manifest = json.loads((ROOT / "captures" / "manifest.json").read_text())
    ports: list[int] = next(one["broker_ports"] for one in manifest["captures"] if one["file"] == RECORDED.name)
    return ports


def maker_in(folder: Path, sizes: Sizes = SIZES) -> Maker:
    """Makes all forms without recording anything."""
    (folder / "bases").mkdir(parents=True)
    for versions in ("capped", "newest"):
        path = folder / "bases" / f"recorded-{versions}-{sizes.base_mb}-{sizes.seed}-{sizes.format}.pcap"
        path.with_suffix(".json").write_text(json.dumps({"ports": give_recording(path)}))
    return Maker(folder, sizes)


def problems(found: Outcome) -> Counter[str]:
    kinds = Counter(problem["kind"] for problem in found.problems)
    for line in found.lines:
        kinds.update(problem["kind"] for problem in line.get("problems", ()))
    return kinds


def test_small_messages_are_sound_and_reproducible(tmp_path: Path) -> None:
    maker, other = Maker(tmp_path, SIZES), Maker(tmp_path / "other", dataclasses.replace(SIZES, seed=6))
    other.data.mkdir()
    for form in ("C", "C-deep"):
        maker.make(form)
        before = path_of(tmp_path, form).read_bytes()
        found = files_outcome([path_of(tmp_path, form)])
        assert found.summary.requests == found.summary.responses >= 200, form
        assert not problems(found), form
        maker.make(form)
        other.make(form)
        assert path_of(tmp_path, form).read_bytes() == before != path_of(other.data, form).read_bytes(), form
    assert equal_share(bodies_of(path_of(tmp_path, "C-deep"))) < 0.1 < equal_share(bodies_of(path_of(tmp_path, "C")))
    packets = read_packets(path_of(tmp_path, "C"))
    count = write_beginning(path_of(tmp_path, "C"), tmp_path / "part.pcap", 20_000)
    assert read_packets(tmp_path / "part.pcap") == packets[:count] != packets


@pytest.mark.extended
def test_all_forms_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "record_mixed", give_recording)
    maker = maker_in(tmp_path)
    for form in generate.FORMS:
        maker.make(form)
    found = captures(tmp_path)
    assert list(found) == list(generate.FORMS)
    outcomes = {form: files_outcome([capture.path]) for form, capture in found.items()}
    once = files_outcome([RECORDED]).summary
    for form, capture in found.items():
        summary = outcomes[form].summary
        if not form.endswith("-pcapng"):
            assert capture.packets == len(read_packets(capture.path)) > 0, form
        if form[0] in "AB" or form == "mixed":
            assert (summary.requests, summary.responses) == (2 * once.requests, 2 * once.responses), form
        if form == "E":
            assert problems(outcomes[form])
        elif form != "start":
            assert not problems(outcomes[form]), form
    assert outcomes["C-pcapng"].lines == outcomes["C"].lines
    assert {packet.is_ipv6 for packet in read_packets(path_of(tmp_path, "B-ipv6"))} == {True}
    assert max(len(packet.payload) for packet in read_packets(path_of(tmp_path, "B"))) == 1448


def test_disturbed_segments_lose_nothing() -> None:
    packets = read_packets(RECORDED)
    found, counts = disturbed(packets, random.Random(3), share=0.1)
    assert stream_bytes(found) == stream_bytes(packets)
    assert len(found) == len(packets) + counts["duplicated"]
    assert min(counts["duplicated"], sum(counts.values()) - counts["duplicated"]) > 0
    # The same messages, and nothing is said to be lost.
    after = packets_outcome(found)
    assert after.messages(drop=("size",)) == packets_outcome(packets).messages(drop=("size",))
    assert not problems(after)
