"""Headers of packets by the kernel and by Python: the same columns, counts and problems, whatever the packets are."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

from kafkasniff.capture.formats.pcap import Interface, RawPackets
from kafkasniff.capture.link import decode
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.native import kernel
from kafkasniff.native.headers import read_headers
from kafkasniff.packets import COLUMNS
from tests.capture.fake_interface import raw_packets
from tests.choice import fewer


@contextmanager
def by_layers() -> Iterator[None]:
    """Python reads all headers, layer by layer."""
    nothing = {"rows": np.empty(0, np.int64)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "read_headers", lambda _kernel, _data, columns: (nothing, np.arange(len(columns[0]))))
        yield


def read(packets: RawPackets, *, native: bool) -> list[Any]:
    """Columns, payloads, notes, problems and fragments."""
    decoder = PacketDecoder(("a.pcap",), lambda _capture, index: Interface(int(packets.link[0]), index))
    with nullcontext() if native else by_layers():
        batch = decoder.decode(packets, 0, [])
    return [
        {name: getattr(batch, name).tolist() for name in COLUMNS},
        [batch.buffer[at : at + size] for at, size in zip(batch.offset.tolist(), batch.length.tolist(), strict=True)],
        [(note.order, note.value) for note in batch.notes],
        [*decoder.finish(0), *decoder.close()],
        [rows.tolist() for rows in decoder.fragment_rows],
    ]


def check(datas: list[bytes], link: int = 1, wires: list[int] | None = None) -> int:
    """Both ways read the same; how many packets the kernel read."""
    sizes = map(len, datas) if wires is None else wires
    packets = raw_packets(list(zip(datas, sizes, range(len(datas)), strict=True)), link=link)
    assert read(packets, native=True) == read(packets, native=False)
    columns, left = read_headers(
        kernel(), packets.buffer, (packets.start, packets.captured, packets.wire, packets.link)
    )
    assert sorted([*columns["rows"].tolist(), *left.tolist()]) == list(range(len(datas)))
    return len(columns["rows"])


def segment(payload: bytes = b"kafka", options: bytes = b"") -> bytes:
    size = 20 + len(options)
    head = struct.pack(">HHIIBBHHH", 40_000, 9092, 7, 9, size // 4 << 4, 0x18, 500, 0xBEEF, 0)
    return head + options + payload


def ip4(inner: bytes, *, fragment: int = 0, options: bytes = b"", protocol: int = 6, total: int | None = None) -> bytes:
    size = 20 + len(options)
    total = size + len(inner) if total is None else total
    head = struct.pack(
        ">BBHHHBBH4s4s", 0x40 | size // 4, 0, total, 77, fragment, 64, protocol, 0, b"\n\0\0\1", b"\n\0\0\2"
    )
    return head + options + inner


def ip6(inner: bytes, *, following: int = 6, size: int | None = None) -> bytes:
    length = len(inner) if size is None else size
    return struct.pack(">IHBB", 0x600A_BCDE, length, following, 64) + bytes(range(32)) + inner


def ethernet(inner: bytes, kind: int = 0x0800) -> bytes:
    return bytes(12) + struct.pack(">H", kind) + inner


PLAIN = [
    ethernet(ip4(segment())),
    ethernet(ip4(segment(options=b"\1\1\1\1"), options=b"\1\1\1\1")),
    ethernet(ip4(segment())) + b"padding",
    ethernet(ip4(segment(), total=0)),
    ethernet(ip4(segment(b""), fragment=0x4000)),
    ethernet(ip6(segment()), 0x86DD),
    ethernet(ip6(segment()), 0x86DD) + b"padding",
    # The type says IPv4, the version IPv6.
    ethernet(ip6(segment())),
]
OTHERS = [
    b"",
    bytes(13),
    ethernet(b""),
    ethernet(b"", 0x0806),
    ethernet(ip4(segment(), fragment=0x2000)),
    ethernet(ip4(segment(), protocol=17)),
    ethernet(ip4(segment(), protocol=47)),
    ethernet(ip4(segment(), total=30)),
    ethernet(ip4(segment(), total=10)),
    ethernet(ip6(segment(), size=0), 0x86DD),
    ethernet(ip6(segment(), following=44), 0x86DD),
    ethernet(struct.pack(">HH", 5, 0x0800) + ip4(segment()), 0x8100),
    ethernet(bytes([0x50]) + bytes(40)),
]


def test_plain_packets_are_read_by_the_kernel() -> None:
    assert check(PLAIN) == len(PLAIN)
    assert check([data[14:] for data in PLAIN], link=101) == len(PLAIN)


def test_all_others_are_left_to_python() -> None:
    assert check(OTHERS) == 0
    assert check(PLAIN, link=113) == 0
    # And both together come in the packets' order.
    assert check([data for pair in zip(PLAIN, OTHERS, strict=False) for data in pair]) == len(PLAIN)


def test_packets_cut_anywhere() -> None:
    for data in (*PLAIN, *OTHERS):
        cuts = [data[:size] for size in range(len(data) + 1)]
        check(cuts)
        check(cuts, wires=[len(data)] * len(cuts))


def changed(rng: random.Random) -> bytes:
    """A packet with some bytes that decide what it is changed."""
    data = bytearray(rng.choice((*PLAIN, *OTHERS)) + bytes(rng.randrange(8)))
    for _ in range(rng.randrange(4)):
        if data:
            data[rng.randrange(min(len(data), 70))] = rng.choice(
                (0, 1, 4, 5, 6, 0x45, 0x46, 0x60, 0xFF, rng.randrange(256))
            )
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data)


def test_changed_packets() -> None:
    rng, read_natively = random.Random(1), 0
    for _ in range(fewer(100, 200)):
        datas = [changed(rng) for _ in range(rng.randrange(1, 60))]
        link = rng.choice((1, 1, 101, 12, 113))
        read_natively += check(datas, link, [len(data) + rng.choice((0, 0, 0, 9, 2**31)) for data in datas])
    assert read_natively > 250


def test_places_outside_of_the_buffer_are_left() -> None:
    data = PLAIN[0]
    for start, captured, wire in (
        *((-1, 60, 60), (0, -1, 60), (0, 60, -1), (1, 60, 60)),
        *((1 << 62, 60, 60), (0, 1 << 62, 0)),
    ):
        columns = [np.array([value], np.int64) for value in (start, captured, wire)]
        found, left = read_headers(kernel(), data[:59], [*columns, np.array([1], np.int32)])
        assert (len(found["rows"]), left.tolist()) == (0, [0])
