"""Captures that exercise what can go wrong between the captures of a run, and the run as `open_captures` reads it."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kafkasniff.capture import open_captures
from kafkasniff.capture.timeline.parts import Place, PlacedNote
from kafkasniff.model import NO_TIME
from kafkasniff.packets import Note, PacketBatch
from tests.capture.files import START, block, enhanced, interface, option, pcap_header, pcap_record, section, simple
from tests.capture.reading import Row, batch_rows
from tests.capture.segments import marked, segment

ETHERNET = bytes.fromhex("020000000002 020000000001 0800")


def fragments(packet: bytes, size: int, ident: int) -> list[bytes]:
    """An IPv4 packet in fragments with `size` bytes of payload each, a multiple of 8 (RFC 791)."""
    head, body = packet[:20], packet[20:]
    parts = []
    for offset in range(0, len(body), size):
        data = body[offset : offset + size]
        more = 0x2000 if offset + size < len(body) else 0
        fields = struct.pack(">HHH", 20 + len(data), ident, more | offset // 8)
        parts.append(head[:2] + fields + head[8:] + data)
    return parts


class Timeline(NamedTuple):
    """Output of `open_captures`, with the key that orders everything."""

    rows: list[tuple[Any, ...]]
    notes: list[tuple[int, str]]
    """Each with the number of rows in front of it."""


def _row(row: Row, clock: int) -> tuple[Any, ...]:
    return (clock, *row[1:])


def expected(paths: Sequence[Path], chunk_size: int = 1 << 20) -> Timeline:
    """The run read in one piece."""
    rows: list[tuple[Any, ...]] = []
    notes: list[Note] = []
    orders: list[int] = []
    with open_captures([str(path) for path in paths], chunk_size=chunk_size) as source:
        for batch in source:
            assert batch.clock is not None or not len(batch)
            for row, clock in zip(batch_rows(batch), [] if batch.clock is None else batch.clock.tolist(), strict=True):
                rows.append(_row(row, clock))
                orders.append(row.order)
            notes.extend(batch.notes)
    return Timeline(rows, [(sum(order < note.order for order in orders), repr(note.value)) for note in notes])


def placed_rows(batches: Iterable[PacketBatch], capture: int | None = None) -> list[tuple[Place, tuple[Any, ...]]]:
    """Rows of parts with their places."""
    found = []
    for batch in batches:
        assert batch.clock is not None
        for row, clock in zip(batch_rows(batch), batch.clock.tolist(), strict=True):
            assert capture is None or row.capture == capture
            found.append((Place(clock, row.capture, row.number), _row(row, clock)))
    return found


def timeline(rows: Iterable[tuple[Place, tuple[Any, ...]]], notes: Iterable[PlacedNote]) -> Timeline:
    """Output of parts, in any order, combined by their places."""
    together = sorted(rows)
    return Timeline(
        [row for _, row in together],
        [(sum(place < note.place for place, _ in together), repr(note.value)) for note in notes],
    )


def make_captures(folder: Path, seed: int, *, damage: bool = False) -> list[Path]:
    """A few captures of both formats that overlap or follow each other, with every kind of note."""
    generator = random.Random(seed)
    count = generator.randrange(1, 5)
    bodies: list[list[tuple[int, bytes, int]]] = [[] for _ in range(count)]
    """For each capture: time in microseconds or NO_TIME, packet, length on the wire."""
    now = [generator.choice([0, 0, 300 * index]) for index in range(count)]
    for number in range(generator.randrange(1, 90)):
        packet = segment(marked(number, generator.choice([10, 10, 40, 900])), seq=number)
        parts = [packet]
        kind = generator.random()
        if kind < 0.25:
            parts = fragments(packet, 16, number)
            generator.shuffle(parts)
            if generator.random() < 0.2:
                parts.pop()
        elif kind < 0.3:
            parts = [packet[: generator.randrange(1, 40)]]
        elif kind < 0.33:
            parts = [b"\x41" + packet[1:]]
        index = generator.randrange(count)
        for part in parts:
            if generator.random() < 0.3:
                index = generator.randrange(count)
            now[index] = max(0, now[index] + generator.choice([0, 1, 1, 7, 100, -30, 40_000_000]))
            time = NO_TIME if generator.random() < 0.05 else now[index]
            bodies[index].append((time, ETHERNET + part, len(ETHERNET) + len(packet)))
    paths = []
    for index, packets in enumerate(bodies):
        data = _pcap(packets) if generator.random() < 0.5 else _pcapng(packets, generator)
        if damage:
            data = damaged(data, generator)
        path = folder / f"capture-{index}.pcap"
        path.write_bytes(gzip.compress(data, 1) if generator.random() < 0.2 else data)
        paths.append(path)
    return paths


def _pcap(packets: list[tuple[int, bytes, int]]) -> bytes:
    data = pcap_header()
    last = 0
    for time, packet, wire in packets:
        last = last if time == NO_TIME else time
        data += pcap_record(packet, START + last * 1000, wire=max(wire, len(packet)))
    return data


def _pcapng(packets: list[tuple[int, bytes, int]], generator: random.Random) -> bytes:
    data = section() + interface(snaplen=0)
    second = False
    for number, (time, packet, wire) in enumerate(packets):
        if generator.random() < 0.05:
            data += block(4, option(1, bytes([10, 0, 0, number % 250]) + b"name\0") + bytes(4))
        if generator.random() < 0.03:
            data += interface(link=147)  # a type for private use, unknown to readers
            second = True
        options = option(4, struct.pack("<Q", 3)) + bytes(4) if generator.random() < 0.05 else b""
        if time == NO_TIME:
            data += simple(packet)
            continue
        which = 1 if second and generator.random() < 0.2 else 0
        data += enhanced(packet, START // 1000 + time, which, wire=max(wire, len(packet)), options=options)
    # Captures without packets are not compared: `open_captures` may report them before or after packets without a time.
    if packets and generator.random() < 0.3:
        data += block(4, option(1, bytes([10, 0, 0, 99]) + b"last\0") + bytes(4))
    return data


def damaged(data: bytes, generator: random.Random) -> bytes:
    """The same with a few bytes lost, added or changed, or with its end cut off. The beginning stays intact."""
    changed = bytearray(data)
    for _ in range(generator.randrange(3)):
        at = generator.randrange(24, max(25, len(changed)))
        match generator.randrange(4):
            case 0:
                del changed[at : at + generator.randrange(1, 300)]
            case 1:
                changed[at:at] = generator.randbytes(generator.randrange(1, 300))
            case 2:
                size = generator.randrange(1, 40)
                changed[at : at + size] = generator.randbytes(size)
            case 3:
                del changed[at:]
    return bytes(changed)
