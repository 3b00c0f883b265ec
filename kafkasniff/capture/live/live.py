"""Live capture from interfaces: the same batches as from a file, within some 50 ms.

On Linux through packet sockets and their rings (`interface_socket`), elsewhere through libpcap (`libpcap_capture`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.pcap import Interface, RawPackets
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.live.frames import RETIRE_MS, Frames, TimeMerge
from kafkasniff.capture.live.interface_socket import DEFAULT_SNAPLEN, MAX_BUFFER, InterfaceSocket, interface_name
from kafkasniff.capture.live.ssh_interface import SshInterface, is_ssh
from kafkasniff.errors import MissingPartError, UsageError
from kafkasniff.model import Problem
from kafkasniff.packets import Note, PacketBatch
from kafkasniff.runtime.threads import ClosedAtExit, woken_by_signals
from kafkasniff.text.times import duration

__all__ = ["DEFAULT_SNAPLEN", "MAX_BUFFER", "REOPEN_S", "CapturedInterface", "LiveSource", "open_live"]

LAST_BLOCKS_S: Final = 3 * RETIRE_MS / 1000
"""Seconds after `stop`, or after an interface went down, for the kernel to release earlier packets."""

JOIN_BYTES: Final = 2 << 20
"""Waiting packets are combined up to this many bytes, but no more, since load shedding is decided once per batch."""

LOSS_S: Final = 1.0
"""Seconds between two checks for lost packets."""

MERGE_S: Final = 2 * RETIRE_MS / 1000
"""Seconds that packets of several interfaces wait for those of the others."""


REOPEN_S: Final = 60.0
"""Default number of seconds to wait for an interface that went down."""

RETRY_S: Final = 0.1
"""Seconds between two attempts to capture from it again."""


class CapturedInterface(Protocol):
    """One captured interface."""

    name: str
    error: str | None
    """Why the capture ended by itself."""
    decoded: Interface
    """Link type for the engine."""
    written: Interface
    """Link type in files."""

    @property
    def blocks(self) -> int:
        """How often `read_frames` may have to be called to read everything that the kernel holds at one time."""

    @property
    def backlog(self) -> float:
        """Waiting fraction of the kernel's buffer, 0 to 1: at 1 packets are lost."""

    @property
    def poll_seconds(self) -> float | None:
        """Seconds after which there may be packets although `fileno` has not become readable."""

    def fileno(self) -> int:
        """Becomes readable when there are packets."""

    def read_frames(self) -> Frames | None:
        """The next packets, possibly none; None if there is nothing to read yet."""

    def check(self) -> bool:
        """Whether the capture continues after an error reported by the system; otherwise `error` has the reason."""

    def resume(self) -> bool:
        """Whether the interface is back after a failed `check`; the capture then continues."""

    def counts(self) -> tuple[int, int]:
        """(packets, lost packets among them) since the start."""

    def fresh_loss(self) -> Problem | None:
        """New losses since the last call, if any."""

    def problems(self) -> list[Problem]:
        """Reports at the end."""

    def close(self) -> None:
        """Release the interface."""


class LiveSource(ClosedAtExit):
    """Iterable of `PacketBatch` from interfaces, until `stop`; a context manager. It can be iterated once."""

    bytes_total: Final = None

    def __init__(
        self,
        sockets: Sequence[CapturedInterface],
        *,
        idle_seconds: float | None = None,
        parent: int | None = None,
        reopen: float = REOPEN_S,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.captures: tuple[str, ...] = tuple(captured.name for captured in sockets)
        self.interfaces: tuple[Interface, ...] = tuple(captured.written for captured in sockets)
        """The interface descriptions for a file with `frames`."""
        self.frames: Frames = Frames.plain(RawPackets.empty())
        """All packets that the last batch covers."""
        self.fragments: NDArray[np.int64] = np.empty(0, np.int64)
        """Which of `frames` are IP fragments."""
        self.bytes_read = 0
        """Bytes of packets captured so far."""
        self.broken = False
        """A capture ended by itself: the interface went down and did not come back."""
        self._sockets = tuple(sockets)
        self._idle = idle_seconds
        self._parent = parent
        self._reopen = reopen
        self._say = say
        self._gaps: list[Problem] = []
        """Times without capture that were not reported yet."""
        self._stopped = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._closed = False
        self._iterated = False

    def __iter__(self) -> Iterator[PacketBatch]:
        if self._iterated:
            raise UsageError("a live capture can be read only once; open it again")
        self._iterated = True
        return self._batches()

    def stop(self) -> None:
        """End the iteration after everything captured so far; callable from any thread or a signal handler."""
        self._stopped = True
        if not self._closed:
            with contextlib.suppress(BlockingIOError):  # a full pipe wakes it as well
                os.write(self._wake_write, b"x")

    @property
    def backlog(self) -> float:
        """Waiting fraction of the fullest ring, 0 to 1: at 1 packets are lost."""
        return max((captured.backlog for captured in self._sockets), default=0.0) if not self._closed else 0.0

    def counts(self) -> list[tuple[int, int]]:
        """(packets, lost packets among them) of each interface since the start, as counted by the kernel."""
        return [captured.counts() for captured in self._sockets]

    def close(self) -> None:
        """Stop capturing and release the interfaces."""
        if not self._closed:
            self._closed = True
            self._stopped = True
            for captured in self._sockets:
                captured.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _batches(self) -> Iterator[PacketBatch]:
        decoder = PacketDecoder(self.captures, lambda capture, _index: self._sockets[capture].decoded)
        order = 0
        look_at = time.monotonic() + LOSS_S
        for frames in self._taken():
            packets = frames.packets
            losses: list[Note] = []
            if time.monotonic() >= look_at and not self._closed:
                # Packets of this block were waiting while others were lost, or came after that.
                look_at = time.monotonic() + LOSS_S
                losses = [
                    Note(order, loss) for captured in self._sockets if (loss := captured.fresh_loss()) is not None
                ]
            if self._gaps:
                losses += [Note(order, gap) for gap in self._gaps]
                self._gaps.clear()
            batch = decoder.decode(packets, order, losses)
            order = batch.end_order
            self.frames = frames
            fragments = decoder.fragment_rows
            self.fragments = np.unique(np.concatenate(fragments)) if fragments else _NONE
            self.bytes_read += int(packets.captured.sum())
            yield batch
        problems = [problem for capture in range(len(self._sockets)) for problem in decoder.finish(capture)]
        problems += decoder.close()
        if not self._closed:
            problems += [problem for captured in self._sockets for problem in captured.problems()]
        if problems:
            self.frames, self.fragments = Frames.plain(RawPackets.empty()), _NONE
            yield decoder.decode(RawPackets.empty(), order, [Note(order, problem) for problem in problems])

    def _taken(self) -> Iterator[Frames]:
        """Packets in order until `stop`, and then the rest; an empty batch after some time without any."""
        alone = len(self._sockets) == 1
        merge = TimeMerge(len(self._sockets), 0.0 if alone else MERGE_S)
        waiting = select.poll()
        for captured in self._sockets:
            waiting.register(captured.fileno(), select.POLLIN | select.POLLERR)
        waiting.register(self._wake_read, select.POLLIN)
        if self._parent is not None:
            # Only its end.
            waiting.register(self._parent, 0)
        live = dict(enumerate(self._sockets))
        down: dict[int, float] = {}
        """When an interface went down."""
        quiet_since = time.monotonic()
        deadline: float | None = None
        left = max(captured.blocks for captured in self._sockets)
        looks = [captured.poll_seconds for captured in self._sockets if captured.poll_seconds is not None]
        while not self._closed:
            unread = []
            for capture, captured in enumerate(self._sockets):
                frames = captured.read_frames()
                if frames is not None:
                    unread.append(capture)
                    if not frames.total:
                        continue
                    if alone:
                        yield _with_what_waits(captured, frames)
                    else:
                        merge.add(frames, time.monotonic())
            now = time.monotonic()
            ready = merge.due(now, unread)
            if ready is not None:
                yield ready
            if self._closed:
                return
            if self._stopped and deadline is None:
                deadline = time.monotonic() + LAST_BLOCKS_S
                waiting.unregister(self._wake_read)
                if self._parent is not None:
                    waiting.unregister(self._parent)
            if not live and (self._stopped or not down):
                break
            if deadline is not None and time.monotonic() >= deadline:
                # Most packets in the rings were captured before the stop, and the rings bound their number.
                left -= 1
                if not unread or left < 0:
                    break
            if unread or ready is not None:
                quiet_since = time.monotonic()
                continue
            now = time.monotonic()
            idle_until = None if self._idle is None or deadline is not None else quiet_since + self._idle
            due = merge.due_in(now)
            ends = [at for at in (deadline, idle_until, None if due is None else now + due) if at is not None]
            ends += [now + look for look in looks]
            if down:
                ends.append(now + RETRY_S)
            with woken_by_signals(self._wake_write):
                events = dict(waiting.poll(max(0, int((min(ends) - now) * 1000) + 1) if ends else None))
            if self._wake_read in events and not self._stopped:
                # A signal that does not stop this source.
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
            if self._parent in events:
                self._stopped = True
                continue
            if not events and idle_until is not None and time.monotonic() >= idle_until:
                quiet_since = time.monotonic()
                yield Frames.plain(RawPackets.empty())
            for capture, captured in list(live.items()):
                failed = events.get(captured.fileno(), 0) & select.POLLERR
                if captured.error is not None or (failed and not captured.check()):
                    waiting.unregister(captured.fileno())
                    del live[capture]
                    down[capture] = time.monotonic()
                    if self._reopen:
                        self._say(f"{captured.name} is down: waiting up to {self._reopen:g} s for it")
            for capture in self._resumed(down):
                live[capture] = self._sockets[capture]
                waiting.register(live[capture].fileno(), select.POLLIN | select.POLLERR)
            if self._gaps:
                yield Frames.plain(RawPackets.empty())
        last = merge.rest()
        if last is not None:
            yield last

    def _resumed(self, down: dict[int, float]) -> list[int]:
        """The captures that continue, removed from `down` (when each interface went down), as are those given up."""
        found = []
        for capture, since in list(down.items()):
            captured = self._sockets[capture]
            reason, waited = captured.error, time.monotonic() - since
            if self._reopen and captured.resume():
                found.append(capture)
                self._say(f"{captured.name} is up again after {_duration(waited)}")
                text = f"{captured.name}: nothing was captured for {_duration(waited)}: the interface was down"
                self._gaps.append(Problem("interface-down", text, capture=captured.name))
            elif waited < max(self._reopen, LAST_BLOCKS_S):
                continue
            else:
                self.broken = True
                if self._reopen:
                    captured.error = f"{reason}, and the interface did not come back within {self._reopen:g} s"
                self._say(f"{captured.error}")
            del down[capture]
        return found


def _duration(seconds: float) -> str:
    return duration(round(seconds * 1e9))


def _with_what_waits(captured: CapturedInterface, frames: Frames) -> Frames:
    """These packets and further available ones: large batches cost less per packet."""
    parts, size = [frames], len(frames.packets.buffer)
    while size < JOIN_BYTES:
        more = captured.read_frames()
        if more is None:
            break
        if more.total:
            parts.append(more)
            size += len(more.packets.buffer)
    return Frames.merge(parts)


_NONE: Final = np.empty(0, np.int64)


def open_live(
    interface: str | Sequence[str],
    *,
    bpf: str | None = None,
    snaplen: int = DEFAULT_SNAPLEN,
    buffer: int | None = None,
    promiscuous: bool = False,
    idle_seconds: float | None = None,
    on_ready: Callable[[], None] | None = None,
    parent: int | None = None,
    reopen: float = REOPEN_S,
    say: Callable[[str], None] = lambda _text: None,
) -> LiveSource:
    """Capture from an interface, from several, or from all with `any`; `on_ready` is called once they are open.

    An interface may be given by its number in `interface_socket.list_interfaces`, or be one of another machine
    (`ssh_interface`). `bpf` is a filter expression of tcpdump, `snaplen` the most bytes kept of a packet, `buffer` the
    MiB that the kernel keeps for each interface until they are read. With `idle_seconds` an empty batch is yielded
    after each such time without packets, for callers with other work. The capture ends when `parent`, the descriptor of
    a pipe, is closed at its other end. An interface that goes down is captured again if it is back within `reopen`
    seconds; `say` gets a line at each change. Raises CaptureError if an interface cannot be opened, UsageError for an
    invalid filter or number, MissingPartError without privileges, or libpcap (on Linux only for a filter), or
    (elsewhere) scapy.
    """
    given = [interface] if isinstance(interface, str) else list(interface)
    if snaplen < 1:
        raise UsageError("snaplen must be positive")
    if buffer is not None and not 1 <= buffer <= MAX_BUFFER:
        raise UsageError(f"a buffer has 1 to {MAX_BUFFER} MiB")
    names = [interface_name(name) for name in given]
    if not names or len(set(names)) < len(names):
        raise UsageError("name each interface once")
    # Those of other machines cannot be opened again.
    reopen = 0.0 if all(map(is_ssh, names)) else reopen
    sockets: list[CapturedInterface] = []
    try:
        for capture, name in enumerate(names):
            open_one: Callable[..., CapturedInterface] = SshInterface if is_ssh(name) else _backend()
            sockets.append(open_one(name, capture, bpf=bpf, snaplen=snaplen, buffer=buffer, promiscuous=promiscuous))
        source = LiveSource(sockets, idle_seconds=idle_seconds, parent=parent, reopen=reopen, say=say)
    except BaseException:
        for captured in sockets:
            captured.close()
        raise
    if on_ready is not None:
        try:
            on_ready()
        except BaseException:
            source.close()
            raise
    return source


def _backend() -> Callable[..., CapturedInterface]:
    """The capture implementation of this system. Raises MissingPartError if there is none."""
    if hasattr(socket, "AF_PACKET"):
        return InterfaceSocket
    if os.name != "posix":
        raise MissingPartError("live capture needs Linux, macOS or a BSD; elsewhere, decode the output of dumpcap")
    from kafkasniff.capture.live.libpcap_capture import LibpcapInterface

    return LibpcapInterface
