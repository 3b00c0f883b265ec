"""How much of the messages is decoded if a run cannot keep up: one object for all connections of a run.

At full detail it changes nothing. At lower levels, skipped parts are reported with the message, or counted if the
message itself is skipped. Pairing of responses with requests is right at any level, since headers are always decoded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.schema.context import DecodeOptions, RecordsRenderer, RenderingOptions
from kafkasniff.model import Problem

__all__ = ["Detail", "LeftOut", "Level"]


class Level(IntEnum):
    """What is skipped; each level includes the previous ones."""

    ALL = 0
    """Nothing is skipped."""
    NO_RECORDS = 1
    NO_BODIES = 2
    """Bodies, except for those that other messages need."""
    NO_MESSAGES = 3
    """New exchanges are paired and counted, but not reported."""


class LeftOut(msgspec.Struct):
    """Numbers of messages with skipped parts."""

    records: int = 0
    bodies: int = 0
    requests: int = 0
    """Requests that were not reported at all, like their responses."""
    responses: int = 0


_WHOLE: Final = ("full", "columns")
"""Values of the option `records` that decode all of them."""
_NO_RECORDS: Final = (Problem("records-skipped", "its records were not decoded: kafkasniff could not keep up"),)
_NO_BODY: Final = (Problem("body-skipped", "its body was not decoded: kafkasniff could not keep up"),)


class Detail:
    """Mutable: the current level, and what was skipped so far."""

    __slots__ = ("_decodes", "_full", "_renderer", "decode", "hides", "left_out", "level")

    def __init__(self, full: DecodeOptions, renderer: RecordsRenderer | None = None) -> None:
        self._full = full
        self._renderer = renderer
        self.level = Level.ALL
        self._decodes: dict[Level, DecodeOptions] = {}
        """Decode options of each level so far: users compare them by identity."""
        self.decode = self._options(Level.ALL)
        """The current decode options."""
        self.hides = False
        """Exchanges that begin now are not reported."""
        self.left_out = LeftOut()

    def _options(self, level: Level) -> DecodeOptions:
        found = self._decodes.get(level)
        if found is not None:
            return found
        full = self._full
        if level:
            records = "metadata" if full.records in _WHOLE else full.records
            # Only pairing needs the bodies of messages that are not reported.
            records = "skip" if level is Level.NO_MESSAGES else records
            found = msgspec.structs.replace(full, records=records, bodies=level is Level.NO_RECORDS)
        elif self._renderer is None:
            found = full
        else:
            found = RenderingOptions(**msgspec.structs.asdict(full), renderer=self._renderer)
        self._decodes[level] = found
        return found

    @property
    def full(self) -> DecodeOptions:
        """Decode options at full detail."""
        return self._full

    @property
    def has_records(self) -> bool:
        """Whether there are records to skip: without, the first level changes nothing."""
        return self._full.records in _WHOLE

    def limit(self, decompressed: int, records: int) -> None:
        """Set the bounds, from the next message on."""
        self._full = msgspec.structs.replace(self._full, max_decompressed=decompressed, max_records=records)
        self._decodes.clear()
        self.set(self.level)

    def set(self, level: Level) -> None:
        """Set the level, from the next message on."""
        self.level = level
        self.hides = level is Level.NO_MESSAGES
        self.decode = self._options(level)

    def omissions(self, api_key: int, *, is_request: bool, has_body: bool) -> tuple[Problem, ...]:
        """The problems for a message that was decoded below full detail; counts it."""
        problems = self._lack(api_key, is_request=is_request, has_body=has_body)
        self.count(problems)
        return problems

    def lack(self, api_key: int, *, is_request: bool) -> tuple[Problem, ...]:
        """The problems for messages of a kind that no later message depends on, at the current level."""
        if not self.level:
            return ()
        return self._lack(api_key, is_request=is_request, has_body=False)

    def count(self, problems: tuple[Problem, ...], messages: int = 1) -> None:
        """Count messages with these problems."""
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
