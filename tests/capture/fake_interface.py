"""An interface that plays packets from a list, in blocks, through the real live source: without root and kernel."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from kafkasniff.capture.formats.pcap import Interface, RawPackets
from kafkasniff.capture.formats.reader import CaptureReader, open_path
from kafkasniff.capture.live.frames import Frames
from kafkasniff.model import Problem

Captured = tuple[bytes, int, int]
"""Bytes of a packet, its length on the wire, its time in nanoseconds."""


def captured(path: Path) -> list[Captured]:
    """The packets of a capture."""
    reader = CaptureReader(open_path(str(path)), str(path), 0)
    found: list[Captured] = []
    while (parsed := reader.read(1 << 20)) is not None:
        if parsed.packets is not None:
            raw = parsed.packets
            columns = (raw.start.tolist(), raw.captured.tolist(), raw.wire.tolist(), raw.time_ns.tolist())
            for start, size, wire, time_ns in zip(*columns, strict=True):
                found.append((raw.buffer[start : start + size], wire, time_ns))
    reader.close()
    return found


def raw_packets(packets: Sequence[Captured], *, capture: int = 0, link: int = 1, first_number: int = 1) -> RawPackets:
    """Packets interleaved with other data, as in a block of the kernel's."""
    pieces: list[bytes] = []
    starts: list[int] = []
    position = 0
    for data, _, _ in packets:
        pieces += (b"\xee" * 82, data)
        starts.append(position + 82)
        position += 82 + len(data)
    return RawPackets.build(
        b"".join(pieces),
        np.array(starts, np.int64),
        np.array([len(data) for data, _, _ in packets], np.int64),
        np.array([wire for _, wire, _ in packets], np.int64),
        np.array([time_ns for _, _, time_ns in packets], np.int64),
        link=link,
        capture=capture,
        first_number=first_number,
    )


class FakeInterface:
    """Stands in for `InterfaceSocket`. `blocks`: number of packets per block, in turns."""

    poll_seconds = None

    def __init__(
        self, name: str, capture: int, packets: Iterable[Captured], blocks: Sequence[int] = (7,), lost: int = 0
    ) -> None:
        self.name = name
        self.error: str | None = None
        self.packets = 0
        self.blocks = 1_000_000
        self.backlog = 0.0
        self.decoded = Interface(1, capture, name)
        self.written = Interface(1, capture, name, 262_144)
        self._socket, self._other = socket.socketpair()
        self._capture = capture
        self._blocks = self._cut(list(packets), blocks)
        self._lost = lost

    def _cut(self, packets: list[Captured], blocks: Sequence[int]) -> Iterator[list[Captured]]:
        turn = 0
        while packets:
            count = blocks[turn % len(blocks)]
            yield packets[:count]
            packets = packets[count:]
            turn += 1

    def fileno(self) -> int:
        return self._socket.fileno()

    def read_frames(self) -> Frames | None:
        block = next(self._blocks, None)
        if block is None:
            return None
        packets = raw_packets(block, capture=self._capture, first_number=self.packets + 1)
        self.packets += len(block)
        return Frames.plain(packets)

    def check(self) -> bool:
        return True

    def resume(self) -> bool:
        return False

    def counts(self) -> tuple[int, int]:
        return self.packets + self._lost, self._lost

    def fresh_loss(self) -> Problem | None:
        return None

    def problems(self) -> list[Problem]:
        return []

    def close(self) -> None:
        self._socket.close()
        self._other.close()
