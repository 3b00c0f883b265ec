"""What decrypts TLS, on its way to tasks: the secrets of a key log, and those that captures hold, with their places.

They go with the function that a task runs, never as rows, settings or names: plans, event logs and messages show what
functions are called, not what is in them. What Spark may write to its disks all the same is told in docs/spark.md.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Final

import numpy as np

from kafkasniff.capture.key_log_file import MAX_KEY_LOG
from kafkasniff.capture.parts import Place, PlacedNote
from kafkasniff.errors import MissingPartError, UsageError
from kafkasniff.inspector import Inspector
from kafkasniff.model import Problem
from kafkasniff.packets import Note, PacketBatch
from kafkasniff.tls.keylog import KeyLog

__all__ = ["PlacedSecrets", "TaskKeys", "WaitingSecrets", "key_log_problems", "secrets_among"]

MAX_CAPTURED: Final = MAX_KEY_LOG
"""Bytes of secrets in captures, which each task is given: as many as a key log may have."""

PlacedSecrets = tuple[Place, bytes]
"""A block of secrets, and where in the captures it stands."""


def secrets_among(notes: Iterable[PlacedNote], captures_before: int = 0) -> list[PlacedSecrets]:
    """The secrets among notes; indices of captures count on from those of earlier runs."""
    return [
        (note.place._replace(capture=note.place.capture + captures_before), note.value)
        for note in notes
        if isinstance(note.value, bytes)
    ]


def key_log_problems(keys: KeyLog | None) -> list[Problem]:
    """What there is to tell of a key log's lines: once."""
    flaws = [] if keys is None else keys.take_flaws()
    return [Problem("tls-key-log", "; ".join(flaws))] if flaws else []


class TaskKeys:
    """What each task of stage 1 is given; to be pickled, but not to be shown."""

    def __init__(self, keys: KeyLog | None = None, captured: Iterable[PlacedSecrets] = ()) -> None:
        """`captured`: in any order. Raises MissingPartError where a key log is of no use here.

        Raises UsageError where there are more than `MAX_CAPTURED` bytes of secrets in captures.
        """
        self._file = None if keys is None else keys.file_secrets
        self._captured = sorted(captured, key=lambda one: one[0])
        if sum(len(block) for _, block in self._captured) > MAX_CAPTURED:
            raise UsageError(
                f"the captures hold more than {MAX_CAPTURED >> 20} MiB of decryption secrets: use --engine local"
            )
        here = _can_decrypt()
        if self._file is not None and not here:
            raise MissingPartError("a key log needs the package cryptography: pip install 'kafkasniff[tls]'")
        # Where it is missing everywhere, the connections' problems say so, as without Spark.
        self._decrypts = here and (self._file is not None or bool(self._captured))

    def begin(self, inspector: Inspector, shard: int) -> WaitingSecrets:
        """Let a task's inspector have the key log; returns what stands among the packets.

        Raises MissingPartError where this task cannot decrypt what others can.
        """
        if self._decrypts and not _can_decrypt():
            raise MissingPartError(
                "TLS cannot be decrypted by Spark's workers: their Python lacks the package cryptography"
            )
        if self._file is not None:
            inspector.follow_key_log(KeyLog.of(self._file))
        # All shards see all secrets.
        inspector.keys.tells = shard == 0
        return WaitingSecrets(self._captured)


class WaitingSecrets:
    """The captures' secrets on their way through the packets of one shard, which come in capture order."""

    def __init__(self, captured: Iterable[PlacedSecrets]) -> None:
        """`captured`: in order."""
        self._left = list(captured)[::-1]

    def among(self, batch: PacketBatch) -> list[Note]:
        """Those that stand in front of a packet of the next batch, and in front of no packet before it."""
        found: list[Note] = []
        while self._left:
            row = _rows_before(batch, self._left[-1][0])
            if row == len(batch):
                break  # a packet of the next batch may be nearer
            found.append(Note(int(batch.order[row]), self._left.pop()[1]))
        return found

    def rest(self, order: int) -> list[Note]:
        """Those behind the last packet, whose order is one less."""
        left, self._left = self._left[::-1], []
        return [Note(order, block) for _, block in left]


def _rows_before(batch: PacketBatch, place: Place) -> int:
    """How many packets of a batch stand in front of a place: the first so many."""
    assert batch.clock is not None
    here = batch.clock == place.clock
    earlier = (batch.clock < place.clock) | (here & (batch.capture < place.capture))
    here &= batch.capture == place.capture
    return int(np.count_nonzero(earlier | (here & (batch.number < place.number))))


def _can_decrypt() -> bool:
    return importlib.util.find_spec("cryptography") is not None
