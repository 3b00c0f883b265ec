"""One interface's socket: link types, options, counts, and what happens if the kernel refuses."""

from __future__ import annotations

import errno
import socket
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from kafkasniff.capture.formats.pcap import IGNORED_LINK
from kafkasniff.capture.live import interface_socket as module
from kafkasniff.capture.live.frames import COOKED_SIZE, HEADER, SOL_PACKET, Block
from kafkasniff.capture.live.interface_socket import (
    ARPHRD_ETHER,
    ARPHRD_LOOPBACK,
    DEFAULT_SNAPLEN,
    LINK_COOKED,
    LINK_ETHERNET,
    LINK_RAW,
    InterfaceSocket,
)
from kafkasniff.errors import CaptureError, MissingPartError, UsageError

ARPHRD_NONE = 65_534
"""A tunnel, such as WireGuard's."""


class World:
    """The kernel as the socket sees it; `refuses`: errors by what raises them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.refuses: dict[str, OSError] = {}
        self.socket = Mock()
        self.rings: list[Mock] = []
        self.hardware = ARPHRD_ETHER
        self.bound: list[object] = []
        patch.setattr(module, "hardware_type", lambda name: self.hardware)
        patch.setattr(module.socket, "socket", self._open)
        patch.setattr(module, "Ring", self._ring)
        patch.setattr(module, "make_effective", lambda capabilities: None)
        patch.setattr(module, "_bind_everywhere", lambda _: self.bound.append("everywhere"))
        patch.setattr(module.socket, "if_nametoindex", lambda name: 3)

    def _fail(self, place: str) -> None:
        if place in self.refuses:
            raise self.refuses[place]

    def _open(self, family: int, kind: int, protocol: int) -> Mock:
        # Protocol 0: the socket receives nothing before it is bound.
        assert (family, protocol) == (socket.AF_PACKET, 0)
        self._fail("open")
        self.socket, self.bound[:] = Mock(kind=kind, bind=self._bind), []
        self.socket.getsockopt.return_value = 0
        return self.socket

    def options(self) -> list[tuple[int, int]]:
        return [call.args[:2] for call in self.socket.setsockopt.call_args_list]

    def _bind(self, address: object) -> None:
        self._fail("bind")
        self.bound.append(address)

    def _ring(self, _target: Mock, size: int | None) -> Mock:
        assert not self.bound
        self._fail("ring")
        self.rings.append(Mock(size=size, blocks=4))
        self.rings[-1].backlog.return_value = 0.25
        self.rings[-1].statistics.return_value = 0, 0
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
    sizes, heads = np.full(count, 60, np.int64), np.zeros(count, HEADER)
    kinds = (columns[:, at].astype(width) for at, width in enumerate((np.uint16, np.uint16, np.uint8)))
    return Block(bytes(60 * count), np.arange(count) * 60, sizes, sizes, np.arange(count), *kinds, heads)


@pytest.mark.parametrize(
    ("name", "hardware", "kind", "links"),
    [
        ("eth7", ARPHRD_ETHER, socket.SOCK_RAW, (LINK_ETHERNET, LINK_ETHERNET, 0)),
        ("eth7", ARPHRD_LOOPBACK, socket.SOCK_RAW, (LINK_ETHERNET, LINK_ETHERNET, 0)),
        # Files have headers that the kernel's data on each packet is made into.
        ("eth7", ARPHRD_NONE, socket.SOCK_DGRAM, (LINK_RAW, LINK_COOKED, COOKED_SIZE)),
        # Packets of all interfaces have no link headers in common. Python cannot bind to interface 0.
        ("any", ARPHRD_ETHER, socket.SOCK_DGRAM, (LINK_RAW, LINK_COOKED, COOKED_SIZE)),
    ],
)
def test_link_headers(world: World, name: str, hardware: int, kind: int, links: tuple[int, int, int]) -> None:
    decoded, written, more = links
    world.hardware = hardware
    found = opened(name, snaplen=1000)
    assert world.socket.kind == kind
    assert (found.decoded.link, found.written.link, found.written.snaplen) == (decoded, written, 1000 + more)
    assert world.bound == ["everywhere" if name == "any" else ("eth7", module.ETH_P_ALL)]


def test_promiscuous_only_if_requested(world: World) -> None:
    opened()
    assert (SOL_PACKET, module.PACKET_ADD_MEMBERSHIP) not in world.options()
    opened(promiscuous=True)
    assert (SOL_PACKET, module.PACKET_ADD_MEMBERSHIP) in world.options()
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

    def attach(target: Mock, code: bytes) -> None:
        assert (code, world.bound, world.rings) == (b"code", [], [])
        seen.append(("attached", 0, 0))

    monkeypatch.setattr(module, "attach", attach)
    opened(bpf=bpf, snaplen=snaplen)
    assert seen == [(bpf or "", LINK_ETHERNET, snaplen), ("attached", 0, 0)] * attached


@pytest.mark.parametrize(
    ("place", "error", "expected", "message"),
    [
        ("open", PermissionError(errno.EPERM, "no"), MissingPartError, "on eth7 needs the capability CAP_NET_RAW"),
        ("ring", OSError(errno.ENOMEM, "Cannot allocate memory"), CaptureError, r"\(no memory for a ring of 64 MiB"),
        ("bind", OSError(errno.ENODEV, "No such device"), CaptureError, r"eth7: cannot be captured \(No such device"),
    ],
)
def test_refusals(world: World, place: str, error: OSError, expected: type[Exception], message: str) -> None:
    world.refuses[place] = error
    with pytest.raises(expected, match=message):
        opened(buffer=64)
    assert place == "open" or world.socket.close.called
    assert all(ring.close.called for ring in world.rings)
    if place == "ring":
        with pytest.raises(CaptureError, match="Cannot allocate memory"):
            opened()


def test_only_ip_is_decoded_without_link_headers(world: World) -> None:
    world.hardware = ARPHRD_NONE
    found = opened()
    world.rings[0].next_block.side_effect = [block(*((kind, ARPHRD_NONE, 0) for kind in (0x0800, 0x86DD, 0x0806)))]
    frames = found.read_frames()
    assert frames is not None
    assert frames.packets.link.tolist() == [LINK_RAW, LINK_RAW, IGNORED_LINK]


def test_losses_are_those_since_the_last_report(world: World) -> None:
    found = opened()
    world.rings[0].statistics.side_effect = [(1_500, 0), (100, 7), (0, 0), OSError("gone"), OSError("gone")]
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


@pytest.mark.parametrize(
    ("state", "resumes", "binds"),
    [
        ({}, True, 0),
        ({"is_up": False}, False, 0),
        ({"index": 4}, True, 1),
        # Packets would have another link type.
        ({"index": 4, "hardware": ARPHRD_NONE}, False, 0),
        ({"index": 4, "refuses": OSError(errno.ENODEV, "No such device")}, False, 0),
        ({"error": errno.ENETDOWN}, False, 0),
    ],
)
def test_an_interface_that_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], resumes: bool, binds: int
) -> None:
    """The socket stays the same, since opening another one would need privileges; it is bound to a new interface."""
    found = opened(promiscuous=True)
    world.socket.getsockopt.return_value = errno.ENETDOWN
    assert not found.check()
    world.bound.clear()
    monkeypatch.setattr(module, "is_up", lambda name: state.get("is_up", True))
    monkeypatch.setattr(module.socket, "if_nametoindex", lambda name: state.get("index", 3))
    world.hardware = state.get("hardware", world.hardware)
    world.socket.getsockopt.return_value = state.get("error", 0)
    if "refuses" in state:
        world.refuses["bind"] = state["refuses"]
    monkeypatch.setattr(module.socket, "socket", None)
    assert found.resume() == resumes
    assert (found.error is None) == resumes
    assert len(world.bound) == binds
    promiscuous = world.options().count((SOL_PACKET, module.PACKET_ADD_MEMBERSHIP))
    assert promiscuous == 1 + ("index" in state and "hardware" not in state)
