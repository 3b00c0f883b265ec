"""How much of the messages is decoded, where whoever feeds packets falls behind: one for all connections of a run.

At full detail it changes nothing. With less, what is left out is told with the message, or counted where the message
itself is left out; which request a response answers is right at any level, since headers are always read.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from kafkasniff.kafka.context import DecodeOptions, RecordsRenderer, RenderingOptions
from kafkasniff.kafka.dissectors import api
from kafkasniff.model import Problem

__all__ = ["AHEAD_BYTES", "Detail", "LeftOut", "Level"]


class Level(IntEnum):
    """What is left out, each with what those before leave out."""

    ALL = 0
    """Nothing is."""
    NO_RECORDS = 1
    NO_BODIES = 2
    """But for Produce requests, which say whether a response will come, and the few that later ones are read by."""
    NO_MESSAGES = 3
    """New exchanges are paired and counted, and not told."""


class LeftOut(msgspec.Struct):
    """How many messages something was left out of."""

    records: int = 0
    bodies: int = 0
    requests: int = 0
    """Not told at all, as their responses."""
    responses: int = 0


_WHOLE: Final = ("full", "columns")
"""Ways of reading records that leave none out."""
AHEAD_BYTES: Final = 32 << 20
"""Bytes of memory of bodies that are read before it is their turn, which pairing asks for behind a gap, of one batch
of packets: further ones are not kept until then, but read again."""
_NO_RECORDS: Final = (Problem("records-skipped", "its records were not decoded: kafkasniff was behind the packets"),)
_NO_BODY: Final = (Problem("body-skipped", "its body was not decoded: kafkasniff was behind the packets"),)


class Detail:
    """Mutable: the level at the moment, and what was left out so far."""

    __slots__ = ("_full", "_renderer", "ahead", "decode", "hides", "left_out", "level")

    def __init__(self, full: DecodeOptions, renderer: RecordsRenderer | None = None) -> None:
        self._full = full
        self._renderer = renderer
        self.level = Level.ALL
        self.decode = self._everything()
        """What messages are decoded with now."""
        self.hides = False
        """Exchanges that begin now are not told."""
        self.left_out = LeftOut()
        self.ahead = 0
        """Bytes of memory of bodies of the current batch that were read before it is their turn."""

    def _everything(self) -> DecodeOptions:
        full = self._full
        if self._renderer is None:
            return full
        return RenderingOptions(**msgspec.structs.asdict(full), renderer=self._renderer)

    def keeps(self, size: int) -> bool:
        """Whether a body of so many bytes of memory that was read ahead of its turn is kept until then."""
        if self.ahead + size > AHEAD_BYTES:
            return False
        self.ahead += size
        return True

    @property
    def full(self) -> DecodeOptions:
        """What messages are decoded with where nothing is left out."""
        return self._full

    @property
    def has_records(self) -> bool:
        """Whether there are records to be left out: without, the first level changes nothing."""
        return self._full.records in _WHOLE

    def limit(self, decompressed: int, records: int) -> None:
        """From the next message on, its bounds."""
        self._full = msgspec.structs.replace(self._full, max_decompressed=decompressed, max_records=records)
        self.set(self.level)

    def set(self, level: Level) -> None:
        """From the next message on."""
        self.level = level
        self.hides = level is Level.NO_MESSAGES
        full = self._full
        if level is Level.ALL:
            self.decode = self._everything()
        else:
            records = "metadata" if full.records in _WHOLE else full.records
            # What is not told needs no more of its body than what pairing asks.
            records = "skip" if self.hides else records
            self.decode = msgspec.structs.replace(full, records=records, bodies=level is Level.NO_RECORDS)

    def told(self, api_key: int, *, is_request: bool, has_body: bool) -> tuple[Problem, ...]:
        """What is to be told with a message that was decoded below full detail; counts it."""
        if not (has_body or self.decode.bodies):
            self.left_out.bodies += 1
            return _NO_BODY
        if self._full.records in _WHOLE and _has_records(api_key, is_request=is_request):
            self.left_out.records += 1
            return _NO_RECORDS
        return ()


def _has_records(api_key: int, *, is_request: bool) -> bool:
    """Whether such messages have `records` fields."""
    found = api(api_key)
    if found is None:
        return False
    return (found.definition.request if is_request else found.definition.response).has_records
