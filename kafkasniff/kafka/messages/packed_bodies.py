"""Bodies of messages of whole exchanges as dicts, decoded in groups by the native kernel.

A call of the kernel costs a microsecond, more than decoding most bodies does. Bodies equal those of
`message.decode_request` and `decode_response`, and are None if there may be more to report than error codes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.messages.message import UNSUPPORTED_VERSION, settled
from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.kafka.records import record_sets
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.kafka.schema.context import LARGE_BODY, BodyWithErrors, DecodeContext, DecodeOptions, RenderedBody
from kafkasniff.kafka.schema.packed import BodyMemory, config_paths, read_plain
from kafkasniff.kafka.schema.program import program_of
from kafkasniff.model import Body, Direction, ErrorCode
from kafkasniff.native.caller import HEAD_OF_ARRAY, ITEM, Program, read_notes
from kafkasniff.native.library import Kernel

MAX_KINDS: Final = 4096
"""Maximum number of message kinds with a program; versions come from the wire."""

Made = RenderedBody | BodyWithErrors | Body | None


class BodyMaker(Protocol):
    """Makes bodies: JSON (`rendered.Renderer`) or dicts (`packed_bodies.PackedBodies`)."""

    at_once: int
    """Number of bodies decoded ahead."""
    memory: int
    """Approximate memory of the last group of bodies, in bytes."""

    def use(self, options: DecodeOptions) -> bool:
        """Use these options from now on; returns whether any bodies are decoded ahead."""

    def program(self, key: int, version: int, direction: Direction) -> Program | None:
        """The program for bodies of a kind; None if they are decoded one by one."""

    def bodies(self, data: bytes, items: NDArray[np.void], bases: list[int]) -> list[Any]:
        """Some bodies, in the order of `items` (`caller.ITEM`); None for those that are decoded one by one.

        `bases`: where their messages begin. Returns at least one.
        """


class Programs:
    """Programs by the kind of messages; `make`: returns the program of a plan, None if there is none."""

    def __init__(self, kernel: Kernel, make: Callable[[MessagePlan], bytes | None]) -> None:
        self._kernel = kernel
        self._make = make
        self._programs: dict[tuple[int, int, Direction], Program | None] = {}
        self.kept: dict[int, tuple[Program, MessagePlan]] = {}
        """By address, which pending bodies refer to: at most one per known version, direction, and setting of
        show_secrets."""

    def clear(self) -> None:
        """Forget all programs: the options have changed."""
        self._programs.clear()

    def get(self, key: int, version: int, direction: Direction) -> Program | None:
        """The program for bodies of a kind."""
        kind = key, version, direction
        try:
            return self._programs[kind]
        except KeyError:
            plan = request_plan(key, version) if direction == "request" else response_plan(key, version)
            code = self._make(plan)
            program = None if code is None else Program(self._kernel, code)
            if program is not None:
                self.kept[program.address] = program, plan
            if len(self._programs) >= MAX_KINDS:
                self._programs.clear()
            self._programs[kind] = program
            return program


class Ahead:
    """The bodies of messages that are reported one after the other, decoded in groups.

    `programs`: addresses, 0 for a body that is decoded alone; `base`, `start`, `end`: bounds of messages and their
    bodies; `order`: the indices of those that are reported, in that order.
    """

    __slots__ = ("_bases", "_data", "_items", "_made", "_maker", "_order", "_rank", "memory")

    def __init__(  # noqa: PLR0917 - columns
        self,
        maker: BodyMaker,
        data: bytes,
        programs: NDArray[np.uint64],
        base: NDArray[np.int64],
        start: NDArray[np.int64],
        end: NDArray[np.int64],
        order: NDArray[np.int64],
    ) -> None:
        items = np.zeros(len(start), ITEM)
        items["program"], items["start"], items["end"] = programs, start, end
        self._maker = maker
        self._data = data
        self._items = items
        self._bases = base
        self._order = order
        rank = np.zeros(len(start), np.int64)
        rank[order] = np.arange(len(order))
        self._rank: list[int] = rank.tolist()
        self._made: dict[int, Made] = {}
        self.memory = 0
        """Approximate memory of decoded bodies, in bytes, for the caller to subtract."""

    def take(self, index: int) -> Made:
        """The body of an item; None if it has to be decoded alone. Hot."""
        try:
            return self._made.pop(index)
        except KeyError:
            self._make(self._rank[index])
            return self._made.pop(index)

    def _make(self, first: int) -> None:
        """Decode the next group to be reported, from here on."""
        chosen = self._order[first : first + self._maker.at_once]
        items = np.ascontiguousarray(self._items[chosen])
        bodies = self._maker.bodies(self._data, items, self._bases[chosen].tolist())
        self._made = dict(zip(chosen.tolist(), bodies, strict=False))
        self.memory += self._maker.memory


MAX_AHEAD: Final = 1 << 20
"""Bytes of MessagePack made at a time."""
MEMORY_RATIO: Final = 32
"""Maximum memory of dicts per byte of MessagePack, except for empty arrays."""
AT_ONCE: Final = 64
"""Bodies decoded ahead. With more new objects, Python's cycle collector runs a full collection."""


class PackedBodies:
    """Decodes bodies."""

    at_once = AT_ONCE

    def __init__(self, kernel: Kernel) -> None:
        self._reading = BodyMemory(kernel, MAX_AHEAD)
        self._reading.reader = record_sets
        self._programs = Programs(kernel, self._code)
        self._options: DecodeOptions | None = None
        self._context = DecodeContext(DecodeOptions())
        self.memory = 0
        """Approximate memory of the last group of bodies, in bytes."""

    def use(self, options: DecodeOptions) -> bool:
        """Use these options from now on; returns whether any bodies are decoded ahead."""
        if options is not self._options:
            self._options = options
            self._reading.use(options)
            self._programs.clear()
            self._context = DecodeContext(options)
        return options.bodies

    def program(self, key: int, version: int, direction: Direction) -> Program | None:
        """The program for bodies of a kind; None if they are decoded one by one."""
        return self._programs.get(key, version, direction)

    def _code(self, plan: MessagePlan) -> bytes | None:
        """The program of a plan whose bodies are decoded ahead."""
        schema = plan.schema
        if schema is None or not plan.alone or (plan.interpret is not None and not plan.reads_records):
            return None
        assert self._options is not None
        if schema.root.secrets and not self._options.show_secrets and any(config_paths(schema.root)):
            return None
        return program_of(schema.root)

    def bodies(self, data: bytes, items: NDArray[np.void], bases: list[int]) -> list[BodyWithErrors | Body | None]:
        """Some bodies; see `BodyMaker`."""
        looked, packed = self._reading.caller.pack_bodies(data, items)
        self.memory = MEMORY_RATIO * len(packed)
        if not packed:
            return [None] * looked
        items = items[:looked]
        found: list[Any] = read_plain(packed)
        ends, notes = items["output_end"], items["notes_end"]
        is_noted = notes > 0
        is_noted[1:] = notes[1:] > notes[:-1]
        sizes = items["end"] - items["start"]
        has_more = (items["extensions"] | items["looked_at"]) > 0
        has_more |= (items["truncated"] > 0) | (sizes > LARGE_BODY)
        is_whole = items["after"] == items["end"]
        for index in np.flatnonzero((is_noted & has_more) | ~is_whole).tolist():
            found[index] = None
        kept, is_odd = self._programs.kept, has_more.tolist()
        noted = np.flatnonzero(is_noted & ~has_more & is_whole).tolist()
        for index, address in enumerate(items["program"].tolist()):
            body = found[index]
            if body is None:
                continue
            plan = kept[address][1]
            if is_odd[index] or (plan.holds_metadata is not None and plan.holds_metadata(body)):
                begin = int(ends[index - 1]) if index else HEAD_OF_ARRAY
                found[index] = self._body(plan, packed[begin : int(ends[index])], data, bases[index], items[index])
        if noted:
            text = self._reading.caller.notes(int(notes[-1]))
            for index in noted:
                if found[index] is not None:
                    errors = _errors(text[int(notes[index - 1]) if index else 0 : int(notes[index])])
                    found[index] = None if errors is None else BodyWithErrors(found[index], errors)
        return found

    def _body(self, plan: MessagePlan, packed: memoryview, data: bytes, base: int, item: np.void) -> Body | None:
        """A body that may have extensions; None if there is more to report."""
        context = self._context
        context.base = base
        context.records = int(item["records"])
        context.truncated, context.interpretable = bool(item["truncated"]), bool(item["looked_at"])
        body = self._reading.read(packed, data, context)
        return settled(plan, body, int(item["end"] - item["start"]), context)


@lru_cache(maxsize=4096)  # codes and places come from the wire
def _errors(notes: bytes) -> tuple[ErrorCode, ...] | None:
    """The error codes that the kernel has noted of a body; None if there is more to report."""
    codes, problems = read_notes(notes, 0, len(notes))
    # With that code, the body may be of another version (`message.decode_response`).
    if problems or any(code == UNSUPPORTED_VERSION for code, _ in codes):
        return None
    return tuple(ErrorCode(code, error_name(code), path) for code, path in codes)
