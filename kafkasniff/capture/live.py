"""Live capture from an interface on Linux: the same batches as from a file, within some 50 ms."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

import numpy as np

from kafkasniff.capture.bpf import attach, compile_filter
from kafkasniff.capture.decode import PacketDecoder
from kafkasniff.capture.raw import IGNORED_LINK, Interface, RawPackets
from kafkasniff.capture.ring import RETIRE_MS, SOL_PACKET, Block, Ring
from kafkasniff.errors import CaptureError, MissingPartError, UsageError
from kafkasniff.model import Problem
from kafkasniff.packets import Note, PacketBatch

__all__ = ["DEFAULT_SNAPLEN", "LiveSource", "open_live"]

DEFAULT_SNAPLEN: Final = 262_144
"""Bytes kept of a packet: all of it."""

EVERY_INTERFACE: Final = "any"

ETH_P_ALL: Final = 3
PACKET_IGNORE_OUTGOING: Final = 23
PACKET_OUTGOING: Final = 4
SIOCGIFHWADDR: Final = 0x8927

ARPHRD_ETHER: Final = 1
ARPHRD_LOOPBACK: Final = 772
"""Its packets have Ethernet headers too."""

LINK_ETHERNET: Final = 1
LINK_RAW: Final = 101
DLT_RAW: Final = 12
"""What libpcap's compiler calls packets that begin with IP."""

IP_TYPES: Final = (0x0800, 0x86DD)

LAST_BLOCKS_S: Final = 3 * RETIRE_MS / 1000
"""Seconds after `stop` for the kernel to hand over what was captured before it."""


class LiveSource:
    """Iterable of `PacketBatch` from an interface, until `stop`; a context manager. It can be iterated once."""

    bytes_total: Final = None

    def __init__(self, interface: str, target: socket.socket, ring: Ring, *, cooked: bool) -> None:
        self.captures: tuple[str, ...] = (interface,)
        self.bytes_read = 0
        """Bytes of packets captured so far."""
        self.broken = False
        """The capture ended by itself: the interface went away."""
        self._socket = target
        self._ring = ring
        self._cooked = cooked
        self._stopped = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._packets = 0
        self._closed = False
        self._iterated = False

    def __iter__(self) -> Iterator[PacketBatch]:
        if self._iterated:
            raise UsageError("a live capture can be read only once; open it again")
        self._iterated = True
        return self._batches()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def stop(self) -> None:
        """End the iteration once what was captured so far has been yielded; from any thread or a signal handler."""
        self._stopped = True
        if not self._closed:
            with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
                os.write(self._wake_write, b"x")

    def close(self) -> None:
        """Stop capturing and let go of the interface."""
        if not self._closed:
            self._closed = True
            self._stopped = True
            self._ring.close()
            self._socket.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _batches(self) -> Iterator[PacketBatch]:
        name = self.captures[0]
        described = Interface(LINK_RAW if self._cooked else LINK_ETHERNET, 0, name)
        decoder = PacketDecoder(self.captures, lambda _capture, _index: described)
        order = 0
        notes: list[Note] = []
        for block in self._blocks(notes):
            packets = self._raw(block)
            if not len(packets.start):
                continue
            batch = decoder.decode(packets, order, [])
            order = batch.end_order
            yield batch
        problems = [*decoder.finish(0), *decoder.close(), *self._losses()]
        notes.extend(Note(order, problem) for problem in problems)
        if notes:
            empty = np.empty(0, np.int64)
            nothing = RawPackets.build(b"", empty, empty, empty, empty, link=0, capture=0, first_number=1)
            yield decoder.decode(
                nothing, order, [note if note.order == order else Note(order, note.value) for note in notes]
            )

    def _blocks(self, notes: list[Note]) -> Iterator[Block]:
        """Blocks until `stop`, and then what is left; `notes` gets why the capture ended by itself."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN | select.POLLERR)
        waiting.register(self._wake_read, select.POLLIN)
        deadline: float | None = None
        while not self._closed:
            block = self._ring.take()
            if block is not None:
                yield block
            if self._stopped and deadline is None:
                deadline = time.monotonic() + LAST_BLOCKS_S
                waiting.unregister(self._wake_read)
            if deadline is not None and time.monotonic() >= deadline:
                return
            if block is not None:
                continue
            wait = None if deadline is None else max(0, int((deadline - time.monotonic()) * 1000))
            events = dict(waiting.poll(wait))
            if events.get(self._socket.fileno(), 0) & select.POLLERR:
                code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    name = self.captures[0]
                    text = f"{name}: the capture ended by itself ({os.strerror(code)})"
                    self.broken = True
                    notes.append(Note(0, Problem("capture-cut", text, capture=name, packet=self._packets or None)))
                    return

    def _raw(self, block: Block) -> RawPackets:
        """A block's packets; on all interfaces the copy that loopback sends is left out (it is received, too)."""
        twice = (block.kind == PACKET_OUTGOING) & (block.hardware == ARPHRD_LOOPBACK)
        if twice.any():
            kept = ~twice
            block = Block(block.buffer, *(column[kept] for column in block[1:]))
        # Without link headers only the kernel knows what a packet is.
        link = np.where(np.isin(block.protocol, IP_TYPES), LINK_RAW, IGNORED_LINK).astype(np.int32)
        packets = RawPackets.build(
            block.buffer,
            block.start,
            block.captured,
            block.wire,
            block.time_ns,
            link=link if self._cooked else LINK_ETHERNET,
            capture=0,
            first_number=self._packets + 1,
        )
        self._packets += len(packets.start)
        self.bytes_read += int(packets.captured.sum())
        return packets

    def _losses(self) -> list[Problem]:
        """What the kernel says it dropped since the capture began."""
        if self._closed:
            return []
        packets, drops = self._ring.statistics()
        if not drops:
            return []
        name = self.captures[0]
        text = f"{name}: {drops} of {packets} packets were lost because they were not taken from the kernel in time"
        return [Problem("capture-loss", text, capture=name)]


def _hardware(interface: str) -> int:
    """Type (ARPHRD_) of the interface. Raises CaptureError where there is none of this name."""
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            answer = fcntl.ioctl(asked, SIOCGIFHWADDR, struct.pack("16s16x", interface.encode()[:15]))
    except (OSError, UnicodeError) as error:
        there = ", ".join(name for _, name in socket.if_nameindex())
        reason = "there is no such interface" if getattr(error, "errno", 0) == errno.ENODEV else str(error)
        raise CaptureError(f"{interface}: {reason}; there are: {there}, {EVERY_INTERFACE}") from None
    (kind,) = struct.unpack_from("=H", answer, 16)
    return int(kind)


def open_live(
    interface: str,
    *,
    bpf: str | None = None,
    snaplen: int = DEFAULT_SNAPLEN,
    on_ready: Callable[[], None] | None = None,
) -> LiveSource:
    """Capture from an interface, or from all with `any`; `on_ready` is called once packets are being captured.

    `bpf` is a filter expression of tcpdump, `snaplen` the most bytes kept of a packet. Raises CaptureError where the
    interface cannot be opened, UsageError for a wrong filter, MissingPartError without Linux, privileges or (for a
    filter) libpcap.
    """
    pipe = f"tcpdump -i {interface} -U -w - | kafkasniff decode -"
    if not hasattr(socket, "AF_PACKET"):
        raise MissingPartError(f"live capture needs Linux; elsewhere use: {pipe}")
    if snaplen < 1:
        raise UsageError("snaplen must be positive")
    everywhere = interface == EVERY_INTERFACE
    hardware = None if everywhere else _hardware(interface)
    cooked = hardware not in {ARPHRD_ETHER, ARPHRD_LOOPBACK}
    code = b""
    if bpf or snaplen < DEFAULT_SNAPLEN:
        code = compile_filter(bpf or "", DLT_RAW if cooked else LINK_ETHERNET, snaplen)
    try:
        target = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM if cooked else socket.SOCK_RAW, 0)
    except PermissionError:
        raise MissingPartError(
            f"capturing on {interface} needs the capability CAP_NET_RAW: run kafkasniff with sudo, or give it to "
            f'Python (sudo setcap cap_net_raw+ep "$(readlink -f "$(command -v python3)")"), or use: sudo {pipe}'
        ) from None
    ring: Ring | None = None
    try:
        # Until it is bound the socket receives nothing: no packet escapes the filter.
        if code:
            attach(target, code)
        if hardware == ARPHRD_LOOPBACK:
            _ignore_outgoing(target)
        ring = Ring(target)
        if everywhere:
            _bind_everywhere(target)
        else:
            # Not promiscuous: on a broker's host its own traffic is what is wanted.
            target.bind((interface, ETH_P_ALL))
    except OSError as error:
        if ring is not None:
            ring.close()
        target.close()
        raise CaptureError(f"{interface}: cannot be captured ({error.strerror or error})") from None
    if on_ready is not None:
        on_ready()
    return LiveSource(interface, target, ring, cooked=cooked)


def _bind_everywhere(target: socket.socket) -> None:
    """Bind to interface 0, which is all of them; Python's own `bind` takes only names of interfaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = struct.pack("=HHiHBB8x", socket.AF_PACKET, socket.htons(ETH_P_ALL), 0, 0, 0, 0)
    if libc.bind(target.fileno(), address, len(address)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _ignore_outgoing(target: socket.socket) -> None:
    # Loopback shows each packet as sent and as received; kernels before 4.20 cannot leave one out, `_raw` does it then.
    with contextlib.suppress(OSError):
        target.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
