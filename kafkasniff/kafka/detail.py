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
from kafkasniff.kafka.named_apis import PRODUCE
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

    __slots__ = ("_decodes", "_full", "_renderer", "ahead", "decode", "hides", "left_out", "level")

    def __init__(self, full: DecodeOptions, renderer: RecordsRenderer | None = None) -> None:
        self._full = full
        self._renderer = renderer
        self.level = Level.ALL
        self._decodes: dict[Level, DecodeOptions] = {}
        """What messages are decoded with at each level so far: those who use it know it by its identity."""
        self.decode = self._options(Level.ALL)
        """What messages are decoded with now."""
        self.hides = False
        """Exchanges that begin now are not told."""
        self.left_out = LeftOut()
        self.ahead = 0
        """Bytes of memory of bodies of the current batch that were read before it is their turn."""

    def _options(self, level: Level) -> DecodeOptions:
        found = self._decodes.get(level)
        if found is not None:
            return found
        full = self._full
        if level:
            records = "metadata" if full.records in _WHOLE else full.records
            # What is not told needs no more of its body than what pairing asks.
            records = "skip" if level is Level.NO_MESSAGES else records
            found = msgspec.structs.replace(full, records=records, bodies=level is Level.NO_RECORDS)
        elif self._renderer is None:
            found = full
        else:
            found = RenderingOptions(**msgspec.structs.asdict(full), renderer=self._renderer)
        self._decodes[level] = found
        return found

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
        self._decodes.clear()
        self.set(self.level)

    def set(self, level: Level) -> None:
        """From the next message on."""
        self.level = level
        self.hides = level is Level.NO_MESSAGES
        self.decode = self._options(level)

    def told(self, api_key: int, *, is_request: bool, has_body: bool) -> tuple[Problem, ...]:
        """What is to be told with a message that was decoded below full detail; counts it."""
        problems = self._lack(api_key, is_request=is_request, has_body=has_body)
        self.count(problems)
        return problems

    def lack(self, api_key: int, *, is_request: bool) -> tuple[Problem, ...]:
        """What is to be told with messages of a kind that no later ones are read by, at the level of now."""
        if not self.level:
            return ()
        has_body = self.reads_body(api_key, is_request=is_request)
        return self._lack(api_key, is_request=is_request, has_body=has_body)

    def reads_body(self, api_key: int, *, is_request: bool) -> bool:
        """Whether bodies of messages that no later ones are read by are decoded: those of Produce requests always."""
        return self.decode.bodies or (is_request and api_key == PRODUCE)

    def count(self, problems: tuple[Problem, ...], messages: int = 1) -> None:
        """Count messages with which this is told."""
        if problems is _NO_BODY:
            self.left_out.bodies += messages
        elif problems:
            self.left_out.records += messages

    def _lack(self, api_key: int, *, is_request: bool, has_body: bool) -> tuple[Problem, ...]:
        if not (has_body or self.decode.bodies):
            return _NO_BODY
        has_records = self._full.records in _WHOLE and _has_records(api_key, is_request=is_request)
        return _NO_RECORDS if has_records else ()


def _has_records(api_key: int, *, is_request: bool) -> bool:
    """Whether such messages have `records` fields."""
    found = api(api_key)
    if found is None:
        return False
    return (found.definition.request if is_request else found.definition.response).has_records
