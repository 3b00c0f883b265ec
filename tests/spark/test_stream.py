"""A folder of rotated captures as a stream: what happens to files while they are followed."""

from __future__ import annotations

import gzip
import json
import logging
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.timeline.parts import CaptureFile, PlacedNote
from kafkasniff.capture.timeline.splits import ReadAt
from kafkasniff.errors import CaptureError, UsageError
from kafkasniff.spark.stream import ReadProgress, advance, begin, begins_as, read_between, split_between, whole
from tests.capture.files import START, pcap, pcap_header
from tests.capture.segments import frame, frames, marked
from tests.capture.timelines import damaged, expected, placed_rows

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from kafkasniff.spark.options import NOTES, SourceOptions
from kafkasniff.spark.stream import CaptureStreamReader

SECOND = 10**9
RECORD = 16 + 54 + 40
"""Bytes of a record with a marked frame."""


def capture(first: int, count: int, start: int | None = None) -> bytes:
    """Frames numbered from `first`, a second apart."""
    frames = [frame(marked(number)) for number in range(first, first + count)]
    return pcap(frames, start=START + first * SECOND if start is None else start, step=SECOND)


class Follower:
    """A stream as Spark drives it: offsets through JSON, each batch read when it is planned."""

    def __init__(self, path: Path | str, **options: Any) -> None:
        self.options = SourceOptions((str(path),), **options)
        columns = tuple(NOTES) if self.options.table == "notes" else ("payload", "capture_index", "number")
        self.reader = CaptureStreamReader(self.options, columns)
        self.columns = columns
        self.offset = self.reader.initialOffset()

    def look(self, most: int | None = None) -> list[dict[str, Any]]:
        limit = ReadAllAvailable() if most is None else ReadMaxBytes(most)
        end = json.loads(json.dumps(self.reader.latestOffset(self.offset, limit)))
        rows = self.rows(self.offset, end)
        self.offset = end
        return rows

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        parts = self.reader.partitions(start, end)
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def numbers(self, most: int | None = None) -> list[int]:
        return [int(row["payload"][:10]) for row in self.look(most)]

    def restart(self) -> None:
        """Another process resumes from the checkpoint."""
        self.reader = CaptureStreamReader(self.options, self.columns)


def test_files_are_followed_as_they_grow_and_rotate(tmp_path: Path) -> None:
    stream = Follower(tmp_path)
    assert stream.numbers() == []
    data = capture(0, 10)
    first = tmp_path / "dump.pcap"
    first.write_bytes(data[: 24 + 3 * RECORD + 7])
    assert stream.numbers() == [0, 1, 2]
    assert stream.numbers() == []
    first.write_bytes(data)
    (tmp_path / "dump.pcap1").write_bytes(capture(10, 5)[: 24 + 30])
    assert stream.numbers() == [3, 4, 5, 6, 7, 8, 9]
    (tmp_path / "dump.pcap1").write_bytes(capture(10, 5))
    (tmp_path / "dump.pcap10").write_bytes(capture(20, 5))
    (tmp_path / "dump.pcap2").write_bytes(capture(15, 5))
    stream.restart()
    rows = stream.look()
    # By the times of their first packets, not by their names.
    assert [int(row["payload"][:10]) for row in rows] == list(range(10, 25))
    assert [row["capture_index"] for row in rows] == [1] * 5 + [2] * 5 + [3] * 5
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5] * 3
    assert stream.numbers() == []


def test_a_batch_is_the_same_however_often_it_is_asked_for(tmp_path: Path) -> None:
    stream = Follower(tmp_path)
    path = tmp_path / "a.pcap"
    path.write_bytes(capture(0, 30)[: 24 + 4 * RECORD + 13])
    start = stream.offset
    once = stream.look()
    path.write_bytes(capture(0, 30))
    stream.restart()
    assert stream.rows(start, stream.offset) == once
    assert len(once) == 4


def test_no_more_than_a_batch_may_hold(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.pcap").write_bytes(capture(number * 10, 10))
    stream = Follower(tmp_path)
    found = [stream.numbers(4 * RECORD) for _ in range(12)]
    assert [number for batch in found for number in batch] == list(range(30))
    assert max(map(len, found)) <= 5
    assert min(map(len, found[:6])) >= 4


def test_a_folder_holds_other_things(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(capture(0, 2))
    (tmp_path / "empty.pcap").write_bytes(b"")
    (tmp_path / "header.pcap").write_bytes(pcap_header())
    (tmp_path / "README").write_text("something that is not a capture, and not short either")
    (tmp_path / ".b.pcap").write_bytes(capture(2, 2))
    (tmp_path / "other").mkdir()
    assert Follower(tmp_path).numbers() == [0, 1]
    (tmp_path / "b.cap").write_bytes(capture(4, 2))
    assert Follower(tmp_path / "*.pcap").numbers() == [0, 1]
    with pytest.raises(CaptureError, match="cannot be listed"):
        Follower(tmp_path / "none").numbers()
    with pytest.raises(UsageError, match="one folder"):
        CaptureStreamReader(SourceOptions(("a", "b")), ())


@pytest.mark.parametrize("again", [b"", capture(50, 3), capture(50, 30)], ids=["vanishes", "shorter", "longer"])
def test_a_file_may_vanish_or_give_way(tmp_path: Path, again: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The unread rest is reported, and ends the stream by default."""
    path = tmp_path / "ring0.pcap"
    path.write_bytes(capture(0, 10))
    whole, strict, lenient = Follower(tmp_path), Follower(tmp_path), Follower(tmp_path, fail_on_loss=False)
    notes = Follower(tmp_path, table="notes", fail_on_loss=False)
    assert whole.numbers() == list(range(10))
    for stream in (strict, lenient, notes):
        stream.look(3 * RECORD)
    path.unlink()
    if again:
        path.write_bytes(again)
    rows = whole.look()
    assert [int(row["payload"][:10]) for row in rows] == list(range(50, 50 + len(again[24:]) // RECORD))
    assert {row["capture_index"] for row in rows} <= {1}
    assert len(whole.offset["files"]) == bool(again)
    with pytest.raises(CaptureError, match=r"ring0\.pcap: 770 bytes were not read"):
        strict.look()
    with caplog.at_level(logging.WARNING):
        assert lenient.numbers() == [int(row["payload"][:10]) for row in rows]
    assert "770 bytes were not read" in caplog.text
    (note,) = notes.look()
    assert (note["note"], note["kind"], note["bytes"]) == ("problem", "capture-cut", 770)
    assert note["capture"] == str(path)


def test_what_stays_half_written_counts_as_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(capture(0, 3)[:-5])
    patient = Follower(tmp_path, table="notes")
    assert patient.look() == []
    assert patient.look() == []
    stream = Follower(tmp_path, table="notes", finish_after=0)
    (note,) = stream.look()
    assert (note["kind"], note["packet"]) == ("capture-cut", 2)
    assert stream.look() == []
    path.write_bytes(capture(0, 3))
    with pytest.raises(CaptureError, match="5 bytes were not read: it grew"):
        stream.look()
    # A file that ends with a whole packet may always grow.
    whole = Follower(tmp_path, finish_after=0)
    assert whole.numbers() == [0, 1, 2]
    path.write_bytes(capture(0, 5))
    assert whole.numbers() == [3, 4]


def test_compressed_files_are_read_once_and_whole(tmp_path: Path) -> None:
    stream = Follower(tmp_path)
    plain = tmp_path / "a.pcap"
    plain.write_bytes(capture(0, 5))
    assert stream.numbers() == [0, 1, 2, 3, 4]
    # tcpdump -z gzip
    squeezed = gzip.compress(capture(0, 5))
    (tmp_path / "a.pcap.gz").write_bytes(squeezed[:50])
    assert stream.numbers() == []
    (tmp_path / "a.pcap.gz").write_bytes(squeezed)
    plain.unlink()
    assert stream.numbers() == []
    stream.restart()
    assert stream.numbers() == []
    # One that nobody has read.
    other = gzip.compress(capture(5, 5))
    (tmp_path / "b.pcap.gz").write_bytes(other[:-10])
    assert stream.numbers() == []
    (tmp_path / "b.pcap.gz").write_bytes(other)
    assert stream.numbers() == [5, 6, 7, 8, 9]
    assert stream.numbers() == []


def test_only_what_is_there_now(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(capture(0, 6))
    stream = Follower(tmp_path)
    stream.reader.prepareForTriggerAvailableNow()
    path.write_bytes(capture(0, 12))
    (tmp_path / "b.pcap").write_bytes(capture(12, 3))
    assert [stream.numbers(4 * RECORD) for _ in range(4)] == [[0, 1, 2, 3], [4, 5], [], []]
    stream.restart()
    assert stream.numbers() == list(range(6, 15))


@pytest.fixture(autouse=True)
def _no_log_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are looked at through pytest only."""
    monkeypatch.setattr(logging.getLogger("kafkasniff"), "propagate", True)


# -- a file that grows -------------------------------------------------------------------------------------------------


CAPTURES = Path(__file__).parents[2] / "captures"
PLAIN = (
    *("java-telemetry.pcap", "librdkafka-ipv6-ns.pcapng", "librdkafka-snaplen-128.pcap"),
    "librdkafka-nanoseconds.pcap",
)
ENDLESS = 1 << 40
ANEW = re.compile("kind='(packet-|ip-fragment-dropped)")


def reads(data: bytes) -> ReadAt:
    return lambda offset, size, /: data[offset : offset + size]


def again(standing: ReadProgress) -> ReadProgress:
    """As it comes out of a checkpoint."""
    plain = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(standing, str_keys=True)))
    return msgspec.convert(plain, ReadProgress, str_keys=True)


def followed(
    name: str, data: bytes, sizes: list[int], most: int
) -> tuple[list[Any], list[PlacedNote], ReadProgress | None]:
    """Rows and notes of a file that has these sizes, one after the other, and then comes to its end."""
    rows: list[Any] = []
    notes: list[PlacedNote] = []
    standing: ReadProgress | None = None
    for size in [*sizes, len(data), -1]:
        file = CaptureFile(name, name, len(data) if size < 0 else size)
        # The rest is read later, when the file has grown.
        read_at, later = reads(data[: file.size]), reads(data)
        if standing is None:
            begun = begin(file, read_at, 0)
            if begun is None:
                continue
            standing = begun[1]
        assert begins_as(read_at, standing.head)
        for _ in range(1_000):
            further = again(advance(file, read_at, standing, most, finish=size < 0))
            if (further.at, further.packets, further.finished) == (standing.at, standing.packets, standing.finished):
                break
            for batch, found in read_between(split_between(file, standing, further), later):
                rows.extend(placed_rows([batch] if batch is not None else []))
                notes.extend(found)
            standing = further
    return rows, notes, standing


@given(st.integers(0, 2**32), st.sampled_from(PLAIN), st.booleans(), st.sampled_from([500, 5_000, ENDLESS]))
def test_steps_are_the_whole(tmp_path_factory, seed: int, name: str, damage: bool, most: int) -> None:
    generator = random.Random(seed)
    data = (CAPTURES / name).read_bytes()
    if damage:
        # The place and the kind of damage are the generator's; the first packets stay.
        data = data[:2_000] + damaged(data[2_000:], generator)
    sizes = sorted(generator.randrange(len(data)) for _ in range(generator.randrange(8)))
    path = tmp_path_factory.mktemp("follow") / "capture"
    path.write_bytes(data)
    rows, notes, standing = followed(str(path), data, sizes, most)
    reference = expected([path])
    assert [row for _, row in rows] == reference.rows
    # Headers and fragments are reported for each step.
    reported = [repr(note.value) for note in notes]
    assert [text for text in reported if not ANEW.search(text)] == [
        text for _, text in reference.notes if not ANEW.search(text)
    ]
    assert standing.packets >= len(rows)


def test_a_compressed_capture_is_whole_or_not_there_yet() -> None:
    data = gzip.compress(pcap(frames(30)))
    found = whole(CaptureFile("a", "a", len(data)), reads(data), 4, complete=False)
    first, standing = found
    assert (standing.index, standing.packets, standing.at, standing.finished) == (4, 30, len(data), True)
    split = split_between(CaptureFile("a", "a", len(data)), None, standing)
    rows = [row for batch, _ in read_between(split, reads(data)) if batch is not None for row in placed_rows([batch])]
    assert [place.capture for place, _ in rows] == [4] * 30
    assert rows[0][1][3] == first
    cut = data[:-20]
    assert whole(CaptureFile("a", "a", len(cut)), reads(cut), 4, complete=False) is None
    assert whole(CaptureFile("a", "a", len(cut)), reads(cut), 4, complete=True) is not None
    with pytest.raises(CaptureError):
        whole(CaptureFile("a", "a", 40), reads(bytes(40)), 4, complete=True)
