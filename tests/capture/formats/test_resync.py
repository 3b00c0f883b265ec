"""Finding the next record after corrupt places."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats import file_parser
from kafkasniff.capture.formats import pcapng as pcapng_format
from kafkasniff.capture.formats.packet_blocks import read_blocks
from kafkasniff.capture.formats.resync import FIRST_REACH, RESYNC_LIMIT
from tests.capture.files import block, enhanced, interface, pcap, pcap_header, pcap_record, section
from tests.capture.reading import Result, read_bytes
from tests.capture.segments import frames, numbers
from tests.conftest import ROOT

COUNT = 20
RECORD = 16 + 14 + 40 + 40


def pcapng(order: str = "<") -> tuple[bytes, int, int]:
    """A pcapng file of COUNT frames: (bytes, size of what precedes them, size of a block)."""
    head = section(order) + interface(order=order)
    blocks = [enhanced(data, n, order=order) for n, data in enumerate(frames(COUNT))]
    return head + b"".join(blocks), len(head), len(blocks[0])


def reported(result: Result) -> int:
    assert result.broken
    return result.problem("capture-broken").bytes or 0


@pytest.mark.parametrize("reach", [16, 100, 1000])
@pytest.mark.parametrize("name", ["java-telemetry.pcap", "librdkafka-ipv6-ns.pcapng"])
def test_chunk_size_changes_nothing(monkeypatch: pytest.MonkeyPatch, name: str, reach: int) -> None:
    data = bytearray((ROOT / "captures" / name).read_bytes()[:30_000])
    for at in range(2_000, len(data), 1_700):
        data[at : at + 40] = b"\xff" * 40
    whole = read_bytes(bytes(data))
    assert whole.kinds.count("capture-broken") >= 2
    monkeypatch.setattr(file_parser, "FIRST_REACH", reach)
    monkeypatch.setattr(file_parser, "LARGEST_REACH", reach)
    assert read_bytes(bytes(data)) == whole


def test_many_corrupt_blocks_do_not_cause_repeated_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counting(data: bytes, starts: list[int], *rest: Any) -> Any:
        nonlocal looked_at
        looked_at += len(starts)
        return read_blocks(data, starts, *rest)

    monkeypatch.setattr(pcapng_format, "read_blocks", counting)
    count, body = 3_000, b"\xff" * 16
    blocks = [block(6, struct.pack("<5I", 0, 0, number, 16 + (number % 5 == 0), 17) + body) for number in range(count)]
    result = read_bytes(section() + interface() + b"".join(blocks))
    assert len(result.kinds) == count // 5
    assert result.packets == count - count // 5
    # As many as fit into the first read follow each.
    assert looked_at < count + count // 5 * (FIRST_REACH // len(blocks[0]) + 1)


@pytest.mark.parametrize("chunk_size", [1, 100, 1 << 24])
@pytest.mark.parametrize(
    ("name", "at", "damage"),
    [
        ("implausible length", 8, struct.pack("<I", 0x7FFFFFFF)),
        ("length of the next 100 MB", 8, struct.pack("<I", 100_000_000)),
        ("no bytes on the wire", 8, bytes(8)),
        ("fraction of more than a second", 4, struct.pack("<I", 0xFFFFFFFF)),
    ],
)
def test_a_corrupt_pcap_record_costs_only_itself(name: str, at: int, damage: bytes, chunk_size: int) -> None:
    data = bytearray(pcap(frames(COUNT)))
    place = 24 + 5 * RECORD + at
    data[place : place + len(damage)] = damage
    result = read_bytes(bytes(data), chunk_size=chunk_size)
    assert numbers(result.payloads) == [n for n in range(COUNT) if n != 5]
    problem = result.problem("capture-broken")
    assert reported(result) == RECORD
    assert problem.packet == 5
    assert f"at byte {24 + 5 * RECORD} (after packet 5)" in problem.detail
    # The problem is reported where the bytes are missing.
    assert [note.order for note in result.notes] == [5]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("at", "damage"),
    [
        (4, b"\xff\xff\xff\xff"),  # length
        (4, b"\0\0\0\0"),
        (20, b"\x7f\xff\xff\x7f"),  # captured length
        (-4, b"\0\0\0\1"),  # the length again
    ],
)
@pytest.mark.parametrize("chunk_size", [1, 100, 1 << 24])
def test_a_corrupt_pcapng_block_costs_only_itself(order: str, at: int, damage: bytes, chunk_size: int) -> None:
    whole, head, size = pcapng(order)
    data = bytearray(whole)
    place = head + 5 * size + at % size
    data[place : place + len(damage)] = damage
    result = read_bytes(bytes(data), chunk_size=chunk_size)
    assert numbers(result.payloads) == [n for n in range(COUNT) if n != 5]
    assert reported(result) == size


@pytest.mark.parametrize("size", [1, 7, 1000, 300_000])
def test_garbage_between_records(size: int) -> None:
    garbage = random.Random(size).randbytes(size)
    records = [pcap_record(data) for data in frames(COUNT)]
    result = read_bytes(pcap_header() + b"".join(records[:7]) + garbage + b"".join(records[7:]))
    assert numbers(result.payloads) == list(range(COUNT))
    assert reported(result) == size
    whole, head, block_size = pcapng()
    place = head + 7 * block_size
    result = read_bytes(whole[:place] + garbage + whole[place:])
    assert numbers(result.payloads) == list(range(COUNT))
    assert reported(result) == size


def test_zeros_to_the_end_are_skipped() -> None:
    """Padding that a file system leaves after a crash."""
    result = read_bytes(pcap(frames(3)) + bytes(100_000))
    assert numbers(result.payloads) == [0, 1, 2]
    assert reported(result) == 100_000
    assert "cannot be read" in result.problem("capture-broken").detail


def test_two_concatenated_files() -> None:
    result = read_bytes(pcap(frames(5)) + pcap(frames(5)))
    assert numbers(result.payloads) == [0, 1, 2, 3, 4] * 2
    assert reported(result) == 24


def test_the_last_record_is_found_without_a_chain() -> None:
    data = pcap(frames(3))
    broken = bytearray(data)
    broken[24 + RECORD + 8 : 24 + RECORD + 12] = b"\xff" * 4
    assert numbers(read_bytes(bytes(broken)).payloads) == [0, 2]


def test_the_search_is_bounded() -> None:
    result = read_bytes(pcap(frames(2)) + b"\xff" * (RESYNC_LIMIT + (1 << 20)) + pcap(frames(9))[24:])
    assert numbers(result.payloads) == [0, 1]
    assert "cannot be read" in result.problem("capture-broken").detail


def test_an_unknown_block_of_wrong_length_is_corrupt() -> None:
    whole, head, size = pcapng()
    odd = bytearray(block(0x0BADF00D, bytes(100)))
    odd[-4:] = b"\1\2\3\4"
    place = head + 3 * size
    result = read_bytes(whole[:place] + bytes(odd) + whole[place:])
    assert numbers(result.payloads) == list(range(COUNT))
    assert reported(result) == len(odd)


@given(
    st.lists(st.tuples(st.integers(0, COUNT * RECORD + 23), st.integers(0, 255)), min_size=1, max_size=8),
    st.sampled_from([1, 64, 1000]),
    st.booleans(),
)
def test_any_damage_gives_the_same_rows_for_any_chunk_size(
    damage: list[tuple[int, int]], chunk_size: int, ng: bool
) -> None:
    data = bytearray(pcapng()[0] if ng else pcap(frames(COUNT)))
    for place, value in damage:
        if place >= 28:  # the file header stays: without it this is not a capture
            data[place % len(data)] = value
    whole = read_bytes(bytes(data))
    assert read_bytes(bytes(data), chunk_size=chunk_size) == whole
