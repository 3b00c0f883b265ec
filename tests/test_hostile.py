"""Hostile bytes: damaged captures and messages end in problems, never in an exception."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Message
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.craft.read import read_packets

CAPTURES = sorted((Path(__file__).parent.parent / "captures").glob("*.pcap*"))
assert CAPTURES


@cache
def packets_of(path: Path) -> tuple[Packet, ...]:
    return tuple(read_packets(path)[:200])


def damaged(data: bytes, chance: random.Random, times: int) -> bytes:
    """Flip, overwrite, remove, duplicate or insert bytes at some places."""
    out = bytearray(data)
    for _ in range(times):
        at = chance.randrange(len(out) + 1)
        match chance.randint(0, 5):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                out[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0"))
            case 2:
                del out[at : at + chance.randint(1, 50)]
            case 3:
                out[at:at] = out[at : at + chance.randint(1, 200)]
            case 4:
                out[at:at] = chance.randbytes(chance.randint(1, 50))
            case 5:
                del out[max(at, len(out) // 2) :]
        if not out:
            out += b"\0"
    return bytes(out)


@given(st.sampled_from(CAPTURES), st.randoms(use_true_random=False), st.integers(1, 12))
def test_damaged_messages(path: Path, chance: random.Random, times: int) -> None:
    """Payloads damaged without changing their length, so that TCP stays intact and the damage reaches the decoders."""
    packets = list(packets_of(path))
    carriers = [index for index, packet in enumerate(packets) if packet.payload]
    for _ in range(times):
        index = chance.choice(carriers)
        size = len(packets[index].payload)
        payload = damaged(packets[index].payload, chance, 1)[:size].ljust(size, b"\0")
        packets[index] = packets[index].but(payload=payload)
    whole = Inspector()
    expected = whole.feed(batch(packets)) + whole.close()
    again = Inspector()
    out = []
    rest = batch(packets)
    for cut in sorted(chance.sample(range(len(packets)), min(5, len(packets))), reverse=True):
        rest, tail = rest.split(cut)
        out.append(tail)
    events = again.feed(rest)
    for part in reversed(out):
        events += again.feed(part)
    events += again.close()
    # Compared as text: NaN, which damage may produce, does not equal itself.
    assert repr(events) == repr(expected)
    assert whole.summary == again.summary
    assert all(message.header is not None or message.problems for message in expected if isinstance(message, Message))
