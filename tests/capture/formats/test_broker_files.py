"""Files of a broker's data folder, read like captures: log segments, and the small files beside them."""

from __future__ import annotations

import itertools
import re
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats.broker_files import (
    MAX_STATE,
    PIECE,
    Converter,
    SegmentPackets,
    StatePackets,
    is_segment,
    is_state_file,
)
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


def converted_segment(
    *pieces: bytes, path: str = "orders-3/00000000000000000000.log", kind: type[Converter] = SegmentPackets
) -> tuple[bytes, str | None]:
    """The capture, and why it ends early."""
    segment: Converter = kind(path)  # type: ignore[call-arg]  # both kinds take a path
    found = []
    for piece in (*pieces, None):
        if piece is None:
            segment.finish()
        else:
            segment.push(piece)
        while data := segment.pull():
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
def test_pieces_of_a_segment_change_nothing(cuts: list[int], zeros: int) -> None:
    data = b"".join(batches(0, 3)) + bytes(40) + b"\xff" * 30 + b"".join(batches(6)) + bytes(zeros)
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[low:high] for low, high in itertools.pairwise(places)]
    assert converted_segment(*pieces) == converted_segment(data)


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
        found, _ = converted_segment(batches(0)[0] + data)
        assert len(found) < 2 * len(data) + 4000


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(27), id="zeros-of-an-index"),
        pytest.param(b"\n\r\r\n" + bytes(23), id="pcapng"),
        pytest.param(struct.pack(">7i", 9, 4200, 19, 8400, 29, 12600, 39)[:27], id="entries-of-an-index"),
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


# A data folder of 4.4.0, and what Kafka's own kafka-dump-log says of it.

BROKER = ROOT / "captures" / "segments" / "kafka-4.4.0"


def dumped() -> dict[str, list[dict[str, str]]]:
    """The entries of files by name, each with the names that kafka-dump-log uses."""
    found: dict[str, list[dict[str, str]]] = {}
    for line in (BROKER / "kafka-dump-log.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("Dumping "):
            entries = found.setdefault(line.removeprefix("Dumping "), [])
        elif line.startswith(("| offset", "producerId")):
            entries.append(dict(re.findall(r"(\w+): (\S+)", line)))
    return found


def partitions_of(name: str) -> list[dict[str, Any]]:
    """The partitions in the response that stands for a file, each with its topic."""
    *_, response = (one for one in kafkasniff("decode", BROKER / name, "-q", "--json").objects if "body" in one)
    return [
        {"topic": topic.get("name", topic.get("topic_name")), **part}
        for topic in response["body"]["topics"]
        for part in topic["partitions"]
    ]


def test_segments_as_kafka_reads_them() -> None:
    columns = '"offset", timestamp, key, value, control, sequence'
    for name, entries in dumped().items():
        if name.endswith(".log"):
            query = f"SELECT epoch_ms(timestamp) AS ms, {columns} FROM records ORDER BY 2"
            rows = kafkasniff("sql", query, BROKER / name, "-q", "--format", "json").objects
            assert [(str(row["offset"]), str(row["ms"]), str(row["sequence"])) for row in rows] == [
                (one["offset"], one["CreateTime"], one["sequence"]) for one in entries
            ]
            assert [row["control"] for row in rows] == [one.get("endTxnMarker") for one in entries]
            assert [row["value"] for row in rows if row["control"] is None] == [
                one["payload"] for one in entries if "payload" in one
            ]


def test_producers_of_snapshots_as_kafka_reads_them() -> None:
    snapshots = {name: entries for name, entries in dumped().items() if name.endswith(".snapshot")}
    assert sum(map(len, snapshots.values())) >= 4
    for name, entries in snapshots.items():
        (part,) = partitions_of(name)
        assert f"{part['topic']}-{part['partition_index']}" == name.partition("/")[0]
        assert [list(map(str, list(one.values())[:6])) for one in part["active_producers"]] == [
            [
                *(one.get(key, "-1") for key in ("producerId", "producerEpoch", "lastSequence", "lastTimestamp")),
                one["coordinatorEpoch"],
                "-1" if one["currentTxnFirstOffset"] == "None" else one["currentTxnFirstOffset"][5:-1],
            ]
            for one in entries
        ]


def test_the_small_files_of_a_data_folder() -> None:
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        lines = (BROKER / name).read_text(encoding="utf-8").splitlines()[2:]
        assert [f"{one['topic']} {one['partition_index']} {one['offset']}" for one in partitions_of(name)] == lines
    (epoch,) = partitions_of("ledger-0/leader-epoch-checkpoint")
    assert (epoch["topic"], epoch["leader_epoch"], epoch["offset"]) == ("ledger", 0, 0)
    (quorum,) = partitions_of("__cluster_metadata-0/quorum-state")
    assert (quorum["topic"], quorum["leader_id"], quorum["leader_epoch"]) == ("__cluster_metadata", 1, 1)
    assert partitions_of("log-start-offset-checkpoint") == []
    *_, named = kafkasniff("decode", BROKER / "ledger-0" / "partition.metadata", "-q", "--json").objects
    (topic,) = named["body"]["topics"]
    assert f"topic_id: {topic['topic_id']}" in (BROKER / "ledger-0" / "partition.metadata").read_text(encoding="utf-8")
    # A folder has all of them, and other commands read them, too.
    assert kafkasniff("decode", BROKER / "ledger-0", "-q").text.count(" ← ") == 10
    assert kafkasniff("stats", BROKER, "-q").code == 0


def test_quorum_state_of_earlier_releases(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(
        '{"clusterId":"","leaderId":2,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}',
        encoding="utf-8",
    )
    (part,) = partitions_of(str(file))
    assert (part["leader_epoch"], [one["replica_id"] for one in part["current_voters"]]) == (7, [1, 2])


_SNAPSHOT = (BROKER / "ledger-0" / "00000000000000000006.snapshot").read_bytes()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(_SNAPSHOT[:-1], "a snapshot of 1 producers has 55 bytes", id="cut"),
        pytest.param(_SNAPSHOT[:-1] + b"\1", "the checksum of the snapshot is wrong", id="checksum"),
        pytest.param(b"0\n2\na 0 5\n", "2 entries are announced, and 1 there", id="entries"),
        pytest.param(b"0\n1\na 0 5\na 0\n", "it is not a checkpoint", id="line"),
        pytest.param(b"0\n1\na 0 9999999999999999999\n", "", id="offset"),
        pytest.param(b'{"leaderId":1,"leaderEpoch":' + b"[" * 10**5, "", id="deep"),
        pytest.param(b'{"leaderId":1,"leaderEpoch":1,"currentVoters":[1]}', "", id="voters"),
    ],
)
def test_damaged_small_files(data: bytes, reason: str, file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(data)
    found = kafkasniff("decode", file, "-q")
    assert found.code == Exit.BROKEN
    assert f"capture-broken: {file}: " in found.text
    assert reason in found.text


def test_small_files_are_bounded_and_may_come_in_pieces() -> None:
    data = b"0\n1\na 0 5\n"
    whole = converted_segment(data, kind=StatePackets)
    assert converted_segment(*(data[at : at + 1] for at in range(len(data))), kind=StatePackets) == whole
    assert whole[1] is None
    assert converted_segment(data, *[b"a 0 5\n" * 100_000] * 40, kind=StatePackets)[1] == (
        f"it is larger than {MAX_STATE >> 20} MiB"
    )
    for head in (
        *(b"", b"0", b"0\n", b"0\nx\n", b"\0\1", b"\0\1\0\0\0\x13\1\0\0\4", b"{}"),
        *(b"version: 0\n", b"1\n1\na 0 5\n"),
    ):
        assert not is_state_file(head)
