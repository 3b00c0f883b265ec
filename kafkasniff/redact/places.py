"""The packets of a written capture whose bytes may still become known, and those that had them recently.

Packets are first written with blank payloads; later the visible bytes are written into every packet that has them. So
retransmitted packets get the same bytes as the first one, whatever they held.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.write.output_files import PatchedFile
from kafkasniff.native.blanking import PIECE, PLACE, StreamPieces, patch
from kafkasniff.native.library import Kernel
from kafkasniff.native.rows import joined

__all__ = ["MAX_PLACES", "NO_STREAM", "REPEATED", "Places", "longer"]

NO_STREAM: Final = (1 << 64) - 1
"""The stream of packets whose bytes stay blank."""
REPEATED: Final = 128 << 10
"""Bytes of a stream that are remembered for packets that are captured again (`stream_delivery.REPEATED`): an answer to
the same packet within the last 16 is one.
"""
MAX_PLACES: Final = 262_144
"""Maximum number of packets of a stream with unknown bytes; beyond it the first stay blank. 16 MiB after a hole need
this many if each holds 64 bytes; more are forgeries.
"""
MAX_CHUNKS: Final = 16
"""Groups of packets whose bytes are known, before they become one."""
MAX_KNOWN: Final = 1 << 21
"""Packets whose bytes are known, of all streams, of 64 bytes each; beyond it the older half is forgotten."""


class Places:
    """The payloads of the packets of one file."""

    def __init__(self, kernel: Kernel, file: PatchedFile) -> None:
        self._kernel = kernel
        self._file = file
        self._open = np.zeros(0, PLACE)
        """Packets with bytes that may still become known."""
        self._known: list[NDArray[np.void]] = []
        """Groups of packets whose bytes are known, for those that are captured again."""
        self._low = np.zeros(0, np.int64)
        """By stream, the position before which all bytes are known."""

    @property
    def connections(self) -> NDArray[np.int64]:
        """Numbers of connections with bytes that may become known."""
        streams = self._open["stream"]
        return np.unique(streams[streams != NO_STREAM] >> np.uint64(1)).astype(np.int64)

    def show(self, fresh: NDArray[np.void], pieces: StreamPieces) -> None:
        """Write pieces into the packets that have them; `fresh`: packets that were written since the last call."""
        before = self._open
        places = _sorted(joined((before, fresh))) if len(fresh) else before
        is_fresh = places["fresh"] > 0
        self._patch(places, pieces)
        if is_fresh.any():
            self._repeat(places, is_fresh, before)
        for name in ("known", "touched", "far"):
            places[name] = 0
        self._open = places

    def settle(self, numbers: NDArray[np.int64], low: NDArray[np.int64]) -> None:
        """Let go of packets whose bytes are known; `low`: for these connections, how far both streams are known."""
        if len(numbers):
            self._low = longer(self._low, 2 * int(numbers[-1]) + 1, 0)
            self._low[2 * numbers], self._low[2 * numbers + 1] = low[:, 0], low[:, 1]
        places = self._open.compress(self._open["stream"] != NO_STREAM)
        streams = places["stream"].astype(np.int64)
        is_open = places["end"] > self._low[streams]
        known = places.compress(~is_open & (places["end"] > self._low[streams] - REPEATED))
        if len(known):
            self._known.append(known)
            if len(self._known) > MAX_CHUNKS:
                self._known = [self._recent(joined(self._known))]
            if sum(map(len, self._known)) > MAX_KNOWN:
                self._forget_half()
        self._open = places.compress(is_open)
        if len(self._open) > MAX_PLACES:
            self._drop_most()

    def _forget_half(self) -> None:
        """Forget the older half of the packets whose bytes are known."""
        every = joined(self._known)
        self._known = [every.compress(every["at"] >= np.median(every["at"]))]

    def _recent(self, places: NDArray[np.void]) -> NDArray[np.void]:
        return places.compress(places["end"] > self._low[places["stream"].astype(np.int64)] - REPEATED)

    def _drop_most(self) -> None:
        """Drop the first half of the packets of streams that have too many."""
        _, first, counts = np.unique(self._open["stream"], return_index=True, return_counts=True)
        keeps = np.ones(len(self._open), np.bool_)
        for index in np.flatnonzero(counts > MAX_PLACES).tolist():
            keeps[first[index] : first[index] + counts[index] - MAX_PLACES // 2] = False
        self._open = self._open.compress(keeps)

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _patch(self, places: NDArray[np.void], pieces: StreamPieces) -> None:
        """Write pieces into all of these packets, wherever they are in the file."""
        file = self._file
        patch(self._kernel, places, pieces, file.tail, file.settled)
        for index in np.flatnonzero(places["far"]).tolist():
            place = places[index : index + 1].copy()
            start = int(place["header"][0])
            data = bytearray(file.read(start, int(place["at"][0] + place["end"][0] - place["position"][0]) - start))
            ends = pieces.rows["position"] + pieces.rows["size"].astype(np.int64)
            mine = (pieces.rows["stream"] == place["stream"]) & (ends > place["position"])
            mine &= pieces.rows["position"] < place["end"]
            patch(self._kernel, place, StreamPieces(pieces.rows.compress(mine), pieces.arena), data, start)
            file.patch(start, data)

    def _repeat(self, places: NDArray[np.void], is_fresh: NDArray[np.bool_], before: NDArray[np.void]) -> None:
        """Give packets that are captured again the bytes of the earlier ones."""
        missing = is_fresh & (places["known"] < places["end"] - places["position"]) & (places["stream"] != NO_STREAM)
        again = places.compress(missing)
        if not len(again):
            return
        streams, first = np.unique(again["stream"], return_index=True)
        low = again["position"][first]
        high = np.maximum.reduceat(again["end"], first)
        has = np.zeros(int(streams[-1]) + 1, np.bool_)
        has[streams.astype(np.int64)] = True
        found: list[NDArray[np.void]] = []
        for earlier in (*self._known, before):
            known = earlier.compress(has[np.minimum(earlier["stream"], len(has) - 1).astype(np.int64)])
            index = np.minimum(np.searchsorted(streams, known["stream"]), len(streams) - 1)
            within = (known["end"] > low[index]) & (known["position"] < high[index])
            found.append(known.compress(within & (streams[index] == known["stream"])))
        sources = joined(found)
        if len(sources):
            again["known"] = 0
            self._patch(again, self._pieces_of(sources))

    def _pieces_of(self, places: NDArray[np.void]) -> StreamPieces:
        """The bytes that packets have."""
        rows, arena = np.zeros(len(places), PIECE), bytearray()
        sizes = places["end"] - places["position"]
        for at, size in zip(places["at"].tolist(), sizes.tolist(), strict=True):
            arena += self._file.read(at, size)
        rows["stream"], rows["position"], rows["size"] = places["stream"], places["position"], sizes
        rows["start"] = np.cumsum(sizes) - sizes
        return StreamPieces(rows, arena)


def longer(column: NDArray[np.int64], index: int, fill: int) -> NDArray[np.int64]:
    """The same with an element at `index`, where new ones are `fill`."""
    if index < len(column):
        return column
    return np.concatenate((column, np.full(max(index + 1, 2 * len(column)) - len(column), fill)))


def _sorted(places: NDArray[np.void]) -> NDArray[np.void]:
    return places.take(np.lexsort((places["at"], places["position"], places["stream"])))
