"""Live capture from interfaces on Linux: the same batches as from a file, within some 50 ms."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.decode import PacketDecoder
from kafkasniff.capture.frames import Frames
from kafkasniff.capture.interface_socket import DEFAULT_SNAPLEN, MAX_BUFFER, InterfaceSocket
from kafkasniff.capture.interfaces import interface_name
from kafkasniff.capture.raw import Interface, RawPackets
from kafkasniff.capture.ring import RETIRE_MS
from kafkasniff.capture.time_merge import TimeMerge
from kafkasniff.errors import MissingPartError, UsageError
from kafkasniff.packets import Note, PacketBatch

__all__ = ["DEFAULT_SNAPLEN", "MAX_BUFFER", "LiveSource", "open_live"]

LAST_BLOCKS_S: Final = 3 * RETIRE_MS / 1000
"""Seconds after `stop` for the kernel to hand over what was captured before it."""

MERGE_S: Final = 2 * RETIRE_MS / 1000
"""Seconds that packets of several interfaces wait for those of the others."""


class LiveSource:
    """Iterable of `PacketBatch` from interfaces, until `stop`; a context manager. It can be iterated once."""

    bytes_total: Final = None

    def __init__(self, sockets: Sequence[InterfaceSocket], *, idle_seconds: float | None = None) -> None:
        self.captures: tuple[str, ...] = tuple(one.name for one in sockets)
        self.interfaces: tuple[Interface, ...] = tuple(one.written for one in sockets)
        """What a file that holds `frames` has to say of each."""
        self.frames: Frames = Frames.plain(_no_packets())
        """All packets that the batch yielded last covers."""
        self.fragments: NDArray[np.int64] = np.empty(0, np.int64)
        """Which of `frames` are IP fragments."""
        self.bytes_read = 0
        """Bytes of packets captured so far."""
        self.broken = False
        """A capture ended by itself: the interface went away."""
        self._sockets = tuple(sockets)
        self._idle = idle_seconds
        self._stopped = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
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

    def counts(self) -> list[tuple[int, int]]:
        """(packets, of these lost) of each interface, as the kernel has counted since the start."""
        return [one.counts() for one in self._sockets]

    def close(self) -> None:
        """Stop capturing and let go of the interfaces."""
        if not self._closed:
            self._closed = True
            self._stopped = True
            for one in self._sockets:
                one.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _batches(self) -> Iterator[PacketBatch]:
        decoder = PacketDecoder(self.captures, lambda capture, _index: self._sockets[capture].decoded)
        order = 0
        for frames in self._taken():
            packets = frames.packets
            batch = decoder.decode(packets, order, [])
            order = batch.end_order
            self.frames = frames
            fragments = decoder.fragment_rows
            self.fragments = np.unique(np.concatenate(fragments)) if fragments else _NONE
            self.bytes_read += int(packets.captured.sum())
            yield batch
        problems = [problem for capture in range(len(self._sockets)) for problem in decoder.finish(capture)]
        problems += decoder.close()
        if not self._closed:
            problems += [problem for one in self._sockets for problem in one.problems()]
        if problems:
            self.frames, self.fragments = Frames.plain(_no_packets()), _NONE
            yield decoder.decode(_no_packets(), order, [Note(order, problem) for problem in problems])

    def _taken(self) -> Iterator[Frames]:
        """Packets in order until `stop`, and then what is left; none whenever there was none for some time."""
        alone = len(self._sockets) == 1
        merge = TimeMerge(len(self._sockets), 0.0 if alone else MERGE_S)
        waiting = select.poll()
        for one in self._sockets:
            waiting.register(one.socket, select.POLLIN | select.POLLERR)
        waiting.register(self._wake_read, select.POLLIN)
        live = dict(enumerate(self._sockets))
        quiet_since = time.monotonic()
        deadline: float | None = None
        left = max(one.blocks for one in self._sockets)
        while not self._closed:
            unread = []
            for capture, one in live.items():
                found = one.take()
                if found is not None:
                    unread.append(capture)
                    if not found.total:
                        continue
                    if alone:
                        yield found
                    else:
                        merge.add(found, time.monotonic())
            now = time.monotonic()
            ready = merge.due(now, unread)
            if ready is not None:
                yield ready
            if self._closed:
                return
            if self._stopped and deadline is None:
                deadline = time.monotonic() + LAST_BLOCKS_S
                waiting.unregister(self._wake_read)
            if not live:
                break
            if deadline is not None and time.monotonic() >= deadline:
                # What is in the rings was captured, most of it before the stop: they hold no more than that.
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
            events = dict(waiting.poll(max(0, int((min(ends) - now) * 1000) + 1) if ends else None))
            if not events and idle_until is not None and time.monotonic() >= idle_until:
                quiet_since = time.monotonic()
                yield Frames.plain(_no_packets())
            for capture, one in list(live.items()):
                if events.get(one.socket.fileno(), 0) & select.POLLERR and not one.check():
                    self.broken = True
                    waiting.unregister(one.socket)
                    del live[capture]
        last = merge.rest()
        if last is not None:
            yield last


_NONE: Final = np.empty(0, np.int64)


def _no_packets() -> RawPackets:
    empty = np.empty(0, np.int64)
    return RawPackets.build(b"", empty, empty, empty, empty, link=0, capture=0, first_number=1)


def open_live(
    interface: str | Sequence[str],
    *,
    bpf: str | None = None,
    snaplen: int = DEFAULT_SNAPLEN,
    buffer: int | None = None,
    promiscuous: bool = False,
    idle_seconds: float | None = None,
    on_ready: Callable[[], None] | None = None,
) -> LiveSource:
    """Capture from an interface, from several, or from all with `any`; `on_ready` is called once it is captured.

    An interface may be named by its number in `interfaces.list_interfaces`, too. `bpf` is a filter expression of
    tcpdump, `snaplen` the most bytes kept of a packet, `buffer` the MiB that the kernel keeps for each interface until
    they are read. With `idle_seconds` an empty batch comes whenever none has come for so long, for who has something
    else to do. Raises CaptureError where an interface cannot be opened, UsageError for a wrong filter or number,
    MissingPartError without Linux, privileges or (for a filter) libpcap.
    """
    given = [interface] if isinstance(interface, str) else list(interface)
    if not hasattr(socket, "AF_PACKET"):
        raise MissingPartError(
            f"live capture needs Linux; elsewhere use: tcpdump -i {given[0]} -U -w - | kafkasniff decode -"
        )
    if snaplen < 1:
        raise UsageError("snaplen must be positive")
    if buffer is not None and not 1 <= buffer <= MAX_BUFFER:
        raise UsageError(f"a buffer has 1 to {MAX_BUFFER} MiB")
    names = [interface_name(name) for name in given]
    if not names or len(set(names)) < len(names):
        raise UsageError("name each interface once")
    sockets: list[InterfaceSocket] = []
    try:
        for capture, name in enumerate(names):
            sockets.append(
                InterfaceSocket(name, capture, bpf=bpf, snaplen=snaplen, buffer=buffer, promiscuous=promiscuous)
            )
        source = LiveSource(sockets, idle_seconds=idle_seconds)
    except BaseException:
        for one in sockets:
            one.close()
        raise
    if on_ready is not None:
        try:
            on_ready()
        except BaseException:
            source.close()
            raise
    return source
