"""Input of one task, as rows of the table `packets`.

It is either splits of captures, or datagrams whose fragments are in different splits, or TLS secrets between packets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.locations import for_each, open_capture
from kafkasniff.capture.timeline.parts import CaptureFile, CapturePlan, Place, read_datagrams, read_notes, read_split
from kafkasniff.capture.timeline.splits import ReadAt, Split
from kafkasniff.packets import PacketBatch
from kafkasniff.runtime.addresses import is_remote
from kafkasniff.spark.options import SPLIT_BYTES
from kafkasniff.spark.packet_rows import packet_rows, secret_rows
from kafkasniff.spark.pushdown import Condition, keeper
from kafkasniff.spark.tables import PACKETS
from kafkasniff.tables.exports.captures import SMALL_FILE, open_kept

__all__ = ["PacketQuery", "Part", "earliest", "grouped", "packets_of", "parts_of", "read_part", "split_bytes"]

_T = TypeVar("_T")


class PacketQuery(msgspec.Struct, frozen=True):
    """Rows and columns to read of the table `packets`."""

    columns: tuple[str, ...] = tuple(PACKETS)
    ports: tuple[int, ...] = ()
    """Only packets from or to one of these ports; empty: all."""
    conditions: tuple[Condition, ...] = ()


class Part(msgspec.Struct, frozen=True):
    """Input of one task."""

    splits: tuple[tuple[Split, CaptureFile], ...] = ()
    rest: CapturePlan | None = None
    """All datagrams of this plan that are reassembled from fragments."""
    secrets: CapturePlan | None = None
    """All blocks of decryption secrets of this plan."""


AT_ONCE: Final = 16
"""Remote captures that a task requests at the same time: an answer takes about as long as the work for as many."""

FILE_BYTES: Final = 1 << 20
"""What a part of a file costs besides its bytes, in bytes: opening it, two requests if it is remote, and reading its
first packets take about 2 ms of CPU time, in which a task reads about a megabyte."""


MAX_PARTS: Final = 1 << 13
"""Tasks that read captures of an export, about: each takes CPU time of the driver, which has a single queue."""


def split_bytes(size: int) -> int:
    """Bytes of captures that one task reads, if there are `size` bytes in total."""
    return max(SPLIT_BYTES, -(-size // MAX_PARTS))


def grouped(items: Sequence[_T], size: Callable[[_T], int], limit: int) -> list[list[_T]]:
    """Neighbouring items in groups of about `limit` bytes, or of files that cost as much as a split of usual size.

    So many small files need neither a task each nor a single one for all.
    """
    groups: list[list[_T]] = []
    most = max(limit, SPLIT_BYTES)
    total = 0
    for item in items:
        total += size(item)
        if not groups or total > limit or total + (len(groups[-1]) + 1) * FILE_BYTES > most:
            groups.append([])
            total = size(item)
        groups[-1].append(item)
    return groups


def parts_of(plan: CapturePlan, split_size: int, *, secrets: bool = False) -> list[Part]:
    """The parts that cover all packets of a plan; `secrets`: also the decryption secrets."""
    pairs = [(split, plan.files[split.capture]) for split in plan.splits]
    parts = [Part(tuple(group)) for group in grouped(pairs, lambda pair: pair[0].end - pair[0].begin, split_size)]
    if plan.has_fragments:
        parts.append(Part(rest=plan.of_rest()))
    if secrets and any(split.has_notes for split in plan.splits):
        parts.append(Part(secrets=plan))
    return parts


def earliest(part: Part) -> Place:
    """A lower bound of the places of a part's packets: the place of its first packet, TCP or not."""
    splits = [split for split, _ in part.splits]
    if part.rest is not None:
        splits += part.rest.splits
    return min(Place(max(split.clock, split.first_time), split.capture, split.packets_before + 1) for split in splits)


def read_part(part: Part, wanted: PacketQuery) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in batches bounded by bytes. Raises CaptureError if it can no longer be read."""
    keep, looked_at = keeper(wanted.conditions)
    for batch in packets_of(part):
        rows = packet_rows(batch, wanted.columns, ports=wanted.ports, keep=keep, looked_at=looked_at)
        if rows.num_rows:
            yield rows
    if part.secrets is not None:
        plan = part.secrets
        rows = secret_rows(read_notes(plan, open_capture), dict(enumerate(plan.names)))
        if keep is not None:
            rows = rows.filter(pa.array(keep(rows)))
        if rows.num_rows:
            yield rows.select(list(wanted.columns))


def packets_of(part: Part) -> Iterator[PacketBatch]:
    """The packets of a part, those of one capture after those of another. Raises CaptureError as `read_part` does."""
    for start in range(0, len(part.splits), AT_ONCE):
        splits = part.splits[start : start + AT_ONCE]
        remote = any(is_remote(file.path) for _, file in splits)
        for split, read_at in for_each(_opened, splits, remote=remote, at_once=AT_ONCE):
            yield from read_split(split, read_at)
    if part.rest is not None:
        yield from read_datagrams(part.rest, open_capture)


def _opened(item: tuple[Split, CaptureFile]) -> tuple[Split, ReadAt]:
    """A split and how to read it; a small remote file is read here already, at the same time as others."""
    split, file = item
    read_at = open_kept(file)
    if file.size <= SMALL_FILE and is_remote(file.path):
        read_at(0, file.size)
    return split, read_at
