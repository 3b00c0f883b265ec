"""One interface's socket: link types, options, counts, and what happens if the kernel refuses."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kafkasniff.capture.formats.raw import IGNORED_LINK
from kafkasniff.capture.live import interface_socket as module
from kafkasniff.capture.live.frames import COOKED_SIZE
from kafkasniff.capture.live.interface_socket import (
    ARPHRD_ETHER,
    ARPHRD_LOOPBACK,
    DEFAULT_SNAPLEN,
    LINK_COOKED,
    LINK_ETHERNET,
    LINK_RAW,
    PACKET_OUTGOING,
    InterfaceSocket,
    end_problems,
    fresh_loss,
)
from kafkasniff.capture.live.ring import HEADER, SOL_PACKET, Block
from kafkasniff.errors import CaptureError, MissingPartError, UsageError
from tests.capture.network import on_own_loopback
from tests.capture.waiting import PATIENCE

ARPHRD_NONE = 65_534
"""A tunnel, such as WireGuard's."""


class FakeSocket:
    """A packet socket that cannot be bound if `refuses` is an error."""

    def __init__(self, kind: int, refuses: OSError | None) -> None:
        self.kind = kind
        self.options: list[tuple[int, int]] = []
        self.bound: list[Any] = []
        self.closed = False
        self.error = 0
        self.refuses = refuses

    def setsockopt(self, level: int, option: int, value: object) -> None:
        self.options.append((level, option))

    def getsockopt(self, level: int, option: int) -> int:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR)
        return self.error

    def bind(self, address: object) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.bound.append(address)

    def fileno(self) -> int:
        return 5

    def close(self) -> None:
        self.closed = True


class FakeRing:
    """Blocks that the test gives, and counts that the kernel resets whenever it is asked."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.found: list[Block] = []
        self.numbers: list[tuple[int, int] | OSError] = []
        self.closed = False
        self.blocks = 4

    def take(self) -> Block | None:
        return self.found.pop(0) if self.found else None

    def statistics(self) -> tuple[int, int]:
        number = self.numbers.pop(0) if self.numbers else (0, 0)
        if isinstance(number, OSError):
            raise number
        return number

    def backlog(self) -> float:
        return 0.25

    def close(self) -> None:
        self.closed = True


class World:
    """The kernel as the socket sees it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.socket = FakeSocket(0, None)
        self.refuses: OSError | None = None
        """Raised by `bind`."""
        self.rings: list[FakeRing] = []
        self.hardware = ARPHRD_ETHER
        self.denied = False
        self.no_memory = False
        self.everywhere: list[object] = []
        patch.setattr(module, "hardware_type", lambda name: self.hardware)
        patch.setattr(module.socket, "socket", self._open)
        patch.setattr(module, "Ring", self._ring)
        patch.setattr(module, "make_effective", lambda capabilities: None)
        patch.setattr(module, "_bind_everywhere", self.everywhere.append)
        patch.setattr(module.socket, "if_nametoindex", lambda name: 3)

    def _open(self, family: int, kind: int, protocol: int) -> FakeSocket:
        # Protocol 0: the socket receives nothing before it is bound.
        assert (family, protocol) == (socket.AF_PACKET, 0)
        if self.denied:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self.socket = FakeSocket(kind, self.refuses)
        return self.socket

    def _ring(self, target: FakeSocket, size: int | None) -> FakeRing:
        assert not target.bound
        if self.no_memory:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        self.rings.append(FakeRing(size))
        return self.rings[-1]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def opened(name: str = "eth7", **options: Any) -> InterfaceSocket:
    return InterfaceSocket(
        name, 2, **{"bpf": None, "snaplen": DEFAULT_SNAPLEN, "buffer": None, "promiscuous": False, **options}
    )


def block(*packets: tuple[int, int, int]) -> Block:
    """Packets of 60 bytes: (Ethernet type, hardware, kind) of each."""
    count = len(packets)
    columns = np.array(packets, np.int64).reshape(count, 3)
    sizes = np.full(count, 60, np.int64)
    return Block(
        bytes(60 * count),
        np.arange(count) * 60,
        sizes,
        sizes,
        np.arange(count),
        columns[:, 0].astype(np.uint16),
        columns[:, 1].astype(np.uint16),
        columns[:, 2].astype(np.uint8),
        np.zeros(count, HEADER),
    )


@pytest.mark.parametrize("hardware", [ARPHRD_ETHER, ARPHRD_LOOPBACK])
def test_packets_with_ethernet_headers(world: World, hardware: int) -> None:
    world.hardware = hardware
    found = opened(snaplen=1000)
    assert world.socket.kind == socket.SOCK_RAW
    assert (found.decoded.link, found.written.link) == (LINK_ETHERNET, LINK_ETHERNET)
    assert found.written.snaplen == 1000
    assert world.socket.bound == [("eth7", module.ETH_P_ALL)]


def test_packets_without_link_headers(world: World) -> None:
    """Files have headers that the kernel's data on each packet is made into."""
    world.hardware = ARPHRD_NONE
    found = opened(snaplen=1000)
    assert world.socket.kind == socket.SOCK_DGRAM
    assert (found.decoded.link, found.written.link) == (LINK_RAW, LINK_COOKED)
    assert found.written.snaplen == 1000 + COOKED_SIZE


def test_all_interfaces(world: World) -> None:
    """Python cannot bind to interface 0, and the packets have no link headers in common."""
    found = opened("any")
    assert world.everywhere == [world.socket]
    assert world.socket.bound == []
    assert world.socket.kind == socket.SOCK_DGRAM
    assert found.written.link == LINK_COOKED


def test_promiscuous_only_if_requested(world: World) -> None:
    opened()
    assert (SOL_PACKET, module.PACKET_ADD_MEMBERSHIP) not in world.socket.options
    opened(promiscuous=True)
    assert (SOL_PACKET, module.PACKET_ADD_MEMBERSHIP) in world.socket.options
    with pytest.raises(UsageError, match="no promiscuous mode on any"):
        opened("any", promiscuous=True)


@pytest.mark.parametrize(
    ("bpf", "snaplen", "attached"), [(None, DEFAULT_SNAPLEN, 0), (None, 100, 1), ("tcp", DEFAULT_SNAPLEN, 1)]
)
def test_filters_are_attached_before_the_socket_is_bound(
    world: World, monkeypatch: pytest.MonkeyPatch, bpf: str | None, snaplen: int, attached: int
) -> None:
    seen: list[tuple[str, int, int]] = []
    monkeypatch.setattr(module, "compile_filter", lambda *asked: seen.append(asked) or b"code")

    def attach(target: FakeSocket, code: bytes) -> None:
        assert (code, target.bound, world.rings) == (b"code", [], [])
        seen.append(("attached", 0, 0))

    monkeypatch.setattr(module, "attach", attach)
    opened(bpf=bpf, snaplen=snaplen)
    assert seen == [(bpf or "", LINK_ETHERNET, snaplen), ("attached", 0, 0)] * attached


def test_without_privileges(world: World) -> None:
    world.denied = True
    with pytest.raises(MissingPartError, match="capturing on eth7 needs the capability CAP_NET_RAW"):
        opened()


def test_no_memory_for_the_ring(world: World) -> None:
    world.no_memory = True
    with pytest.raises(CaptureError, match=r"eth7: cannot be captured \(no memory for a ring of 64 MiB"):
        opened(buffer=64)
    assert world.socket.closed
    with pytest.raises(CaptureError, match="Cannot allocate memory"):
        opened()


def test_an_interface_that_is_gone_when_it_is_bound(world: World) -> None:
    world.refuses = OSError(errno.ENODEV, "No such device")
    with pytest.raises(CaptureError, match=r"eth7: cannot be captured \(No such device"):
        opened()
    assert world.socket.closed
    assert world.rings[0].closed


def test_sizes_of_rings_are_mebibytes(world: World) -> None:
    opened(buffer=3)
    opened()
    assert [ring.size for ring in world.rings] == [3 << 20, None]
    assert opened().blocks == 4
    assert opened().backlog == 0.25


def test_packets_are_numbered_over_blocks(world: World) -> None:
    found = opened()
    ring = world.rings[0]
    ipv4 = (0x0800, ARPHRD_ETHER, 0)
    ring.found = [block(ipv4, ipv4), block(ipv4)]
    first, second = found.take(), found.take()
    assert first is not None
    assert second is not None
    assert found.take() is None
    assert [first.packets.number.tolist(), second.packets.number.tolist()] == [[1, 2], [3]]
    assert found.packets == 3
    assert first.packets.capture.tolist() == [2, 2]


def test_loopback_is_seen_once(world: World) -> None:
    """It sends and receives each packet: the copy that it sends is dropped. Other interfaces send no copies."""
    world.hardware = ARPHRD_LOOPBACK
    found = opened()
    sent, received = (0x0800, ARPHRD_LOOPBACK, PACKET_OUTGOING), (0x0800, ARPHRD_LOOPBACK, 0)
    elsewhere = (0x0800, ARPHRD_ETHER, PACKET_OUTGOING)
    world.rings[0].found = [block(sent, received, elsewhere, sent, received)]
    frames = found.take()
    assert frames is not None
    assert frames.packets.time_ns.tolist() == [1, 2, 4]
    assert found.packets == 3


def test_only_ip_is_decoded_without_link_headers(world: World) -> None:
    world.hardware = ARPHRD_NONE
    found = opened()
    world.rings[0].found = [block(*((kind, ARPHRD_NONE, 0) for kind in (0x0800, 0x86DD, 0x0806)))]
    frames = found.take()
    assert frames is not None
    assert frames.packets.link.tolist() == [LINK_RAW, LINK_RAW, IGNORED_LINK]


def test_losses_are_those_since_the_last_report(world: World) -> None:
    found = opened()
    world.rings[0].numbers = [(1_500, 0), (100, 7), (0, 0), OSError("gone")]
    assert found.fresh_loss() is None
    problem = found.fresh_loss()
    assert problem is not None
    assert (problem.kind, problem.capture) == ("capture-loss", "eth7")
    assert "7 of 100 packets since the last report" in problem.detail
    assert found.fresh_loss() is None
    # The interface is gone: the last counts hold.
    assert found.counts() == (1_600, 7)
    (total,) = found.problems()
    assert "in total, 7 of 1,600 packets" in total.detail


def test_an_error_of_the_kernel_ends_the_capture(world: World) -> None:
    found = opened()
    assert found.check()
    world.socket.error = errno.ENETDOWN
    assert not found.check()
    (problem,) = found.problems()
    assert problem.kind == "capture-cut"
    assert problem.detail == "eth7: the capture ended by itself (Network is down)"
    assert problem.packet is None
    found.close()
    assert world.socket.closed
    assert world.rings[0].closed


def test_reports_at_the_end() -> None:
    assert end_problems("eth0", None, 9, (9, 0)) == []
    cut, loss = end_problems("eth0", "it broke", 9, (12, 3))
    assert (cut.kind, cut.packet, loss.kind) == ("capture-cut", 9, "capture-loss")
    assert "in total, 3 of 12 packets" in loss.detail


@pytest.mark.parametrize(("now", "text"), [((10, 1), None), ((12, 3), "2 of 2 packets"), ((2_010, 1), None)])
def test_losses_between_two_counts(now: tuple[int, int], text: str | None) -> None:
    problem = fresh_loss("eth0", (10, 1), now)
    assert (problem is None) == (text is None)
    assert text is None or (problem is not None and text in problem.detail)


@pytest.fixture
def _allowed(require_root: Callable[[], None]) -> None:
    require_root()


def datagrams(count: int) -> Iterator[int]:
    """The port on loopback that this many packets were sent to."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sink.bind(("127.0.0.1", 0))
        for _ in range(count):
            sender.sendto(b"datagram", sink.getsockname())
        yield sink.getsockname()[1]


@pytest.mark.root
@pytest.mark.usefixtures("_allowed")
@pytest.mark.parametrize("name", ["lo", "any"])
@on_own_loopback
def test_packets_of_the_real_loopback(name: str) -> None:
    """Each once, with the kernel's own structures."""
    found = opened(name)
    deadline = time.monotonic() + PATIENCE
    seen = 0
    for port in datagrams(5):
        destination = struct.pack(">H", port)
        while seen < 5 and time.monotonic() < deadline:
            frames = found.take()
            if frames is None:
                time.sleep(0.01)
                continue
            packets = frames.packets
            for start, size in zip(packets.start.tolist(), packets.captured.tolist(), strict=True):
                data = packets.buffer[start : start + size]
                seen += data.endswith(b"datagram") and destination in data
    assert seen == 5
    assert found.counts()[0] >= 5
    assert found.check()
    found.close()
