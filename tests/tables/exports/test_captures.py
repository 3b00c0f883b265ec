"""How captures are looked at: with few requests, and compared with those of an export."""

from __future__ import annotations

import pickle
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
    identify,
    look_at,
    look_at_file,
)
from tests.capture.files import pcap
from tests.capture.segments import frames
from tests.steps import steps

CONTENT = bytes(range(256)) * (3 * SAMPLE // 256)
PLACES = st.integers(0, len(CONTENT) + 10)
CAPTURE = pcap(frames(2_000))


class Reads:
    """A file that counts its reads."""

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


@given(
    st.lists(st.integers(1, len(CAPTURE)), min_size=1, max_size=5),
    st.integers(1, len(CAPTURE)),
    st.booleans(),
)
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
