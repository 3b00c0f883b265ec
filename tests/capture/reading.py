"""Packets of a capture source as plain rows; the rules for every source are checked on the way."""

from __future__ import annotations

import io
import ipaddress
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kafkasniff.capture import open_captures
from kafkasniff.model import Problem
from kafkasniff.packets import Note, PacketBatch


class Row(NamedTuple):
    order: int
    capture: int
    number: int
    time_ns: int
    src: str
    sport: int
    dst: str
    dport: int
    seq: int
    ack: int
    flags: int
    window: int
    payload: bytes
    wire_length: int
    ident: int


class Result(NamedTuple):
    rows: list[Row]
    notes: list[Note]
    packets: int
    broken: bool

    @property
    def kinds(self) -> list[str]:
        return [note.value.kind for note in self.notes if isinstance(note.value, Problem)]

    @property
    def payloads(self) -> list[bytes]:
        return [row.payload for row in self.rows]

    def problem(self, kind: str) -> Problem:
        (found,) = (n.value for n in self.notes if isinstance(n.value, Problem) and n.value.kind == kind)
        return found


def address(high: int, low: int) -> str:
    whole = ipaddress.IPv6Address(high << 64 | low)
    return str(whole.ipv4_mapped or whole)


def batch_rows(batch: PacketBatch) -> list[Row]:
    def numbers(*names: str) -> Iterator[tuple[int, ...]]:
        return zip(*(getattr(batch, name).tolist() for name in names), strict=True)

    rows = []
    for place, src, dst, tcp, (offset, length, wire_length, ident) in zip(
        numbers("order", "capture", "number", "time_ns"),
        numbers("src_hi", "src_lo", "src_port"),
        numbers("dst_hi", "dst_lo", "dst_port"),
        numbers("seq", "ack", "flags", "window"),
        numbers("offset", "length", "wire_length", "ident"),
        strict=True,
    ):
        assert 0 <= offset <= offset + length <= len(batch.buffer)
        assert 0 <= length <= wire_length
        payload = batch.buffer[offset : offset + length]
        ends = address(*src[:2]), src[2], address(*dst[:2]), dst[2]
        rows.append(Row(*place, *ends, *tcp, payload, wire_length, ident))
    return rows


def collect(source: Iterable[PacketBatch]) -> Result:
    """All rows and notes of a source, checked against the rules of `PacketBatch`."""
    rows: list[Row] = []
    notes: list[Note] = []
    packets = 0
    order = 0
    for batch in source:
        assert isinstance(batch.buffer, bytes)
        assert batch.end_order == order + batch.packets
        assert all(order <= note.order <= batch.end_order for note in batch.notes)
        assert [note.order for note in batch.notes] == sorted(note.order for note in batch.notes)
        found = batch_rows(batch)
        assert all(order <= row.order < batch.end_order for row in found)
        rows += found
        notes += batch.notes
        packets += batch.packets
        order = batch.end_order
    assert all(a.order < b.order for a, b in itertools.pairwise(rows))
    return Result(rows, notes, packets, getattr(source, "broken", False))


def read(*paths: str | Path, **options: Any) -> Result:
    with open_captures([str(path) for path in paths], **options) as source:
        return collect(source)


def read_bytes(data: bytes, **options: Any) -> Result:
    """Read a capture from stdin."""
    with open_captures(["-"], stdin=io.BytesIO(data), **options) as source:
        return collect(source)
