"""Lines of several shards, each in order, to one order: as soon as it is clear that nothing comes between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.parallel.window import Integers

__all__ = ["Chunk", "Interleaver", "Run"]

_END: Final = np.iinfo(np.int64).max


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


Run = tuple[int, Chunk, int, int]
"""Shard, and the lines of one of its chunks, from and up to, that follow on each other."""


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

    def take(self) -> Iterator[Run]:
        """The lines whose turn it is, in order; they are gone then."""
        border = min(self._next)
        sources: list[tuple[int, Chunk, int]] = []
        ranks: list[Integers] = []
        places: list[Integers] = []
        for shard, chunks in enumerate(self._chunks):
            while chunks:
                chunk = chunks[0]
                rank = self._ranks[shard][chunk.indices[chunk.done :]]
                # Two shards have no event together, so that a shard's own lines at the border may go.
                count = int(np.searchsorted(rank, border, "right" if self._next[shard] == border else "left"))
                if count:
                    ranks.append(rank[:count])
                    places.append(np.full(count, len(sources), np.int64))
                    sources.append((shard, chunk, chunk.done))
                    chunk.done += count
                if chunk.done < len(chunk.indices):
                    break
                chunks.popleft()
        if not sources:
            return
        together = np.argsort(np.concatenate(ranks), kind="stable")
        source = np.concatenate(places)[together]
        # Lines of one chunk keep their order: where the chunk stays the same they follow on each other.
        borders = np.concatenate(([0], np.flatnonzero(np.diff(source)) + 1, [len(source)])).tolist()
        sequence: list[int] = source[borders[:-1]].tolist()
        at = [first for _, _, first in sources]
        for number, start, stop in zip(sequence, borders, borders[1:], strict=False):
            shard, chunk, _ = sources[number]
            first = at[number]
            at[number] = last = first + stop - start
            yield shard, chunk, first, last
