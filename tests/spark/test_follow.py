"""Following a capture that grows: what is read of it in steps is what is read of it in one piece."""

from __future__ import annotations

import gzip
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
from kafkasniff.errors import CaptureError
from kafkasniff.spark.stream import ReadProgress, advance, begin, begins_as, read_between, split_between, whole
from tests.capture.files import pcap
from tests.capture.segments import frames
from tests.capture.timelines import damaged, expected, placed_rows

CAPTURES = Path(__file__).parents[2] / "captures"
PLAIN = (
    "java-telemetry.pcap",
    "librdkafka-ipv6-ns.pcapng",
    "librdkafka-snaplen-128.pcap",
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
    assert standing is not None
    assert standing.packets >= len(rows)


def test_a_compressed_capture_is_whole_or_not_there_yet() -> None:
    data = gzip.compress(pcap(frames(30)))
    found = whole(CaptureFile("a", "a", len(data)), reads(data), 4, complete=False)
    assert found is not None
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
