"""Packets of a written capture, and the bytes that become known for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kafkasniff.capture.write import output_files
from kafkasniff.capture.write.output_files import PatchedFile
from kafkasniff.native import kernel
from kafkasniff.native.blanking import PIECE, PLACE, StreamPieces
from kafkasniff.redact import stream_reading as places_of
from kafkasniff.redact.stream_reading import Places
from tests.craft.packet import checksum

HEADER = 20
NOTHING = StreamPieces(np.zeros(0, PIECE), bytearray())


class Capture:
    """Packets of connection 0, of which each is a TCP header and its payload."""

    def __init__(self, file: PatchedFile) -> None:
        self.file = file
        native = kernel()
        self.places = Places(native, file)

    def fresh(self, *packets: tuple[int, bytes], stream: int = 0) -> NDArray[np.void]:
        """Write packets with these positions and payloads."""
        rows = np.zeros(len(packets), PLACE)
        for row, (position, payload) in zip(rows, packets, strict=True):
            header = self.file.append(bytes(HEADER) + payload)
            row["stream"], row["position"], row["end"] = stream, position, position + len(payload)
            row["header"], row["at"], row["fresh"] = header, header + HEADER, 1
        return rows

    def payload(self, place: np.void) -> bytes:
        return self.file.read(int(place["at"]), int(place["end"] - place["position"]))

    def is_right(self, place: np.void) -> bool:
        data = self.file.read(
            int(place["header"]), int(place["at"] + place["end"] - place["position"] - place["header"])
        )
        return checksum(data) == 0


def pieces(*found: tuple[int, bytes], stream: int = 0) -> StreamPieces:
    rows, arena = np.zeros(len(found), PIECE), bytearray()
    for row, (position, data) in zip(rows, found, strict=True):
        row["stream"], row["position"], row["start"], row["size"] = stream, position, len(arena), len(data)
        arena += data
    return StreamPieces(rows, arena)


@pytest.fixture
def capture(tmp_path: Path) -> Iterator[Capture]:
    with PatchedFile(str(tmp_path / "out.pcap")) as file:
        yield Capture(file)


def payloads(capture: Capture, rows: Sequence[np.void]) -> list[bytes]:
    assert all(capture.is_right(row) for row in rows)
    return [capture.payload(row) for row in rows]


def test_packets_on_the_disk_are_changed_there(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_files, "KEPT", 0)
    rows = capture.fresh((0, b"abc"), (3, b"def"))
    capture.places.show(rows, NOTHING)
    capture.file.settle()
    again = capture.fresh((0, b"...."))
    capture.places.show(again, pieces((0, b"ABCDEF")))
    assert payloads(capture, [*rows, *again]) == [b"ABC", b"DEF", b"ABCD"]
    capture.places.settle(np.array([0]), np.array([[6, 0]]))
    capture.file.settle()
    last = capture.fresh((1, b"..."))
    capture.places.show(last, NOTHING)
    assert payloads(capture, last) == [b"BCD"]


def test_streams_with_too_many_packets_lose_the_first(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_of, "MAX_PLACES", 4)
    rows = capture.fresh(*((at, b".") for at in range(5)))
    other = capture.fresh((0, b"."), stream=1)
    capture.places.show(np.concatenate((rows, other)), NOTHING)
    capture.places.settle(np.array([0]), np.zeros((1, 2), np.int64))
    capture.places.show(rows[:0], pieces((0, b"abcde")))
    assert payloads(capture, rows) == [b"\xff"] * 3 + [b"d", b"e"]
    capture.places.show(rows[:0], pieces((0, b"a"), stream=1))
    assert payloads(capture, other) == [b"a"]


def test_too_many_known_packets_are_forgotten_by_age(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_of, "MAX_KNOWN", 3)
    for at in range(4):
        capture.places.show(capture.fresh((at, b".")), pieces((at, bytes([65 + at]))))
        capture.places.settle(np.array([0]), np.array([[at + 1, 0]]))
    again = capture.fresh((0, b"...."))
    capture.places.show(again, NOTHING)
    assert payloads(capture, again) == [b"\xff\xffCD"]
