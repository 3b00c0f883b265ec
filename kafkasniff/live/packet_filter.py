"""Selects the packets of a live capture that are written to files: all, or those of Kafka connections.

Whether a connection is Kafka is known some packets after its first. Until then its packets wait here; then they are
written, in capture order, before those of the batch that decided it. Such a file has all packets of a connection, in
order, so it decodes to the same messages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.live.frames import Frames
from kafkasniff.capture.write.capture_writer import WrittenBlocks, packet_blocks
from kafkasniff.capture.write.output_files import CaptureFiles
from kafkasniff.engine.inspector import Inspector
from kafkasniff.packets import Key, PacketBatch, connection_hash, index_of

MAX_WAITING_BYTES: Final = 64 << 20
"""Maximum size in bytes of packets that wait for a verdict, over all connections; beyond it, those of the connection
that has waited longest are dropped. A connection without its beginning takes 4 MiB of data to be judged, others a
segment or two.
"""

WAITING_COST: Final = 160
"""Overhead of a waiting packet in bytes."""

MAX_LET_GO: Final = 65_536
"""Maximum number of connections for which the count of packets dropped before their verdict is remembered."""


class Keeper:
    """Takes the batches of a live capture, each after the inspector, and writes the packets to keep.

    `inspector`: keep the packets of connections that it found to be Kafka; None: keep every packet.
    """

    def __init__(self, files: CaptureFiles | FlightRecorder, inspector: Inspector | None) -> None:
        self.files = files
        self._inspector = inspector
        if inspector is not None:
            inspector.judged = set()
        self._waiting: dict[bytes, list[tuple[int, bytes]]] = {}
        """Blocks, each with its packet's order, by connection (`plan.index_of`), the longest waiting first."""
        self._waiting_bytes = 0
        self._let_go: dict[bytes, int] = {}
        self.missing = 0
        """Number of packets of Kafka connections missing from the files, since they were dropped before the verdict."""

    def take(self, frames: Frames, fragments: NDArray[np.int64], batch: PacketBatch) -> None:
        """Write or hold back the packets of a batch: `frames` are all that it covers, TCP or not.

        `fragments`: rows of those that are IP fragments.
        """
        if not frames.total:
            return
        if self._inspector is None:
            self.files.write(packet_blocks(frames))
            return
        rows = batch.order - (batch.end_order - batch.packets)
        keys, members = _connections(batch)
        kept = np.zeros(frames.total, bool)
        # A fragment may belong to any connection. Fragments are rare, and hardly ever Kafka's, so all are kept.
        kept[fragments] = True
        indices = list(map(index_of, keys))
        verdicts = self._verdicts(keys, indices)
        is_kafka = np.array([verdict == "kafka" for verdict in verdicts], bool)
        is_open = np.array([verdict == "undecided" for verdict in verdicts], bool)
        kept[rows[is_kafka[members]]] = True
        early = self._released(indices, verdicts)
        wait = np.flatnonzero(is_open[members]) if is_open.any() else np.empty(0, np.int64)
        wait = wait[~kept[rows[wait]]]
        if early:
            self.files.write(_joined(early))
        if kept.any():
            self.files.write(packet_blocks(frames if kept.all() else frames.pick(np.flatnonzero(kept))))
        if len(wait):
            picked = frames.pick(rows[wait])
            self._hold(picked, batch.order[wait].tolist(), [indices[member] for member in members[wait].tolist()])

    def close(self) -> None:
        """The inspector has finished, and may have judged more connections. Harmless when repeated."""
        if self._inspector is not None and self._inspector.judged is not None:
            judged = self._inspector.judged
            early = self._released(list(judged), ["kafka"] * len(judged))
            if early:
                self.files.write(_joined(early))
            self._waiting.clear()
            self._inspector.judged = None
        self.files.close()

    def _verdicts(self, keys: Sequence[Key], indices: Sequence[bytes]) -> list[str]:
        inspector = self._inspector
        assert inspector is not None
        judged = inspector.judged
        assert judged is not None
        # This includes a connection that was Kafka within the batch and was replaced by the next one of the same
        # endpoints.
        verdicts: list[str] = [
            "kafka" if index in judged else inspector.verdict(key) for key, index in zip(keys, indices, strict=True)
        ]
        judged.clear()
        return verdicts

    def _released(self, indices: Sequence[bytes], verdicts: Sequence[str]) -> list[tuple[int, bytes]]:
        """Blocks that have waited for these verdicts, in capture order; blocks of other connections are dropped."""
        early: list[tuple[int, bytes]] = []
        for index, verdict in zip(indices, verdicts, strict=True):
            if verdict == "undecided":
                continue
            waiting = self._waiting.pop(index, [])
            self._waiting_bytes -= sum(len(block) + WAITING_COST for _, block in waiting)
            let_go = self._let_go.pop(index, 0)
            if verdict == "kafka":
                early += waiting
                self.missing += let_go
        early.sort(key=lambda entry: entry[0])
        return early

    def _hold(self, frames: Frames, orders: list[int], indices: list[bytes]) -> None:
        blocks = packet_blocks(frames)
        end = 0
        for order, index, size in zip(orders, indices, blocks.sizes.tolist(), strict=True):
            begin, end = end, end + size
            self._waiting.setdefault(index, []).append((order, blocks.data[begin:end]))
            self._waiting_bytes += size + WAITING_COST
        while self._waiting_bytes > MAX_WAITING_BYTES:
            index = next(iter(self._waiting))
            let_go = self._waiting.pop(index)
            self._waiting_bytes -= sum(len(block) + WAITING_COST for _, block in let_go)
            if index in self._let_go or len(self._let_go) < MAX_LET_GO:
                self._let_go[index] = self._let_go.get(index, 0) + len(let_go)


def _connections(batch: PacketBatch) -> tuple[list[Key], NDArray[np.int64]]:
    """The connections of a batch by their endpoints, and for each row the index of its own.

    By hash: on a (forged) collision, packets that are not Kafka's are kept, or wait together with another connection's.
    """
    _, first, members = np.unique(connection_hash(batch), return_index=True, return_inverse=True)
    columns = (batch.src_hi, batch.src_lo, batch.src_port, batch.dst_hi, batch.dst_lo, batch.dst_port)
    keys: list[Key] = []
    for row in zip(*(column[first].tolist() for column in columns), strict=True):
        source, target = row[:3], row[3:]
        keys.append((target, source) if source > target else (source, target))
    return keys, members.reshape(-1).astype(np.int64)


def _joined(blocks: list[tuple[int, bytes]]) -> WrittenBlocks:
    sizes = np.array([len(block) for _, block in blocks], np.int64)
    return WrittenBlocks(b"".join(block for _, block in blocks), sizes)


class FlightRecorder:
    """Keeps what a `Keeper` writes for `seconds`, and at most `size` bytes, whichever is less.

    `head`: the section and the interfaces, as pcapng.
    """

    broken = False
    """Memory does not become full: the oldest packets are dropped."""

    def __init__(self, head: bytes, seconds: float, size: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._head = head
        self._seconds = seconds
        self._most = size
        self._clock = clock
        self._kept: deque[tuple[float, bytes]] = deque()
        """Blocks of a batch with their time, the oldest first."""
        self._size = 0

    def write(self, blocks: WrittenBlocks) -> None:
        """Keep packets."""
        if len(blocks.sizes):
            self._kept.append((self._clock(), blocks.data))
            self._size += len(blocks.data)
        self._forget()

    def _forget(self) -> None:
        oldest = self._clock() - self._seconds
        while self._kept and (self._kept[0][0] < oldest or self._size > self._most):
            self._size -= len(self._kept.popleft()[1])

    def pieces(self) -> list[bytes]:
        """The kept packets as pieces of a pcapng file, which are shared, not copied."""
        self._forget()
        return [self._head, *(data for _, data in self._kept)]

    def close(self) -> None:
        """Nothing to finish."""
