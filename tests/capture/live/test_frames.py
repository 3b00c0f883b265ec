"""Headers that the kernel keeps beside packets, restored: tags, and headers of cooked capture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import CookedLinuxV2, Dot1Q, Ether

from kafkasniff.capture.formats.raw import RawPackets
from kafkasniff.capture.live.frames import ADDRESSES, COOKED_SIZE, FRONT_SIZE, VLAN_TYPE_VALID, VLAN_VALID, Frames
from kafkasniff.capture.live.ring import HEADER

MAC = bytes.fromhex("0200000000010200000000020800")


def packets(data: list[bytes]) -> RawPackets:
    size = np.array([len(one) for one in data], np.int64)
    start = np.cumsum(size) - size
    return RawPackets.build(b"".join(data), start, size, size, np.arange(len(data)), link=1, capture=0, first_number=1)


def heads(*rows: dict[str, object]) -> np.ndarray:  # type: ignore[type-arg]
    found = np.zeros(len(rows), HEADER)
    for place, row in enumerate(rows):
        for name, value in row.items():
            found[name][place] = value
    return found


def written(frames: Frames) -> list[bytes]:
    """The packets as a file has them."""
    found = []
    for row in range(frames.total):
        start, size = int(frames.packets.start[row]), int(frames.packets.captured[row])
        front = frames.front[row].tobytes()[: int(frames.front_size[row])]
        found.append(front + frames.packets.buffer[start + int(frames.replaced[row]) : start + size])
    return found


def test_packets_without_tags_stay() -> None:
    raw = packets([MAC + b"one", MAC + b"two"])
    assert written(Frames.ethernet(raw, heads({}, {}))) == [MAC + b"one", MAC + b"two"]
    assert written(Frames.plain(raw)) == [MAC + b"one", MAC + b"two"]


@pytest.mark.parametrize(("typed", "kind"), [(False, 0x8100), (True, 0x88A8)])
def test_a_tag_is_put_back(typed: bool, kind: int) -> None:
    status = VLAN_VALID | (VLAN_TYPE_VALID if typed else 0)
    head = {"status": status, "vlan_control": 0x2064, "vlan_type": 0x88A8}
    plain, tagged = written(Frames.ethernet(packets([MAC + b"plain", MAC + b"tagged"]), heads({}, head)))
    assert plain == MAC + b"plain"
    found = Ether(tagged)
    assert (found.src, found.dst) == ("02:00:00:00:00:02", "02:00:00:00:00:01")
    assert found.type == kind
    inner = Dot1Q(bytes(tagged)[14:])
    assert (inner.vlan, inner.prio, inner.type) == (100, 1, 0x0800)
    assert tagged.endswith(b"tagged")


@given(st.integers(0, 20))
def test_a_tag_of_a_packet_cut_within_its_addresses_is_omitted(size: int) -> None:
    whole = (MAC + b"abcdefghij")[:size]
    (found,) = written(Frames.ethernet(packets([whole]), heads({"status": VLAN_VALID, "vlan_control": 1})))
    assert found == (whole if size < ADDRESSES else whole[:12] + b"\x81\0\0\1" + whole[12:])


def test_headers_of_cooked_capture() -> None:
    rows = [
        {
            "protocol": 0x0800,
            "interface": 7,
            "hardware": 1,
            "kind": 4,
            "address_size": 6,
            "address": b"\2\0\0\0\0\1\0\0",
        },
        {"protocol": 0x86DD, "interface": 3, "hardware": 772, "status": VLAN_VALID, "vlan_control": 100},
    ]
    frames = Frames.cooked(packets([b"first", b"second"]), heads(*rows))
    assert frames.front_size.tolist() == [COOKED_SIZE, FRONT_SIZE]
    first, second = written(frames)
    found = CookedLinuxV2(first)
    assert (found.proto, found.ifindex, found.lladdrtype, found.pkttype, found.lladdrlen) == (0x0800, 7, 1, 4, 6)
    assert bytes(found.src)[:6] == b"\2\0\0\0\0\1"
    assert first.endswith(b"first")
    tagged = CookedLinuxV2(second)
    assert (tagged.proto, tagged.ifindex) == (0x8100, 3)
    inner = Dot1Q(second[COOKED_SIZE:])
    assert (inner.vlan, inner.type) == (100, 0x86DD)


@given(
    st.lists(st.lists(st.binary(min_size=14, max_size=20), min_size=1, max_size=4), min_size=1, max_size=3),
    st.randoms(),
)
def test_merged_frames_keep_their_headers(parts: list[list[bytes]], dice: object) -> None:
    made = [
        Frames.ethernet(
            packets(one), heads(*({"status": VLAN_VALID * (row % 2), "vlan_control": row} for row in range(len(one))))
        )
        for one in parts
    ]
    expected = [packet for one in made for packet in written(one)]
    assert written(Frames.merge(made)) == expected
    order = list(range(len(expected)))
    dice.shuffle(order)  # type: ignore[attr-defined]
    assert written(Frames.merge(made, np.array(order, np.int64))) == [expected[place] for place in order]


def test_some_of_the_packets() -> None:
    frames = Frames.plain(packets([b"a" * 14, b"b" * 14, b"c" * 14]))
    assert written(frames.pick(np.array([2, 0]))) == [b"c" * 14, b"a" * 14]
    assert written(frames.pick(np.array([False, True, False]))) == [b"b" * 14]
