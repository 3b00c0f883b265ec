"""Which packets of a live capture are kept in files: all, or those of connections that speak Kafka.

Whether a connection does is known some packets after its first. Until then its packets wait here; they are written, in
capture order, in front of those of the batch that told. What such a file holds of a connection is all of it, in order,
so that it decodes to the same messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.frames import Frames
from kafkasniff.capture.pcapng_writer import WrittenBlocks, packet_blocks
from kafkasniff.capture.rotation import CaptureFiles
from kafkasniff.inspector import Inspector
from kafkasniff.packets import PacketBatch
from kafkasniff.tcp.plan import Key, connection_hash

__all__ = ["MAX_WAITING_BYTES", "Keeper"]

MAX_WAITING_BYTES: Final = 64 << 20
"""Bytes of packets that wait for a verdict, of all connections together; then those of the connection that has waited
longest are let go. A connection without its beginning takes 4 MiB of data to be judged, others a segment or two."""

WAITING_COST: Final = 160
"""Bytes that a waiting packet takes besides its own."""

MAX_LET_GO: Final = 65_536
"""Connections of which it is remembered how many packets were let go before their verdict."""


class Keeper:
    """Takes the batches of a live capture, each when the inspector has had it, and writes what is to be kept.

    `inspector`: whose connections' packets are kept, where it found them to be Kafka; None: every packet is.
    """

    def __init__(self, files: CaptureFiles, inspector: Inspector | None) -> None:
        self.files = files
        self._inspector = inspector
        if inspector is not None:
            inspector.judged = set()
        self._waiting: dict[Key, list[tuple[int, bytes]]] = {}
        """Blocks, each with its packet's order, by connection; who has waited longest comes first."""
        self._waiting_bytes = 0
        self._let_go: dict[Key, int] = {}
        self.missing = 0
        """Packets of Kafka connections that are not in the files, since they were let go before the verdict."""

    def take(self, frames: Frames, fragments: NDArray[np.int64], batch: PacketBatch) -> None:
        """Write or keep back the packets of a batch: `frames` are all that it covers, TCP or not.

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
        # A fragment may belong to any connection. They are rare, and hardly ever Kafka's: all are kept.
        kept[fragments] = True
        verdicts = self._verdicts(keys)
        is_kafka = np.array([verdict == "kafka" for verdict in verdicts], bool)
        is_open = np.array([verdict == "undecided" for verdict in verdicts], bool)
        kept[rows[is_kafka[members]]] = True
        early = self._released(keys, verdicts)
        wait = np.flatnonzero(is_open[members]) if is_open.any() else np.empty(0, np.int64)
        wait = wait[~kept[rows[wait]]]
        if early:
            self.files.write(_joined(early))
        if kept.any():
            self.files.write(packet_blocks(frames if kept.all() else frames.pick(np.flatnonzero(kept))))
        if len(wait):
            picked = frames.pick(rows[wait])
            self._keep_back(picked, batch.order[wait].tolist(), [keys[member] for member in members[wait].tolist()])

    def close(self) -> None:
        """The inspector has come to its end, and may have judged connections by that. Harmless when repeated."""
        if self._inspector is not None and self._inspector.judged is not None:
            judged = self._inspector.judged
            early = self._released(list(judged), ["kafka"] * len(judged))
            if early:
                self.files.write(_joined(early))
            self._waiting.clear()
            self._inspector.judged = None
        self.files.close()

    def _verdicts(self, keys: Sequence[Key]) -> list[str]:
        inspector = self._inspector
        assert inspector is not None
        judged = inspector.judged
        assert judged is not None
        # One that was Kafka within the batch and made way for the next connection of the same endpoints counts, too.
        verdicts: list[str] = ["kafka" if key in judged else inspector.verdict(key) for key in keys]
        judged.clear()
        return verdicts

    def _released(self, keys: Sequence[Key], verdicts: Sequence[str]) -> list[tuple[int, bytes]]:
        """Blocks that have waited for these verdicts, in capture order; what waits in vain is let go."""
        early: list[tuple[int, bytes]] = []
        for key, verdict in zip(keys, verdicts, strict=True):
            if verdict == "undecided":
                continue
            waiting = self._waiting.pop(key, [])
            self._waiting_bytes -= sum(len(block) + WAITING_COST for _, block in waiting)
            let_go = self._let_go.pop(key, 0)
            if verdict == "kafka":
                early += waiting
                self.missing += let_go
        early.sort(key=lambda entry: entry[0])
        return early

    def _keep_back(self, frames: Frames, orders: list[int], keys: list[Key]) -> None:
        blocks = packet_blocks(frames)
        end = 0
        for order, key, size in zip(orders, keys, blocks.sizes.tolist(), strict=True):
            begin, end = end, end + size
            self._waiting.setdefault(key, []).append((order, blocks.data[begin:end]))
            self._waiting_bytes += size + WAITING_COST
        while self._waiting_bytes > MAX_WAITING_BYTES:
            key = next(iter(self._waiting))
            let_go = self._waiting.pop(key)
            self._waiting_bytes -= sum(len(block) + WAITING_COST for _, block in let_go)
            if key in self._let_go or len(self._let_go) < MAX_LET_GO:
                self._let_go[key] = self._let_go.get(key, 0) + len(let_go)


def _connections(batch: PacketBatch) -> tuple[list[Key], NDArray[np.int64]]:
    """The connections of a batch by their endpoints, and for each row the index of its own.

    By hash: who makes hashes collide gets packets that are not Kafka's kept, or waits with another one.
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
