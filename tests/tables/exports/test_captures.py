"""How captures are looked at: with few requests, and compared with those of an export."""

from __future__ import annotations

import gzip
import pickle
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.timeline.locations import CaptureFile, capture_at
from kafkasniff.errors import CaptureError
from kafkasniff.tables.exports.captures import (
    SAMPLE,
    SMALL_FILE,
    Exported,
    KeptHead,
    ManifestCapture,
    OnBadCapture,
    identify,
    look_at,
    look_at_file,
)
from tests.capture.files import pcap
from tests.capture.segments import frames
from tests.cli.console import kafkasniff
from tests.steps import steps
from tests.tables.exports.exported import CAPTURES, manifest, rows, run, tables

CONTENT = bytes(range(256)) * (3 * SAMPLE // 256)
PLACES = st.integers(0, len(CONTENT) + 10)
CAPTURE = pcap(frames(2_000))


class Reads:
    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.made: list[tuple[int, int]] = []

    def __call__(self, offset: int, size: int, /) -> bytes:
        self.made.append((offset, size))
        return self.content[offset : offset + size]


@given(st.lists(st.tuples(PLACES | st.just(0), PLACES), max_size=20), st.sampled_from([len(CONTENT), SMALL_FILE + 1]))
def test_any_reads(places: list[tuple[int, int]], size: int) -> None:
    file = KeptHead(Reads(), size)
    for offset, count in places:
        assert file(offset, count) == CONTENT[offset : offset + count]


def test_small_files_are_read_once_and_heads_of_large_ones_kept() -> None:
    reads = Reads()
    file = KeptHead(reads, len(CONTENT))
    identify("a", len(CONTENT), file)
    for offset in range(0, len(CONTENT), SAMPLE):
        assert file(offset, SAMPLE) == CONTENT[offset : offset + SAMPLE]
    assert reads.made == [(0, len(CONTENT))]
    reads = Reads(bytes(SMALL_FILE + 1))
    file = KeptHead(reads, SMALL_FILE + 1)
    for size in (24, SAMPLE, 100):
        file(0, size)
    file(SAMPLE - 1, 2)
    assert reads.made == [(0, SAMPLE), (SAMPLE - 1, 2)]


def manifest_entry(data: bytes) -> ManifestCapture:
    return identify("exported", len(data), Reads(data))


def grown(data: bytes, exported: Exported) -> bool:
    return exported.examine("path", identify("new", len(data), Reads(data)), Reads(data)).grown


@given(st.lists(st.integers(1, len(CAPTURE)), min_size=1, max_size=5), st.integers(1, len(CAPTURE)), st.booleans())
def test_a_capture_has_grown_if_it_begins_with_an_exported_one(done: list[int], size: int, other: bool) -> None:
    begin = CAPTURE if not other else CAPTURE[:40] + b"?" + CAPTURE[41:]
    exported = Exported([manifest_entry(CAPTURE[:one]) for one in done])
    # A task gets a copy.
    exported = pickle.loads(pickle.dumps(exported))
    wanted = any(one < size and CAPTURE[:one] == begin[:one] for one in done) and begin[:size] not in (
        CAPTURE[:one] for one in done
    )
    assert grown(begin[:size], exported) == wanted


def test_lengths_around_the_sample() -> None:
    for done in (SAMPLE - 1, SAMPLE, SAMPLE + 1):
        exported = Exported([manifest_entry(CAPTURE[:done])])
        found = [grown(CAPTURE[:size], exported) for size in (done - 1, done, done + 1, len(CAPTURE))]
        assert found == [False, False, True, True]


def test_comparing_with_many_short_captures_takes_work_in_proportion_to_their_sizes() -> None:
    """Nightly runs add small captures to many others."""
    few, many = (
        Exported(
            [ManifestCapture("a", 1_000 + number % 50, f"{number:032}", f"{number:032}") for number in range(count)]
        )
        for count in (100, 10_000)
    )
    assert steps(lambda: grown(CAPTURE, many)) == steps(lambda: grown(CAPTURE, few))


def test_captures_of_the_export_are_not_examined() -> None:
    known, bad = manifest_entry(CAPTURE), manifest_entry(b"no capture")
    exported = Exported([known], [bad])
    for one in (known, bad):
        reads = Reads()
        look = exported.examine("path", one, reads)
        assert (look.flaw, look.grown, reads.made) == (None, False, [])


def test_flaws(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(b"")
    assert "a.pcap: is empty" in (look_at(str(path), Exported()).flaw or "")
    path.write_bytes(b"no capture at all, but long enough")
    look = look_at_file(capture_at(str(path)), "the path", Exported())
    assert look.path == "the path"
    assert look.flaw is not None
    # Unreadable captures are left to their reader.
    missing = str(tmp_path / "missing.pcap")
    look = look_at(missing, Exported())
    assert (look.capture.size, look.capture.key, look.flaw) == (0, None, None)
    with pytest.raises((OSError, CaptureError)):
        look_at_file(CaptureFile(missing, missing, 100), missing, Exported())


# -- bad captures: what a run does about them, and the next one --------------------------------------------------------

GOOD = CAPTURES / "java-group-share.pcap"
OTHER = CAPTURES / "kafkajs.pcap"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "captures"
    folder.mkdir()
    shutil.copy(GOOD, folder / "b.pcap")
    (folder / "a.pcap").write_bytes(b"")
    (folder / "c.pcap.gz").write_bytes(gzip.compress(b"an error page of a proxy"))
    (folder / "d.pcapng").write_bytes(GOOD.read_bytes()[:20])
    (folder / "README.txt").write_text("These are captures.\n")
    return folder


def export(folder: Path, out: Path, *options: str) -> tuple[int, list[str]]:
    done = kafkasniff("export", str(folder), "-o", str(out), *options)
    return done.code, done.err.splitlines()


def skipped(out: Path) -> list[tuple[str, str]]:
    found = [row for row in rows(out, "problems") if row["kind"] == "capture-skipped"]
    return sorted((Path(row["capture"]).name, row["detail"]) for row in found)


def test_they_end_the_run_by_default(folder: Path, tmp_path: Path) -> None:
    code, err = export(folder, tmp_path / "out")
    assert code == 3
    assert err == [
        f"kafkasniff: {folder / 'a.pcap'}: is empty; was the capture stopped before its first packet was written? "
        "(--on-bad-capture skip reads the others)"
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_skipped_ones_are_reported_everywhere(policy: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, err = export(folder, out, "--on-bad-capture", policy)
    assert code == 4
    assert [line.partition(": ")[2] for line in err[:3]] == [detail for _, detail in skipped(out)]
    stored = "44 exchanges, 9 records, 7 connections, 3 problems in "
    assert err[3].startswith(f"kafkasniff: 3 captures skipped; {stored}")
    assert [name for name, _ in skipped(out)] == ["a.pcap", "c.pcap.gz", "d.pcapng"]
    # Only its name has the first of them: what they hold is not shown.
    assert [Path(one["name"]).name for one in manifest(out)["captures"]] == ["b.pcap"]
    run([folder / "b.pcap"], tmp_path / "alone")
    whole, alone = tables(out), tables(tmp_path / "alone")
    assert [row for row in whole.pop("problems") if row["kind"] != "capture-skipped"] == alone.pop("problems")
    assert whole == alone


def test_the_next_run_looks_at_skipped_ones_again(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(folder, out, "--on-bad-capture", "skip")
    code, err = export(folder, out, "--on-bad-capture", "skip")
    assert code == 4
    assert err[-1] == f"kafkasniff: 3 captures skipped; nothing to do: {out} already has the others"
    # The capture was complete later.
    shutil.copy(OTHER, folder / "a.pcap")
    code, err = export(folder, out, "--on-bad-capture", "skip")
    assert [Path(one["name"]).name for one in manifest(out)["captures"]] == ["b.pcap", "a.pcap"]
    assert len(skipped(out)) == 5


def test_later_runs_ignore_what_is_in_quarantine_until_its_bytes_change(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(folder, out, "--on-bad-capture", "quarantine")
    assert [Path(one["name"]).name for one in manifest(out)["quarantined"]] == ["a.pcap", "c.pcap.gz", "d.pcapng"]
    assert export(folder, out) == (0, [f"kafkasniff: nothing to do: {out} already has these captures"])
    shutil.copy(OTHER, folder / "a.pcap")
    assert export(folder, out)[0] == 0
    assert [Path(one["name"]).name for one in manifest(out)["captures"]] == ["b.pcap", "a.pcap"]
    assert len(manifest(out)["quarantined"]) == 3


@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_nothing_but_bad_ones(policy: OnBadCapture, folder: Path, tmp_path: Path) -> None:
    (folder / "b.pcap").unlink()
    with pytest.raises(CaptureError, match=r"no capture can be read; the first one: skipped: .*a\.pcap: is empty"):
        run(sorted(folder.glob("*.pcap*")), tmp_path / "out", on_bad=policy)
    assert not (tmp_path / "out").exists()


def test_what_is_never_skipped(folder: Path, tmp_path: Path) -> None:
    """Captures that cannot be opened end the export; those with damage further on are read up to it."""
    with pytest.raises(CaptureError, match=r"missing\.pcap: cannot be opened"):
        run([folder / "b.pcap", folder / "missing.pcap"], tmp_path / "out", on_bad="skip")
    (folder / "b.pcap").write_bytes(GOOD.read_bytes()[:-7])
    result = run([folder / "b.pcap"], tmp_path / "out", on_bad="skip")
    assert (result.broken, result.skipped) == (True, ())
