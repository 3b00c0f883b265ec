"""The processes: shards at work, and the one that reads the captures, settles windows and puts lines in order.

Messages to a shard are short, and few are on their way at any time, so that the first process never waits for a shard
to read them: what is long goes through the areas (packets and answers). Shards may wait until they are heard. How many
chunks of lines a shard may have on their way is bounded, and so are the windows that are read ahead; so memory is, too.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec
import numpy as np

from kafkasniff.model import Summary
from kafkasniff.packets import NO_TIME, Note, PacketBatch
from kafkasniff.parallel.areas import Area, Block, get_object, get_packets, put_objects, put_packets
from kafkasniff.parallel.coordinator import AHEAD, Coordinator
from kafkasniff.parallel.dealer import Dealer
from kafkasniff.parallel.forms import LONG, size_of
from kafkasniff.parallel.interleave import Chunk, Interleaver, Runs
from kafkasniff.parallel.shard import Shard
from kafkasniff.parallel.window import Found, Given, Integers, Told
from kafkasniff.processes import Workers

__all__ = ["BLOCK_BYTES", "CHUNKS", "CHUNK_BYTES", "CHUNK_LINES", "Crew", "Window"]

CHUNK_BYTES: Final = 1 << 20
"""A shard hands lines on when it has so many bytes of them."""
BLOCK_BYTES: Final = 4 << 20
"""What an area holds of one chunk; a longer line does not go through the area, nor do those that come with it."""
CHUNK_LINES: Final = 4096
"""Lines that a shard hands on at a time, about."""
CHUNKS: Final = 8
"""Chunks that a shard may have on their way."""
GC_THRESHOLD: Final = (400_000, 50, 100)
"""When a shard looks for objects that hold each other: seldom, as a run of one process does (cli/main.py)."""
_NONE: Final = np.empty(0, np.int64)


class _Task(msgspec.Struct):
    """What a worker is given."""

    shard: Shard[Any]
    areas: list[Area]
    """Of the windows."""
    lines: Area


# -- messages to a shard ----------------------------------------------------------------------------------------------


class _Decode(msgspec.Struct):
    area: int
    place: tuple[int, int] | None
    """Of the packets; None: there are no more."""
    start_ns: int | None


class _Retell(msgspec.Struct):
    area: int
    place: tuple[int, int]
    """Of what others tell."""
    everything: bool


class _Render(msgspec.Struct):
    area: int
    place: tuple[int, int]
    """Of the answers."""


class _Free(msgspec.Struct):
    """A chunk is written."""


# -- messages of a shard: Found, Told, and ----------------------------------------------------------------------------


class _Lines(msgspec.Struct):
    chunk: Chunk
    """With its lines, if these are not in the area."""
    block: int = 0
    """Where in the area the lines are."""
    lengths: Integers | None = None
    """In bytes, of lines in the area."""


class _Ended(msgspec.Struct):
    """All lines of a window are handed on."""

    summary: Summary


# -- the first process ------------------------------------------------------------------------------------------------


class Window(msgspec.Struct):
    """A window on its way, and what is to be known when its lines are written."""

    area: int
    notes: list[Note]
    """Of its packets."""
    mark: Any
    """What came with its packets."""
    summary: Summary
    """What was counted in it, when it is written."""
    found: list[Found | None]
    interleaver: Interleaver | None = None


class Crew:
    """Several shards, each a process. A context manager; at its end no process is left."""

    def __init__(self, shards: list[Shard[Any]], coordinator: Coordinator) -> None:
        self._areas = [Area() for _ in range(AHEAD + 1)]
        self._lines = [Area() for _ in shards]
        for area in self._lines:
            area.view(CHUNKS * BLOCK_BYTES, grow=True)
        tasks = [_Task(shard, self._areas, lines) for shard, lines in zip(shards, self._lines, strict=True)]
        self._workers = Workers(_work, tasks, start="fork")
        self._coordinator = coordinator
        self._dealer = Dealer(len(shards))
        self._waiting: deque[Window] = deque()
        """Windows that are on their way, the oldest first."""
        self._settled = 0
        """How many of them are settled."""
        self._told: dict[int, Told] = {}
        self._start_ns: int | None = None
        self._free = deque(range(AHEAD + 1))
        """Areas for windows that are not in use."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.end()
        for area in (*self._areas, *self._lines):
            area.close()

    def lines(self, parts: Iterable[tuple[PacketBatch | None, Any]]) -> Iterator[tuple[Window, Runs | None]]:
        """Windows with the runs of lines whose turn it is; with None where all lines of a window were there.

        `parts` are the windows' packets, each with a mark that comes back with its window; the last ones are None, for
        what is still open at the captures' end. Lines have to be written before the next ones are asked for, and
        `written` called with them. Raises what a shard raises, KafkasniffError where one is gone.
        """
        source = iter(parts)
        more = True
        while True:
            while more and self._free:
                part = next(source, None)
                if part is None:
                    more = False
                else:
                    self._send(*part)
            if not self._waiting:
                return
            self._settle()
            first = self._waiting[0]
            if first.interleaver is not None:
                runs = first.interleaver.take()
                if runs is not None:
                    yield first, runs
                if first.interleaver.ended:
                    yield first, None
                    self._waiting.popleft()
                    self._settled -= 1
                    self._free.append(first.area)
                    continue
            self._hear()

    def written(self, runs: Runs) -> None:
        """The lines of these runs, which came last, are written, or nobody wants them."""
        for shard in runs.finished():
            self._workers.send(shard, _Free())

    def _send(self, batch: PacketBatch | None, mark: Any) -> None:
        area = self._free.popleft()
        place = None
        if batch is not None:
            if self._start_ns is None and len(batch):
                times = batch.time_ns[batch.time_ns != NO_TIME]
                if len(times):
                    self._start_ns = int(times[0])
            place = put_packets(self._areas[area], batch, self._dealer.deal(batch))
        notes = [] if batch is None else batch.notes
        self._waiting.append(Window(area, notes, mark, Summary(), [None] * len(self._workers)))
        for worker in range(len(self._workers)):
            self._workers.send(worker, _Decode(area, place, self._start_ns))

    def _settle(self) -> None:
        """Settle the windows that all shards have told of."""
        while self._settled < len(self._waiting):
            window = self._waiting[self._settled]
            found = [one for one in window.found if one is not None]
            if len(found) < len(window.found):
                return
            if self._settled and self._coordinator.asks(found):
                # Shards answer when they are through with the windows before: all their lines have to be taken first.
                return
            settled = self._coordinator.settle(found, partial(self._retell, window.area))
            for one in found:
                window.summary.add(one.summary)
            window.found = []
            window.interleaver = Interleaver(settled.ranks)
            for worker, place in enumerate(put_objects(self._areas[window.area], list(settled.given))):
                self._workers.send(worker, _Render(window.area, place))
            self._settled += 1

    def _retell(self, area: int, told: list[Told], everything: bool) -> list[Told]:
        self._told = {}
        for worker, place in enumerate(put_objects(self._areas[area], list(told))):
            self._workers.send(worker, _Retell(area, place, everything))
        while len(self._told) < len(self._workers):
            self._hear()
        return [self._told[worker] for worker in range(len(self._workers))]

    def _hear(self) -> None:
        """Take what shards say; waits for something."""
        for worker, message in self._workers.messages():
            if isinstance(message, Found):
                next(one for one in self._waiting if one.found and one.found[worker] is None).found[worker] = message
            elif isinstance(message, _Lines):
                chunk = message.chunk
                if message.lengths is not None:
                    offsets = np.cumsum(np.concatenate(([message.block * BLOCK_BYTES], message.lengths)))
                    chunk.data = Block(self._lines[worker].view(CHUNKS * BLOCK_BYTES), offsets)
                self._rendered(worker).add(worker, chunk)
            elif isinstance(message, _Ended):
                window = next(one for one in self._waiting if one.interleaver and not one.interleaver.has_ended(worker))
                window.summary.add(message.summary)
                self._rendered(worker).end(worker)
            else:
                self._told[worker] = message

    def _rendered(self, worker: int) -> Interleaver:
        """Of the window that a shard is rendering: the first that it has not ended."""
        return next(
            one.interleaver for one in self._waiting if one.interleaver and not one.interleaver.has_ended(worker)
        )


# -- a shard ----------------------------------------------------------------------------------------------------------


def _work(task: _Task, end: Connection[Any, Any]) -> None:
    """A shard's process: does what it is told in that order, as long as anybody tells it something."""
    # Messages that are told at some time later are no reason to look for garbage; as in a process that is alone.
    gc.set_threshold(*GC_THRESHOLD)
    gc.freeze()
    worker = _Worker(task, end)
    while True:
        worker.do(worker.next())


class _Begun(msgspec.Struct):
    """A chunk that is being filled."""

    indices: list[int]
    messages: list[bool]
    lengths: list[int]
    """Of lines that are in the area."""
    lines: list[Any]
    """Those that are not: of another form, or too long for it."""
    size: int = 0


class _Worker:
    def __init__(self, task: _Task, end: Connection[Any, Any]) -> None:
        self._shard = task.shard
        self._areas = task.areas
        self._block = task.lines.view(CHUNKS * BLOCK_BYTES)
        self._end = end
        self._later: deque[Any] = deque()
        """Heard while a chunk had to wait."""
        self._free = CHUNKS
        self._chunks = 0

    def next(self) -> Any:
        """What is to be done next; EOFError where the first process is gone."""
        return self._later.popleft() if self._later else self._end.recv()

    def do(self, message: Any) -> None:
        """Do it."""
        if isinstance(message, _Free):
            self._free += 1
        elif isinstance(message, _Decode):
            packets: tuple[PacketBatch | None, Integers] = None, _NONE
            if message.place is not None:
                packets = get_packets(self._areas[message.area], message.place)
            self._end.send(self._shard.decode(*packets, message.start_ns))
        elif isinstance(message, _Retell):
            told = get_object(self._areas[message.area], message.place)
            self._end.send(self._shard.retell(told, everything=message.everything))
        elif isinstance(message, _Render):
            self._render(get_object(self._areas[message.area], message.place))

    def _render(self, given: Given) -> None:
        """Lines of bytes go into the area at once, while they are in the processor's caches."""
        begun = _Begun([], [], [], [])
        for indices, messages, lines in self._shard.render(given):
            if not lines:
                continue
            lengths = list(map(len, lines)) if isinstance(lines[0], bytes) else []
            size = sum(lengths) if lengths else sum(map(size_of, lines))
            if begun.indices and begun.size + size > BLOCK_BYTES:
                self._hand_on(begun)
                begun = _Begun([], [], [], [])
            if not begun.indices:
                self._wait()
            begun.indices += indices
            begun.messages += messages
            if lengths and size <= BLOCK_BYTES:
                start = self._chunks % CHUNKS * BLOCK_BYTES + begun.size
                if size > LONG * len(lines):
                    for line, length in zip(lines, lengths, strict=True):
                        self._block[start : start + length] = line
                        start += length
                else:
                    self._block[start : start + size] = b"".join(lines)
                begun.lengths += lengths
            else:
                begun.lines += lines
            begun.size += size
            if begun.size >= CHUNK_BYTES or len(begun.indices) >= CHUNK_LINES:
                self._hand_on(begun)
                begun = _Begun([], [], [], [])
        if begun.indices:
            self._hand_on(begun)
        self._end.send(_Ended(self._shard.summary))

    def _wait(self) -> None:
        """Until there is a block for the next chunk."""
        while not self._free:
            message = self._end.recv()
            if isinstance(message, _Free):
                self._free += 1
            else:
                self._later.append(message)

    def _hand_on(self, begun: _Begun) -> None:
        self._free -= 1
        block = self._chunks % CHUNKS
        self._chunks += 1
        chunk = Chunk(np.array(begun.indices, np.int64), np.array(begun.messages, np.bool_), begun.lines or None)
        self._end.send(_Lines(chunk, block, np.array(begun.lengths, np.int64) if begun.lengths else None))
