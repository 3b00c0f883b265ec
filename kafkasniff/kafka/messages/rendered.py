"""Bodies as JSON directly from their bytes, by the native kernel: for runs in which only a JSON sink needs them.

Messages with more to report than a body and its error codes are decoded by Python as usual (`message`), with the
same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.embedded.interpreters import names_only
from kafkasniff.kafka.messages.message import Decoded
from kafkasniff.kafka.messages.message_plan import MessagePlan
from kafkasniff.kafka.messages.packed_bodies import Programs
from kafkasniff.kafka.record_facts import HEADERS as SCHEMA_HEADERS
from kafkasniff.kafka.record_facts import TRACE_KINDS
from kafkasniff.kafka.records.batches import HEADER_SIZE
from kafkasniff.kafka.records.compression import MAX_RATIO, decompress
from kafkasniff.kafka.records.record_list import control_types
from kafkasniff.kafka.records.record_sets import rendered_records
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.kafka.schema.context import (
    DecodeContext,
    DecodeOptions,
    RenderedBody,
    RenderedRecords,
    RenderingOptions,
)
from kafkasniff.kafka.schema.program import ops_of, program_of
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS, may_be_misread
from kafkasniff.kafka.schema.walker import NUMBERED, TRAILING
from kafkasniff.model import Direction, ErrorCode
from kafkasniff.native.caller import Caller, Code, Program, WantedBatch, read_notes
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
        """Some bodies; see `packed_bodies.BodyMaker`. Hot."""
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
