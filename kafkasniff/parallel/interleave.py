"""Lines of several shards, each in order, to one order: as soon as it is clear that nothing comes between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.parallel.window import Integers

__all__ = ["Chunk", "Interleaver", "Runs"]

_END: Final = np.iinfo(np.int64).max
_NONE: Final = np.empty(0, np.int64)


class Chunk(msgspec.Struct):
    """Consecutive lines of a shard, of one window."""

    indices: Integers
    """Of the lines' events, ascending."""
    messages: NDArray[np.bool_]
    """Which are messages' lines."""
    data: Any
    """The lines, in the form that the shards' `render` makes and the writer takes."""
    done: int = 0
    """How many are written."""


class Runs(msgspec.Struct):
    """Lines that follow on each other, in order: runs of lines of chunks; columns of one length."""

    shards: list[int]
    """Of the chunks."""
    chunks: list[Chunk]
    chunk: Integers
    """Index in `chunks`."""
    first: Integers
    """Of its lines, from this one."""
    last: Integers
    """Up to this one."""

    def __iter__(self) -> Iterator[tuple[Chunk, int, int]]:
        for number, first, last in zip(self.chunk.tolist(), self.first.tolist(), self.last.tolist(), strict=True):
            yield self.chunks[number], first, last

    def cut(self, run: int, last: int) -> Runs:
        """The runs up to one, with its lines up to this one."""
        end = run + 1
        lasts = self.last[:end].copy()
        lasts[run] = last
        return Runs(self.shards, self.chunks, self.chunk[:end], self.first[:end], lasts)

    def finished(self) -> Iterator[int]:
        """For each chunk that is at its end with these lines, its shard."""
        for shard, chunk in zip(self.shards, self.chunks, strict=True):
            if chunk.done == len(chunk.indices):
                yield shard


class Interleaver:
    """The lines of one window. `ranks`: by shard, the place of each event among those of all shards."""

    def __init__(self, ranks: Sequence[Integers]) -> None:
        self._ranks = ranks
        self._chunks: list[deque[Chunk]] = [deque() for _ in ranks]
        self._next = [int(rank[0]) if len(rank) else _END for rank in ranks]
        self._ended = [False] * len(ranks)
        """By shard: no line that is still to come is of an event with a lower rank."""

    def add(self, shard: int, chunk: Chunk) -> None:
        """The next lines of a shard."""
        self._chunks[shard].append(chunk)
        # An event may have several lines.
        self._next[shard] = int(self._ranks[shard][chunk.indices[-1]])

    def end(self, shard: int) -> None:
        """A shard has no more lines in this window."""
        self._next[shard] = _END
        self._ended[shard] = True

    def has_ended(self, shard: int) -> bool:
        """Whether that was said of a shard."""
        return self._ended[shard]

    @property
    def ended(self) -> bool:
        """Whether all lines are there."""
        return all(self._ended)

    def take(self) -> Runs | None:
        """The lines whose turn it is, in order; they are gone then. None: it is no line's turn."""
        border = min(self._next)
        found = Runs([], [], *[_NONE] * 3)
        ranks: list[Integers] = []
        numbers: list[Integers] = []
        places: list[Integers] = []
        for shard, chunks in enumerate(self._chunks):
            while chunks:
                chunk = chunks[0]
                rank = self._ranks[shard][chunk.indices[chunk.done :]]
                # Two shards have no event together, so that a shard's own lines at the border may go.
                count = int(np.searchsorted(rank, border, "right" if self._next[shard] == border else "left"))
                if count:
                    ranks.append(rank[:count])
                    numbers.append(np.full(count, len(found.chunks), np.int64))
                    places.append(np.arange(chunk.done, chunk.done + count))
                    found.shards.append(shard)
                    found.chunks.append(chunk)
                    chunk.done += count
                if chunk.done < len(chunk.indices):
                    break
                chunks.popleft()
        if not ranks:
            return None
        together = np.argsort(np.concatenate(ranks), kind="stable")
        number = np.concatenate(numbers)[together]
        # Lines of one chunk keep their order: where the chunk stays the same they follow on each other.
        begins = np.concatenate(([0], np.flatnonzero(np.diff(number)) + 1))
        found.chunk = number[begins]
        found.first = np.concatenate(places)[together[begins]]
        found.last = found.first + np.diff(begins, append=len(number))
        return found
