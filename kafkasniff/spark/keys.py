"""TLS secrets on their way to tasks: those of a key log, and those in captures, with their positions.

They travel within the function that a task runs, never as rows, settings or names: plans, event logs and messages show
the names of functions, not their contents. docs/spark.md says what Spark may still write to its disks.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Final

from kafkasniff.capture.timeline.key_log_file import MAX_KEY_LOG
from kafkasniff.capture.timeline.parts import Place, PlacedNote
from kafkasniff.engine.inspector import Inspector
from kafkasniff.errors import MissingExtraError, MissingPartError, UsageError
from kafkasniff.model import Problem
from kafkasniff.packets import Note, PacketBatch
from kafkasniff.spark.packet_places import rows_before
from kafkasniff.tls.keylog import KeyLog

__all__ = ["PlacedSecrets", "TaskKeys", "WaitingSecrets", "key_log_problems", "secrets_among"]

MAX_CAPTURED: Final = MAX_KEY_LOG
"""Maximum size of secrets in captures, which every task receives: the limit of a key log."""

PlacedSecrets = tuple[Place, bytes]
"""A block of secrets, and its position in the captures."""


def secrets_among(notes: Iterable[PlacedNote], captures_before: int = 0) -> list[PlacedSecrets]:
    """The secrets among notes; indices of captures continue those of earlier runs."""
    return [
        (note.place._replace(capture=note.place.capture + captures_before), note.value)
        for note in notes
        if isinstance(note.value, bytes)
    ]


def key_log_problems(keys: KeyLog | None) -> list[Problem]:
    """Problems of a key log's lines, reported once."""
    flaws = [] if keys is None else keys.take_flaws()
    return [Problem("tls-key-log", "; ".join(flaws))] if flaws else []


class TaskKeys:
    """Secrets given to each task of stage 1; to be pickled, but not to be shown."""

    def __init__(self, keys: KeyLog | None = None, captured: Iterable[PlacedSecrets] = ()) -> None:
        """`captured`: in any order. Raises MissingPartError if there is a key log but no package for decryption.

        Raises UsageError if captures have more than `MAX_CAPTURED` bytes of secrets.
        """
        self._file = None if keys is None else keys.file_secrets
        self._captured = sorted(captured, key=lambda one: one[0])
        if sum(len(block) for _, block in self._captured) > MAX_CAPTURED:
            raise UsageError(
                f"the captures hold more than {MAX_CAPTURED >> 20} MiB of decryption secrets: use --engine local"
            )
        here = _can_decrypt()
        if self._file is not None and not here:
            raise MissingExtraError("a key log", "cryptography", "tls")
        # If the package is missing everywhere, the connections' problems say so, as without Spark.
        self._decrypts = here and (self._file is not None or bool(self._captured))

    def begin(self, inspector: Inspector, shard: int) -> WaitingSecrets:
        """Give the key log to a task's inspector; returns the secrets to insert between packets.

        Raises MissingPartError if this task cannot decrypt although others can.
        """
        if self._decrypts and not _can_decrypt():
            raise MissingPartError("Spark's workers cannot decrypt TLS: their Python lacks the package cryptography")
        if self._file is not None:
            inspector.follow_key_log(KeyLog.of(self._file))
        # All shards see all secrets; only one reports on them.
        inspector.keys.reports = shard == 0
        return WaitingSecrets(self._captured)


class WaitingSecrets:
    """The captures' secrets, to be inserted between the packets of one shard, which arrive in capture order."""

    def __init__(self, captured: Iterable[PlacedSecrets]) -> None:
        """`captured`: in order."""
        self._left = list(captured)[::-1]

    def among(self, batch: PacketBatch) -> list[Note]:
        """The secrets that precede a packet of the next batch, but no packet before it."""
        found: list[Note] = []
        while self._left:
            row = rows_before(batch, self._left[-1][0])
            if row == len(batch):
                break  # a packet of the next batch may be nearer
            found.append(Note(int(batch.order[row]), self._left.pop()[1]))
        return found

    def rest(self, order: int) -> list[Note]:
        """The secrets after the last packet, whose order is one less."""
        left, self._left = self._left[::-1], []
        return [Note(order, block) for _, block in left]


def _can_decrypt() -> bool:
    return importlib.util.find_spec("cryptography") is not None
