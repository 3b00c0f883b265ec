"""Capture files as files, pipes and splits: packets and problems must not depend on the pieces. The first byte of an
input says how the content is wrapped, the second the size of the pieces; then comes the file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

import lz4.frame
import zstandard

from kafkasniff.capture import open_captures
from kafkasniff.capture.formats.converters import MAGIC_SIZE, inflater_for
from kafkasniff.capture.formats.pcap import Parsed
from kafkasniff.capture.timeline.splits import open_split, open_whole, pieces, plan
from kafkasniff.errors import CaptureError
from kafkasniff.packets import COLUMNS, PacketBatch
from tests.capture import files as pcapng
from tests.capture.segments import frames
from tests.craft.samples import mixed
from tests.craft.write import compressed, pcap_bytes, pcapng_bytes
from tests.fuzz.corpus import capture_files
from tests.fuzz.intake import Intake

MAX_LENGTH = 6000
DEAR = 2
MEGABYTES = 400
"""zstd's window may have 128 MB, and it may produce 32 MB from one piece of input (capture/formats/converters.py)."""
WORDS = (
    *map(bytes.fromhex, ("d4c3b2a1", "a1b2c3d4", "4d3cb2a1", "34cdb2a1", "0a0d0d0a", "4d3c2b1a", "1a2b3c4d")),
    *map(bytes.fromhex, ("1f8b08", "28b52ffd", "04224d18", "502a4d18", "fd377a585a00", "425a6839")),
    *(struct.pack("<I", kind) for kind in (1, 2, 3, 4, 5, 6, 10)),
)

MOST_READS: Final = 12
"""Most pieces in which a file is read: each costs a call of the parser and of the packet decoder."""

_WRAPPED: Final[tuple[Callable[[bytes], bytes], ...]] = (
    bytes,
    lambda data: gzip.compress(data, 1, mtime=0),
    lambda data: zstandard.ZstdCompressor(level=1).compress(data),
    lz4.frame.compress,
    lzma.compress,
    bz2.compress,
)


class _Drip:
    """A pipe that never has more than some bytes."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data = data
        self._at = 0
        self._most = most

    def read1(self, size: int) -> bytes:
        found = self._data[self._at : self._at + min(size, self._most)]
        self._at += len(found)
        return found

    read = read1


def _read(data: bytes, piece: int) -> object:
    """Everything that a pipe yields when it is read in pieces of this size."""
    # The size of the loss before a corrupt place in compressed data depends on the pieces.
    arrives = len(data) if inflater_for(data[:MAGIC_SIZE]) is not None else piece
    try:
        with open_captures(["-"], stdin=_Drip(data, arrives), chunk_size=piece) as source:  # type: ignore[arg-type]
            found = together(source)
            return *found, source.broken
    except CaptureError as error:
        return str(error)


def together(source: Iterable[PacketBatch]) -> tuple[object, ...]:
    """Columns, payload, notes and number of the packets of all batches; checks the rules of `PacketBatch`."""
    columns: dict[str, list[bytes]] = {name: [] for name in COLUMNS if name != "offset"}
    payload: list[bytes] = []
    notes: list[object] = []
    order = 0
    for one in source:
        assert one.end_order == order + one.packets
        places = [note.order for note in one.notes]
        assert places == sorted(places)
        assert all(order <= place <= one.end_order for place in places)
        notes += [note.value for note in one.notes]
        if len(one):
            assert order <= one.order[0]
            assert one.order[-1] < one.end_order
            assert (one.order[1:] > one.order[:-1]).all()
            assert ((one.length >= 0) & (one.length <= one.wire_length)).all()
            assert ((one.offset >= 0) & (one.offset + one.length <= len(one.buffer))).all()
            for name, parts in columns.items():
                parts.append(getattr(one, name).tobytes())
            for offset, length in zip(one.offset.tolist(), one.length.tolist(), strict=True):
                payload.append(one.buffer[offset : offset + length])
        order = one.end_order
    return {name: b"".join(parts) for name, parts in columns.items()}, payload, notes, order


def _rows(parsed: Iterable[Parsed]) -> list[Any]:
    """Packets and notes in order, as a file's reader yields them."""
    found: list[Any] = []
    for one in parsed:
        found += [(number, 0, repr(value)) for number, value in one.notes]
        packets = one.packets
        if packets is not None:
            columns = (packets.number, packets.start, packets.captured, packets.wire, packets.time_ns, packets.link)
            for number, start, captured, *rest in zip(*(column.tolist() for column in columns), strict=True):
                found.append((number, 1, packets.buffer[start : start + captured], *rest))
    return sorted(found, key=lambda row: row[:2])


def _check_splits(data: bytes, split_size: int) -> None:
    def read_at(offset: int, size: int, /) -> bytes:
        return data[offset : offset + size]

    try:
        reader = open_whole(read_at, "capture", 0, len(data))
    except CaptureError:
        return
    whole: list[Parsed] = []
    while (parsed := reader.read(1 << 20)) is not None:
        whole.append(parsed)
    splits = plan(pieces(read_at, "capture", 0, len(data), split_size), read_at)
    apart = [parsed for split in splits for parsed in open_split(split, read_at).read()]
    assert _rows(apart) == _rows(whole), "splits are not the whole"


def one_input(data: bytes) -> None:
    intake = Intake(data)
    form, size = intake.number(), intake.number()
    content = _WRAPPED[form & 3](intake.rest())
    least = -(-len(content) // MOST_READS)
    if form & 4:
        _check_splits(content, max(1 + 16 * size, least))
        return
    whole = _read(content, max(len(content), 1))
    assert _read(content, max(1 + size, least)) == whole, "a different result in other pieces"


def _every_block(order: str) -> bytes:
    """A pcapng file with each kind of block and all relevant options."""
    options = [pcapng.option(*one, order) for one in ((2, b"eth0"), (9, b"\x09"), (13, b"\x04"), (14, bytes(8)))]
    name = struct.pack(order + "HH", 1, 13) + pcapng.padded(b"\x0a\0\0\1" + b"broker.x\0") + bytes(4)
    secrets = struct.pack(order + "II", 0x544C534B, 9) + b"RSA 00 00" + bytes(3)
    drops = struct.pack(order + "IQ", 0, 1) + pcapng.option(5, struct.pack(order + "Q", 7), order) + bytes(4)
    data = frames(2)
    blocks = (
        *(pcapng.section(order), pcapng.interface(1, b"".join(options), order)),
        pcapng.interface(1, pcapng.option(9, b"\x8a", order), order, snaplen=60),
        *(pcapng.enhanced(data[0], 5, order=order), pcapng.block(4, name, order), pcapng.block(10, secrets, order)),
        *(pcapng.simple(data[1], order), pcapng.block(5, drops, order), pcapng.obsolete(data[0], 9, 1, order, drops=3)),
        *(pcapng.block(0x0BAD, b"none of ours", order), pcapng.section(order), pcapng.interface(101, b"", order)),
        pcapng.enhanced(data[1][14:], 6, order=order),
    )
    return b"".join(blocks)


def seeds() -> list[bytes]:
    files = [path.read_bytes()[:1500] for path in capture_files()[::3]]
    files += [path.read_bytes()[:2500] for path in capture_files() if path.suffix == ".pcapng"]
    packets = mixed()[:12]
    for link in ("ethernet", "vlan", "sll", "null", "raw"):
        files.append(pcap_bytes(packets[:6], link, nanoseconds=link == "vlan", order=">" if link == "sll" else "<"))
    files += [pcapng_bytes(packets, ("ethernet", "raw"), order=order, sections=2) for order in "<>"]
    files += [_every_block(order) for order in "<>"]
    files += [compressed(pcap_bytes(packets), form) for form in ("gzip", "gzip-members", "zstd", "lz4")]
    return [bytes((form, 40)) + content for content in files for form in (0, 4)] + [
        bytes((form, 9)) + content for content in files[:2] for form in (1, 2, 3, 7)
    ]
