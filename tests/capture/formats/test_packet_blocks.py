"""Packet blocks as columns: every kind, corrupt ones, and the options after their packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats.packet_blocks import PacketBlocks, read_blocks
from tests.capture.files import enhanced, obsolete, option, simple

ORDERS = pytest.mark.parametrize("order", ["<", ">"])
END_OF_OPTIONS = bytes(4)


def columns(blocks: list[bytes], order: str = "<", snaplen: int = 0) -> tuple[bytes, PacketBlocks, int | None]:
    starts = [sum(map(len, blocks[:index])) for index in range(len(blocks))]
    data = b"".join(blocks)
    found, bad = read_blocks(data, starts, order, snaplen)
    return data, found, bad


def packets(data: bytes, found: PacketBlocks) -> list[bytes]:
    spans = zip(found.start.tolist(), found.captured.tolist(), strict=True)
    return [data[start : start + size] for start, size in spans]


made = st.tuples(
    st.sampled_from(["enhanced", "obsolete", "simple"]),
    st.binary(max_size=9),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 9),
)


@given(st.lists(made, min_size=1, max_size=6), st.sampled_from(["<", ">"]))
def test_each_kind_beside_any_other(given_: list[tuple[str, bytes, int, int]], order: str) -> None:
    blocks = []
    for kind, packet, ticks, number in given_:
        if kind == "enhanced":
            blocks.append(enhanced(packet, ticks, number, order))
        elif kind == "obsolete":
            blocks.append(obsolete(packet, ticks, number, order))
        else:
            blocks.append(simple(packet, order))
    data, found, bad = columns(blocks, order)
    assert bad is None
    assert packets(data, found) == [packet for _, packet, *_ in given_]
    has_head = [kind != "simple" for kind, *_ in given_]
    assert found.timed.tolist() == has_head
    numbers = zip(given_, has_head, strict=True)
    assert list(zip(found.ticks.tolist(), found.interface.tolist(), strict=True)) == [
        (ticks, number) if known else (0, 0) for (_, _, ticks, number), known in numbers
    ]
    assert found.drops.tolist() == found.fcs.tolist() == [0] * len(blocks)


@ORDERS
def test_packets_that_were_cut(order: str) -> None:
    """The snap length is only in the interface for simple blocks."""
    blocks = [enhanced(b"abcd", 1, 0, order, wire=100), simple(b"abcdefgh", order, wire=90)]
    data, found, _ = columns(blocks, order, snaplen=5)
    assert packets(data, found) == [b"abcd", b"abcde"]
    assert found.wire.tolist() == [100, 90]
    _, found, _ = columns([simple(b"abcdefgh", order, wire=90)], order)
    assert found.captured.tolist() == [8]


def test_a_length_on_the_wire_below_the_captured_one() -> None:
    _, found, _ = columns([enhanced(b"abcdef", 1, wire=2)])
    assert (found.captured.tolist(), found.wire.tolist()) == ([6], [6])


@pytest.mark.parametrize("at", ["trailer", "captured"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_rows_up_to_the_first_corrupt_block(at: str, place: int) -> None:
    blocks = [enhanced(b"packet-%d" % number, number) for number in range(3)]
    broken = bytearray(blocks[place])
    if at == "trailer":
        broken[-1] ^= 1
    else:
        broken[20:24] = (10_000).to_bytes(4, "little")
    blocks[place] = bytes(broken)
    data, found, bad = columns(blocks)
    assert bad == place
    assert packets(data, found) == [b"packet-%d" % number for number in range(place)]


@ORDERS
@pytest.mark.parametrize(
    ("options", "fcs", "drops"),
    [
        ([(2, (4 << 5).to_bytes(4, "big"))], 4, 0),
        ([(2, (4 << 5).to_bytes(4, "big")), (0, b"")], 4, 0),
        ([(4, (7).to_bytes(8, "big"))], 0, 7),
        ([(1, b"a comment"), (4, (7).to_bytes(8, "big")), (2, (2 << 5).to_bytes(4, "big"))], 2, 7),
        # Values of a wrong size are skipped, and absurd counts stay below 2^63.
        ([(2, b"\1"), (4, b"\1")], 0, 0),
        ([(4, b"\xff" * 8)], 0, 2**62),
        ([(0, b"")], 0, 0),
    ],
)
def test_options_after_the_packet(options: list[tuple[int, bytes]], fcs: int, drops: int, order: str) -> None:
    raw = b""
    for code, value in options:
        turned = value[::-1] if order == "<" and code in {2, 4} else value
        raw += option(code, turned, order)
    _, found, bad = columns([enhanced(b"abc", 1, 0, order, options=raw), enhanced(b"d", 2, 0, order)], order)
    assert bad is None
    assert (found.fcs.tolist(), found.drops.tolist()) == ([fcs, 0], [drops, 0])


@ORDERS
def test_drops_of_obsolete_blocks(order: str) -> None:
    _, found, _ = columns([obsolete(b"a", 1, 0, order, drops=5), obsolete(b"a", 1, 0, order, drops=0xFFFF)], order)
    assert found.drops.tolist() == [5, 0]
