"""Bodies and records as dicts, by the native kernel, which writes MessagePack that msgspec decodes.

Parts of a body that the kernel leaves to Python (`kernel/pack.zig`, `Extension`) are made while msgspec decodes: secret
bytes, `records` fields that are large, compressed or odd, batches that keep their bytes, records with headers that need
interpretation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct as Packing
from typing import Any, Final

import msgspec

from kafkasniff.kafka.record_facts import HEADERS as SCHEMA_HEADERS
from kafkasniff.kafka.record_facts import TRACE_HEADERS, TRACE_KINDS, add_from_header, add_trace_id
from kafkasniff.kafka.schema.context import (
    DecodeContext,
    DecodeOptions,
    Ended,
    Odd,
    RecordsReader,
    RenderingOptions,
    add_error,
)
from kafkasniff.kafka.schema.definition import Struct, program_of
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS, redact_config
from kafkasniff.kafka.schema.walker import add_noted, walk_ended
from kafkasniff.native.caller import Caller, Program, read_notes
from kafkasniff.native.library import PACK, PACKED_RECORDS, SHOW_SECRETS, Base, Hiding, Kernel, Noted, kernel

MAX_PACKED: Final = 64 << 20
"""Maximum size of the MessagePack of one body, or of one batch's records; larger ones are decoded by Python."""

HEADED: Final = 5
"""`kernel/pack.zig`, `Extension`: a record with headers that hold a schema or a trace id."""

plain: Final = msgspec.msgpack.Decoder()
"""For maps without extensions."""


def caller_of(kernel: Kernel, most_output: int = MAX_PACKED) -> Caller:
    """A caller for dicts; `most_output`: maximum bytes of MessagePack."""
    headers = [name.encode() for name in SCHEMA_HEADERS]
    return Caller(kernel, headers=headers, marks=CONNECT_KEYS, traces=TRACE_KINDS, most_output=most_output)


def with_header_facts(record: dict[str, Any]) -> dict[str, Any]:
    """The record, with the schema and trace ids of its headers."""
    for header in record["headers"]:
        if header["key"] in SCHEMA_HEADERS:
            add_from_header(record, header)
        elif header["key"] in TRACE_HEADERS:
            add_trace_id(record, header)
    return record


def _extension(kind: int, content: memoryview) -> dict[str, Any]:
    assert kind == HEADED
    return with_header_facts(plain.decode(content))


_decode: Final[Callable[[memoryview], list[dict[str, Any]]]] = msgspec.msgpack.Decoder(ext_hook=_extension).decode
_free_callers: Final[list[Caller]] = []
"""Unused callers: threads decode at the same time."""


def read_record_list(
    data: bytes, start: int, end: int, base: Base, *, budget: int, most: int
) -> tuple[list[dict[str, Any]], int, bool] | None:
    """The records that fill `data[start:end]`; None if Python has to decode them.

    `budget`: maximum number of records, and of headers; `most`: bytes of MessagePack, at most `MAX_PACKED`. Returns the
    records, their number or that of their headers, whichever is larger, and whether interpreters may add something.
    """
    try:
        caller = _free_callers.pop()
    except IndexError:
        caller = caller_of(kernel())
        caller.wants = PACK
    caller.most_records = budget
    caller.most_output = min(MAX_PACKED, most)
    packed = caller.record_list(data, start, end, base)
    result = None
    if packed is not None:
        _, _, count, _, looked_at = caller.results()
        result = _decode(packed), count, bool(looked_at)
        caller.shrink()
    _free_callers.append(caller)
    return result


Decoder = Callable[[bytes, int, int, DecodeContext], tuple[dict[str, Any], int]]

_SECRET, _RECORDS, _UNALIGNED, _HELD = 1, 2, 3, 4
_RENDERED: Final = 6
"""`kernel/pack.zig`, `Extension`."""
_PLACE: Final = Packing("<QQ")
_RENDERED_PLACE: Final = Packing("<QQQ")

read_plain: Final = plain.decode

FieldPath = tuple[tuple[str, bool], ...]
"""The path of fields to a struct, from the root, and whether each is an array."""


class BodyMemory:
    """Memory for decoding one body."""

    def __init__(self, kernel: Kernel, most_output: int = MAX_PACKED) -> None:
        self.caller = caller_of(kernel, most_output)
        self._most_output = most_output
        self.pack = self.caller.pack
        self.decoder = msgspec.msgpack.Decoder(ext_hook=self.extension)
        self.options: DecodeOptions | None = None
        self.data = b""
        self.context = DecodeContext(DecodeOptions())
        self.reader: RecordsReader | None = None
        """Reads `records` fields."""

    def use(self, options: DecodeOptions) -> None:
        """Use these options."""
        self.options = options
        wants = PACK | PACKED_RECORDS[options.records] | (SHOW_SECRETS if options.show_secrets else 0)
        hiding = Hiding()
        if isinstance(options, RenderingOptions) and options.renderer is not None and options.records == "full":
            wants |= options.renderer.wants
            hiding = options.renderer.hiding
        self.caller.most_output = min(self._most_output, options.max_decompressed)
        self.caller.wants = wants
        self.caller.hide(hiding)

    def whole(self, size: int, data: bytes, context: DecodeContext) -> tuple[dict[str, Any], int]:
        """The body in `size` bytes of output, and its end; raises Odd, and Ended if the walk ended early."""
        notes, after, records, truncated, looked_at = self.caller.results()
        noted: list[Noted] = []
        if notes:
            codes, noted = read_notes(self.caller.notes(notes), 0, notes)
            for code, path in codes:
                add_error(context, code, path)
        context.records += records
        context.truncated |= truncated > 0
        context.interpretable |= looked_at > 0
        before = len(context.problems)
        body = self.read(self.caller.view[:size], data, context)
        self.caller.shrink()
        if records and any(problem.kind == "record-bound" for problem in context.problems[before:]):
            # Here fields are counted in another order than in the walker.
            raise Odd
        if noted:
            ended = walk_ended(noted)
            if len(context.problems) > before and len(noted) > ended:
                # Those of records are in between.
                raise Odd
            add_noted(context, noted)
            if ended:
                raise Ended(body, after)
        return body, after

    def read(self, packed: memoryview, data: bytes, context: DecodeContext) -> dict[str, Any]:
        """A body with its extensions; their problems go to the context."""
        self.data, self.context = data, context
        body: dict[str, Any] = self.decoder.decode(packed)
        self.data = b""
        return body

    def extension(self, kind: int, content: memoryview) -> Any:
        """The value of an extension."""
        context, data = self.context, self.data
        if kind == HEADED:
            return with_header_facts(plain.decode(content))
        position, size = _PLACE.unpack_from(content)
        end = position + size
        if kind == _SECRET:
            return context.withhold(data[position:end])
        reader = self.reader
        assert reader is not None
        if kind == _HELD:
            return reader.held_batch(plain.decode(content[_PLACE.size :]), data[position:end], position - context.base)
        if kind == _RENDERED:
            _, _, truncated = _RENDERED_PLACE.unpack_from(content)
            assert isinstance(context.options, RenderingOptions)
            json = bytes(content[_RENDERED_PLACE.size :])
            return reader.rendered_records(json, truncated, data, position, end, context.options)
        read = reader.decode_unaligned if kind == _UNALIGNED else reader.decode_records
        return read(data, position, end, context)


_free: Final[list[BodyMemory]] = []
"""Unused objects: bodies are nested, and threads decode at the same time."""


def decoder_of(kernel: Kernel, root: Struct, reader: RecordsReader | None = None) -> Decoder:
    """The decoder of a layout; one with `records` fields needs a `reader`.

    It raises Odd at bytes that need the walker, and Ended if its walk ended early.
    """
    program = Program(kernel, program_of(root))
    paths = tuple(config_paths(root))
    address, has_records, has_extensions = program.address, root.records, root.records or root.secrets

    def decode(data: bytes, position: int, end: int, context: DecodeContext) -> tuple[dict[str, Any], int]:
        # Hot: most messages that are decoded one by one pass here.
        try:
            reading = _free.pop()
        except IndexError:
            reading = BodyMemory(kernel)
        options = context.options
        if options is not reading.options:
            reading.use(options)
        if has_records:
            reading.caller.most_records = max(options.max_records - context.records, 0)
            reading.reader = reader
        try:
            made = reading.pack(address, data, position, end)
            if made < 0:
                raise Odd
            after = end
            if made & 1 or has_extensions:
                body, after = reading.whole(made >> 1, data, context)
            else:
                body = read_plain(reading.caller.view[: made >> 1])
        finally:
            _free.append(reading)
        if paths and not options.show_secrets:
            for field_path in paths:
                for config in _at(body, field_path):
                    redact_config(config)
        return body, after

    # The program is in memory of this object, which has to live as long as the function.
    decode.program = program  # type: ignore[attr-defined]
    return decode


def config_paths(struct: Struct, field_path: FieldPath = ()) -> Iterator[FieldPath]:
    """The paths to structs of a layout with a value that may be secret by its name; inner ones first."""
    for field in (*struct.fields, *struct.tagged):
        if field.struct is not None:
            yield from config_paths(field.struct, (*field_path, (field.name, field.array)))
    if any(field.secret == "config" for field in struct.fields):
        yield field_path


def _at(struct: dict[str, Any], field_path: FieldPath) -> Iterator[dict[str, Any]]:
    """The structs at the end of a path."""
    if not field_path:
        yield struct
        return
    (name, is_array), rest = field_path[0], field_path[1:]
    found = struct.get(name)
    for one in (found or ()) if is_array else () if found is None else (found,):
        yield from _at(one, rest)
