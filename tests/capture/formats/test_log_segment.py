"""Log segments of brokers: real ones, crafted ones, cut, damaged and hostile ones."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats.broker_files import PIECE, SegmentPackets, is_segment
from kafkasniff.cli.environment import Exit
from tests.choice import examples
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.kafka import records_craft as craft

METADATA = ROOT / "captures" / "segments" / "__cluster_metadata-0"
SEGMENT = METADATA / "00000000000000000000.log"


def batches(*offsets: int, size: int = 3) -> list[bytes]:
    """Batches of that many records, from these offsets on."""
    records = [craft.Record(delta, 0, b"key", b"v" * 40) for delta in range(size)]
    return [craft.batch_of(records, base_offset=offset) for offset in offsets]


def converted(*pieces: bytes, path: str = "orders-3/00000000000000000000.log") -> tuple[bytes, str | None]:
    """The capture, and why it ends early."""
    segment = SegmentPackets(path)
    found = []
    for piece in (*pieces, None):
        if piece is None:
            segment.finish()
        else:
            segment.give(piece)
        while data := segment.take():
            found.append(data)
    return b"".join(found), segment.failure


def offsets_of(path: Path, *data: bytes) -> tuple[list[tuple[str, int, int]], str]:
    """Topic, partition and offset of the records, and the problems."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(data))
    rows = kafkasniff("sql", "SELECT topic, partition, r.offset FROM records r", path, "-q", "--format", "json").objects
    return [(row["topic"], row["partition"], row["offset"]) for row in rows], kafkasniff("decode", path).text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders-3" / "00000000000000000000.log"


def test_the_metadata_log_of_a_real_broker() -> None:
    """Copied from a broker of 4.4.0; its records begin with the leader, and register the broker."""
    found = kafkasniff("decode", SEGMENT, "-q", "--json").objects
    fetched = [one for one in found if one["type"] == "response"]
    parts = [one["body"]["responses"][0]["partitions"][0] for one in fetched]
    records = [record for part in parts for batch in part["records"]["batches"] for record in batch["records"]]
    assert [record["offset"] for record in records] == list(range(29))
    assert all(batch["crc_ok"] for part in parts for batch in part["records"]["batches"])
    text = kafkasniff("decode", SEGMENT, "-q", "-vv").text
    assert "LEADER_CHANGE" in text
    assert "RegisterBrokerRecord" in text
    snapshot = kafkasniff("decode", METADATA / "00000000000000000000-0000000000.checkpoint", "-q").text
    assert "SNAPSHOT_HEADER" in snapshot
    assert kafkasniff("decode", METADATA, "-q").text.count("←") == len(fetched) + snapshot.count("←")


def test_the_folder_names_the_partition(file: Path) -> None:
    rows, text = offsets_of(file, *batches(7, 10))
    assert rows == [("orders", 3, offset) for offset in range(7, 13)]
    assert "orders-3 3 records" in text
    selected = kafkasniff("decode", file, "-q", "--filter", "record.offset == 11", "--json").objects
    assert len(selected) == 2


@examples(20)
@given(st.lists(st.integers(0, 700), max_size=5), st.integers(0, 3))
def test_pieces_change_nothing(cuts: list[int], zeros: int) -> None:
    data = b"".join(batches(0, 3)) + bytes(40) + b"\xff" * 30 + b"".join(batches(6)) + bytes(zeros)
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[low:high] for low, high in itertools.pairwise(places)]
    assert converted(*pieces) == converted(data)


def test_zeros_of_a_segment_that_is_preallocated(file: Path) -> None:
    rows, text = offsets_of(file, *batches(0), bytes(3 * PIECE + 5))
    assert len(rows) == 3
    assert "capture-cut" not in text


def test_a_cut_batch_is_a_problem(file: Path) -> None:
    rows, text = offsets_of(file, *batches(0), batches(3)[0][:-1])
    assert len(rows) == 3
    assert "its last batch is incomplete" in text


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"\xff" * 100, id="bytes"),
        pytest.param(b"\xff" * 2 * PIECE, id="more-than-a-piece"),
        pytest.param(batches(50)[0][:80], id="a-part-of-a-batch"),
        pytest.param(batches(50)[0][:8] + b"\x05\x00\x00\x00" + batches(50)[0][12:], id="a-length-beyond-the-end"),
    ],
)
def test_reading_continues_after_a_damaged_place(damage: bytes, file: Path) -> None:
    rows, text = offsets_of(file, *batches(0), damage, *batches(100, 103))
    assert {offset for _, _, offset in rows} >= {0, 1, 2, *range(100, 106)}
    assert f"{len(damage)} bytes in it do not form batches" in text


def test_hostile_bytes_give_no_more_than_they_are() -> None:
    random = Random(7)
    heads = [batches(number)[0][:27] for number in range(40)]
    for data in (b"\0\2" * 40_000, b"".join(random.choices(heads, k=3000)), random.randbytes(100_000)):
        found, _ = converted(batches(0)[0] + data)
        assert len(found) < 2 * len(data) + 4000


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(27), id="zeros-of-an-index"),
        pytest.param(b"\n\r\r\n" + bytes(23), id="pcapng"),
        pytest.param(int(1.79e12).to_bytes(8) + (20).to_bytes(4) + bytes(15), id="an-entry-of-a-time-index"),
        pytest.param(batches(0)[0][:26], id="too-short"),
    ],
)
def test_other_files_are_no_segments(head: bytes) -> None:
    assert not is_segment(head)
    assert is_segment(batches(0)[0])


def test_an_index_is_refused_with_the_name_of_what_has_the_records(file: Path) -> None:
    file.parent.mkdir()
    file.with_suffix(".index").write_bytes(bytes(40))
    result = kafkasniff("decode", file.with_suffix(".index"))
    assert result.code == Exit.CAPTURE
    assert result.err.endswith("is not a capture (neither pcap nor pcapng); its records are in the .log file\n")
