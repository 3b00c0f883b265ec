"""Bodies decoded in groups by the native kernel: as dicts, and as JSON for runs in which only a JSON sink needs them.

A call of the kernel costs a microsecond, more than decoding most bodies does. Messages with more to report than a body
and its error codes are decoded by Python as usual (`message`), with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.messages.message import UNSUPPORTED_VERSION, Decoded, settled
from kafkasniff.kafka.messages.message_plan import MessagePlan, names_only, request_plan, response_plan
from kafkasniff.kafka.record_facts import HEADERS as SCHEMA_HEADERS
from kafkasniff.kafka.record_facts import TRACE_KINDS
from kafkasniff.kafka.records import record_sets
from kafkasniff.kafka.records.batches import HEADER_SIZE
from kafkasniff.kafka.records.compression import MAX_RATIO, decompress
from kafkasniff.kafka.records.record_list import control_types
from kafkasniff.kafka.records.record_sets import rendered_records
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.kafka.schema.context import (
    LARGE_BODY,
    BodyWithErrors,
    DecodeContext,
    DecodeOptions,
    RenderedBody,
    RenderedRecords,
    RenderingOptions,
)
from kafkasniff.kafka.schema.definition import ops_of, program_of
from kafkasniff.kafka.schema.packed import BodyMemory, config_paths, read_plain
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS, may_be_misread
from kafkasniff.kafka.schema.walker import NUMBERED, TRAILING
from kafkasniff.model import Body, Direction, ErrorCode
from kafkasniff.native.caller import HEAD_OF_ARRAY, ITEM, Caller, Code, Program, WantedBatch, read_notes
from kafkasniff.native.library import (
    COMPRESSED,
    DONE,
    FORMS,
    JSON_RECORDS,
    PAYLOAD,
    RECORDS,
    SHOW_SECRETS,
    Hiding,
    Kernel,
    Noted,
)
from kafkasniff.native.lines import Careful, LineWordings, Wording

MAX_KINDS: Final = 4096
"""Maximum number of message kinds with a program; versions come from the wire."""

Made = RenderedBody | BodyWithErrors | Body | None


class BodyMaker(Protocol):
    """Makes bodies: JSON (`Renderer`) or dicts (`PackedBodies`)."""

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


MAX_SIZE: Final = 4 << 20
"""Maximum size of a rendered message; larger ones are left to Python."""
_RECORDS: Final = {**RECORDS, "metadata": RECORDS["batches"]}
"""The metadata log's records are left to Python, since its topic is one of the brokers' own."""
MAX_INFLATED: Final = 8 << 20
"""Bytes that its batches may decompress to; likewise. The JSON takes less memory than the records would as dicts."""


def program_for(
    plan: MessagePlan, *, show_secrets: bool = False, hides: bool = False, roles: Sequence[int] | None = None
) -> bytes | None:
    """The program that renders bodies of a plan; None if Python has to decode them all.

    `hides`: payload is not shown; `roles`: as for `program_of`.
    """
    schema = plan.schema
    if schema is None or not plan.alone or not (plan.reads_records or names_only(plan.interpret)):
        return None
    for op in ops_of(schema.root):
        # orjson writes numbers with a fraction, and whether a configuration is secret depends on names.
        if op.kind == "float64" or ("config" in op.flags and not show_secrets):
            return None
        if op.kind == "records" and ("secret" in op.flags or "unaligned" in op.flags):
            return None
        # The payload of a nested message depends on its own definition.
        if hides and "nests" in op.flags:
            return None
    return program_of(schema.root, whole_records=plan.whole_records, roles=roles)


class Renderer:
    """Renders bodies.

    `form`: how bytes are shown (`sinks.jsonl.BytesForm`); `renders`: for which key, version and direction of messages
    only the sink needs the body; `hiding`: how payload is shown.
    """

    at_once = 128

    def __init__(
        self,
        kernel: Kernel,
        form: str,
        renders: Callable[[int, int, Direction], bool],
        hiding: Hiding = Hiding(),  # noqa: B008 - immutable
    ) -> None:
        self._asked = form, renders
        self._form = FORMS[form] | PAYLOAD[hiding.form]
        self._renders = renders
        self.hiding = hiding
        self.wants = self._form | JSON_RECORDS
        self._kernel = kernel
        self._caller = self._new_caller()
        self._programs = Programs(kernel, self._code)
        self._options: DecodeOptions | None = None
        self._active = False
        self.memory = 0
        """Bytes of the last group of bodies."""

    def use(self, options: DecodeOptions) -> bool:
        """Use these options from now on; returns whether anything is rendered."""
        if options is not self._options:
            self._options = options
            self._programs.clear()
            self._active = options.bodies and options.inside and options.records in _RECORDS
            if self._active:
                secrets = SHOW_SECRETS if options.show_secrets else 0
                self._caller.wants = self._form | _RECORDS[options.records] | secrets
                self._caller.most_records = options.max_records
        return self._active

    def _new_caller(self) -> Caller:
        headers = [name.encode() for name in SCHEMA_HEADERS]
        controls = partial(control_types, self._kernel)
        caller = Caller(self._kernel, headers=headers, marks=CONNECT_KEYS, traces=TRACE_KINDS, controls=controls)
        caller.hide(self.hiding)
        return caller

    def caller(self) -> Caller:
        """Another caller with its own memory and the current settings of this one."""
        caller = self._new_caller()
        caller.wants, caller.most_records = self._caller.wants, self._caller.most_records
        return caller

    def another(self) -> Renderer:
        """One that renders the same, with its own memory, for another thread."""
        return Renderer(self._kernel, *self._asked, self.hiding)

    def inflate(self, data: bytes | memoryview) -> Callable[[WantedBatch], bytes | None]:
        """Decompresses batches of the message `data`; None for one that Python has to decode."""
        assert self._options is not None
        return Inflate(data, min(MAX_INFLATED, self._options.max_decompressed))

    def program(self, key: int, version: int, direction: Direction) -> Program | None:
        """The program for bodies of a kind; None if Python decodes them."""
        return self.line_program(key, version, direction) if self._renders(key, version, direction) else None

    def line_program(self, key: int, version: int, direction: Direction) -> Program | None:
        """The same for callers that know the fields an enricher adds to bodies (`native.names`)."""
        return self._programs.get(key, version, direction) if self._active else None

    def _code(self, plan: MessagePlan) -> bytes | None:
        assert self._options is not None
        hides = self.hiding.form != "shown"
        return program_for(plan, show_secrets=self._options.show_secrets, hides=hides)

    def body(self, program: Program, data: bytes, start: int, end: int) -> RenderedBody | None:
        """The body `data[start:end]`; None if Python has to decode it."""
        if end - start > MAX_SIZE:
            return None
        made = self._caller.body(program, data, start, end, self.inflate(data))
        if made is None:
            return None
        return self._rendered(made.json, made.codes, made.problems, made.after, end)

    def _rendered(
        self, json: bytes, codes: list[Code], problems: list[Noted], after: int, end: int
    ) -> RenderedBody | None:
        """The body; None if there is more to report."""
        return None if problems or after != end else RenderedBody(json, _error_codes(codes))

    def records(self, data: bytes, start: int, end: int, context: DecodeContext) -> RenderedRecords | None:
        """The `records` field `data[start:end]`; None if it has to be decoded."""
        assert isinstance(context.options, RenderingOptions)
        if not self.use(context.options) or end - context.base > MAX_SIZE:
            return None
        most = min(MAX_INFLATED, context.options.max_decompressed)
        inflate = Inflate(data, max(most - context.decompressed, 0))
        made = self._caller.records(data, start, end, inflate)
        if made is None or made.records > context.options.max_records - context.records:
            return None
        context.decompressed += inflate.produced
        context.records += made.records
        return rendered_records(made.json, made.truncated, data, start, end, context.options)

    def rest(self, decoded: Decoded, *, is_request: bool) -> Decoded | None:
        """The message with its body, if only the header was decoded; None if Python has to decode it."""
        rest = decoded.rest
        if rest is None or rest.cut or rest.problems or decoded.api_key is None or decoded.body_version is not None:
            return None
        if not self.use(rest.options) or decoded.api_version is None:
            return None
        program = self.program(decoded.api_key, decoded.api_version, "request" if is_request else "response")
        body = None if program is None else self.body(program, rest.data, rest.position, rest.end)
        if body is None:
            return None
        # Its body is only for a sink: see `RenderedBody`.
        return msgspec.structs.replace(decoded, body=body, errors=body.errors, rest=None)

    def bodies(self, data: bytes, items: NDArray[np.void], _: list[int]) -> list[RenderedBody | None]:
        """Some bodies; see `BodyMaker`. Hot."""
        looked, json, notes = self._caller.bodies(data, items)
        self.memory = len(json)
        items = items[:looked]
        # Nothing to report in any of them, as in most groups.
        if not notes and (items["status"] == DONE).all() and (items["after"] == items["end"]).all():
            ends = items["output_end"].tolist()
            return [RenderedBody(json[begin:end]) for begin, end in pairwise([0, *ends])]
        rendered_bodies: list[RenderedBody | None] = []
        begin = notes_begin = 0
        columns = (items[name].tolist() for name in ("status", "output_end", "notes_end", "after", "end"))
        for index, (status, output_end, notes_end, after, end) in enumerate(zip(*columns, strict=True)):
            if status == DONE:
                if notes_end == notes_begin and after == end:
                    rendered_bodies.append(RenderedBody(json[begin:output_end]))
                else:
                    codes, problems = read_notes(notes, notes_begin, notes_end)
                    rendered_bodies.append(self._rendered(json[begin:output_end], codes, problems, after, end))
                    notes_begin = notes_end
                begin = output_end
            elif status == COMPRESSED:
                body = self._compressed(data, items[index])
                self.memory += 0 if body is None else len(body.json)
                rendered_bodies.append(body)
            else:
                rendered_bodies.append(None)
        return rendered_bodies

    def _compressed(self, data: bytes, item: np.void) -> RenderedBody | None:
        """A message whose records have to be decompressed first."""
        return self.body(self._programs.kept[int(item["program"])][0], data, int(item["start"]), int(item["end"]))


def _error_codes(codes: list[Code]) -> tuple[ErrorCode, ...]:
    return tuple([ErrorCode(code, error_name(code), path) for code, path in codes])


class Inflate:
    """Decompresses batches of one message, to at most `limit` bytes in total."""

    __slots__ = ("_data", "_limit", "produced")

    def __init__(self, data: bytes | memoryview, limit: int) -> None:
        # Slices of a view are not copies.
        self._data = memoryview(data)
        self._limit = limit
        self.produced = 0

    def __call__(self, batch: WantedBatch) -> bytes | None:
        """The records of a batch; None if there is anything to report."""
        limit = self._limit - self.produced
        if batch.magic == 2:
            data = self._data[batch.position + HEADER_SIZE : batch.end]
        else:
            data = self._data[batch.position : batch.end]
            limit = min(limit, MAX_RATIO * len(data))
        result = decompress(batch.codec, data, limit, magic=batch.magic)
        self.produced += result.produced
        return None if result.failure is not None or result.detail else result.data


def wordings() -> LineWordings:
    """The words of all problems that the kernel notes."""
    return LineWordings.of(
        Wording(template.kind.encode(), template.words.encode(), may_be_misread((template.kind,), cut=False))
        for template in NUMBERED
    )


def careful(plan: MessagePlan, *, show_secrets: bool) -> Careful:
    """What the problems of a plan's bodies need besides."""
    marks = () if show_secrets else (b"",) if plan.has_secrets else tuple(plan.secret_marks)
    return Careful(TRAILING.words.format("{}", plan.api, plan.version).encode(), marks)
