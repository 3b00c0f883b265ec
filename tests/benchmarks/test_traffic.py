"""Generated captures are what they are said to be: sound, complete, and the same for the same seed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import generate, growth_traffic, scale_traffic
from benchmarks.bodies import bodies_of, equal_share
from benchmarks.disturbed_segments import disturbed
from benchmarks.generate import Maker, Sizes, captures, main, path_of
from benchmarks.growth_traffic import churn, idle, one_connection, unanswered
from benchmarks.measures import requests_of
from benchmarks.pcap_files import write_beginning
from benchmarks.recorded_answers import without_refusals
from benchmarks.recording import RecordingError
from benchmarks.scale_captures import HEADER, Form
from benchmarks.scale_captures import captures as scale_captures
from tests.conftest import ROOT
from tests.craft.outcome import Outcome, files_outcome, packets_outcome
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.craft.streams import stream_bytes
from tests.craft.write import write_pcap

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


def write_pieces(path: Path, pieces: Iterable[Any]) -> None:
    """One by one: they share their memory."""
    with path.open("wb") as out:
        for piece in pieces:
            out.write(piece)


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


@pytest.mark.extended
def test_only_missing_captures_are_made_and_failures_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> str:
        raise RecordingError("no right to record")

    monkeypatch.setattr(generate, "client_python", refuse)
    arguments = ["--data", str(tmp_path), "--missing", "--packets", "1000", "--connections", "10"]
    assert main([*arguments, "A", "Bx", "start", "C"]) == 0
    assert set(captures(tmp_path)) == {"C", "start"}
    assert "not made: A, Bx: no right to record" in capsys.readouterr().err
    before = path_of(tmp_path, "C").stat().st_mtime_ns
    # What C does not depend on does not make it anew.
    assert main([*arguments, "--base-mb", "7", "C"]) == 0
    assert path_of(tmp_path, "C").stat().st_mtime_ns == before
    assert main([*arguments, "--packets", "1100", "C"]) == 0
    assert path_of(tmp_path, "C").stat().st_mtime_ns != before
    for wrong in (["D"], ["--packets", "0"]):
        with pytest.raises(SystemExit):
            main(wrong)


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


def test_healthy_recordings_are_kept() -> None:
    assert without_refusals(read_packets(RECORDED)) == read_packets(RECORDED)
    assert without_refusals(mixed()) == mixed()


@pytest.mark.extended
def test_endless_traffic_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = {"AT_ONCE": 250, "LARGE_EXCHANGES": 4, "BUSY_EXCHANGES": 200, "UNANSWERED_AT_ONCE": 500}
    for name, number in pieces.items():
        monkeypatch.setattr(growth_traffic, name, number)
    busy = 40 + 200 * growth_traffic.MINUTE_COPIES
    for name, traffic, requests, responses, connections in (
        ("churn", churn(300), 300, 300, 300),
        ("idle", idle(40, 1), busy, busy, 41),
        ("one connection", one_connection(2_500_000), 8, 8, 1),
        ("unanswered", unanswered(100), 1000, 0, 2),
    ):
        path = tmp_path / "traffic.pcap"
        write_pieces(path, traffic.pieces)
        found = files_outcome([path])
        assert (found.summary.requests, found.summary.responses) == (requests, responses), name
        assert (traffic.requests, traffic.packets) == (requests, len(read_packets(path))), name
        assert found.summary.kafka_connections == connections, name
        assert not problems(found), name


@pytest.mark.extended
def test_traffic_of_scale_is_decoded_copy_after_copy(tmp_path: Path) -> None:
    base = scale_traffic.make_base(3_000_000, seed=7, flaws=False)
    path = tmp_path / "scale.pcap"
    pieces = (one.data for one in itertools.islice(scale_traffic.copies(base), 3))
    write_pieces(path, itertools.chain([HEADER + base.preamble], pieces))
    found = files_outcome([path])
    assert found.summary.requests == found.summary.responses == 3 * base.requests
    assert not problems(found)
    carried: Counter[object] = Counter()
    for packet in read_packets(path):
        carried[packet.connection] += len(packet.payload)
    assert carried.most_common(1)[0][1] > scale_traffic.HOT_SHARE * carried.total()
    text = str([line["body"] for line in found.lines if line["api"] in ("Produce", "Fetch")])
    assert all(f"'compression': '{codec}'" in text for codec in ("none", "gzip", "snappy", "lz4", "zstd"))


@pytest.mark.extended
def test_files_of_scale_continue_each_other(tmp_path: Path) -> None:
    form = Form(file_bytes=700_000, base_bytes=1_000_000, seed=3)
    files = scale_captures(tmp_path / "captures", 4, form)
    assert all(path.stat().st_size <= form.file_bytes for path in files)
    whole = scale_captures(tmp_path / "whole", 1, dataclasses.replace(form, file_bytes=2_000_000))[0].read_bytes()
    joined = HEADER + b"".join(path.read_bytes()[len(HEADER) :] for path in files)
    assert joined[: len(whole)] == whole
    # Fewer files are the first of more; damaged ones are made again.
    before = files[0].stat().st_mtime_ns
    assert scale_captures(files[0].parent, 2, form) == files[:2]
    assert files[0].stat().st_mtime_ns == before
    files[0].write_bytes(b"")
    assert scale_captures(files[0].parent, 1, form)[0].stat().st_size > 600_000


@pytest.mark.extended
@pytest.mark.tshark
def test_tshark_finds_nothing_malformed(require_tool: Callable[[str], str], tmp_path: Path) -> None:
    require_tool("tshark")
    maker = Maker(tmp_path, SIZES)
    for form in ("C", "C-new"):
        maker.make(form)
    known, newer = captures(tmp_path)["C"], captures(tmp_path)["C-new"]
    requests = files_outcome([known.path]).summary.requests
    assert requests_of(known.path, known.ports, tmp_path / "counted") == (requests, requests, 0)
    # And where there is something, it is counted.
    assert requests_of(newer.path, newer.ports, tmp_path / "counted").malformed > 50


def test_equal_bodies_are_counted(tmp_path: Path) -> None:
    assert equal_share([]) == 0
    packets = mixed()
    found = bodies_of(write_pcap(tmp_path / "talk.pcap", packets))
    requests = [body for body in found if body.kind[2]]
    assert len(requests) == packets_outcome(packets).summary.requests
    assert 0 < equal_share([*found, *found]) <= 1
    assert equal_share([*found, *found]) >= 0.5
