"""Bodies of messages of whole exchanges as dicts, some at a time by the native kernel (`ahead.Ahead`).

They are the bodies that `message_body.decode_body` returns, and None where there may be more to report.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.ahead import Programs
from kafkasniff.kafka.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.message_body import settled
from kafkasniff.kafka.message_plan import Plan
from kafkasniff.kafka.packed import Reading, read_plain, ways_to_configs
from kafkasniff.kafka.program import program_of
from kafkasniff.model import Body, Direction
from kafkasniff.native.caller import Program
from kafkasniff.native.calls import DONE
from kafkasniff.native.library import Kernel

__all__ = ["PackedBodies"]

MAX_AHEAD: Final = 1 << 20
"""Bytes of MessagePack that are made at a time: the dicts take some ten times as much."""


class PackedBodies:
    """Makes bodies."""

    def __init__(self, kernel: Kernel) -> None:
        self._reading = Reading(kernel, MAX_AHEAD)
        self._programs = Programs(kernel, self._code)
        self._options: DecodeOptions | None = None
        self._context = DecodeContext(DecodeOptions())

    def use(self, options: DecodeOptions) -> bool:
        """From here on make them as these options say; whether any are made."""
        if options is not self._options:
            self._options = options
            self._reading.use(options)
            self._programs.clear()
            self._context = DecodeContext(options)
        return options.bodies

    def program(self, key: int, version: int, direction: Direction) -> Program | None:
        """The program for bodies of a kind; None where they are read one by one."""
        return self._programs.get(key, version, direction)

    def _code(self, plan: Plan) -> bytes | None:
        """The program of a plan whose bodies are made ahead."""
        schema = plan.schema
        if schema is None or not plan.alone or (plan.interpret is not None and not plan.reads_records):
            return None
        assert self._options is not None
        if schema.root.secrets and not self._options.show_secrets and any(ways_to_configs(schema.root)):
            return None
        return program_of(schema.root)

    def bodies(self, data: bytes, items: NDArray[np.void], bases: list[int]) -> list[Body | None]:
        """Some bodies; see `ahead.BodyMaker`."""
        items = items[: self._reading.caller.pack_bodies(data, items)]
        names = (
            "status",
            "output_end",
            "notes_end",
            "after",
            "program",
            "start",
            "end",
            "records",
            "truncated",
            "looked_at",
        )
        columns = (items[name].tolist() for name in names)
        view = self._reading.caller.view
        found: list[Body | None] = []
        begin = notes_begin = 0
        for status, stop, notes_end, after, address, start, end, *facts, base in zip(*columns, bases, strict=False):
            body: Body | None = None
            if status == DONE:
                if notes_end == notes_begin and after == end:
                    plan, is_plain = self._programs.kept[address][1:]
                    packed = view[begin:stop]
                    body = read_plain(packed) if is_plain else self._body(plan, packed, data, base, end - start, facts)
                begin, notes_begin = stop, notes_end
            found.append(body)
        return found

    def _body(  # noqa: PLR0917 - what is known of a body
        self, plan: Plan, packed: memoryview, data: bytes, base: int, size: int, facts: list[int]
    ) -> Body | None:
        """A body of `size` bytes that may have extensions; None where there is more to say of it."""
        context = self._context
        context.base = base
        context.records, truncated, looked_at = facts
        context.truncated, context.telling = truncated > 0, looked_at > 0
        body = self._reading.read(packed, data, context)
        return settled(plan, body, size, context)
