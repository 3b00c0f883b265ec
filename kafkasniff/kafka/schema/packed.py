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

from kafkasniff.kafka.schema.body_problems import add_noted, walk_ended
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions, RecordsReader, RenderingOptions
from kafkasniff.kafka.schema.layout import Struct
from kafkasniff.kafka.schema.packed_records import HEADED, MAX_PACKED, caller_of, plain, with_header_facts
from kafkasniff.kafka.schema.program import program_of
from kafkasniff.kafka.schema.secrets import redact_config
from kafkasniff.kafka.schema.wire import Ended, Odd, add_error
from kafkasniff.native.caller import Program, read_notes
from kafkasniff.native.calls import PACK, PACKED_RECORDS, SHOW_SECRETS, Hiding, Noted
from kafkasniff.native.library import Kernel

__all__ = ["BodyMemory", "Decoder", "config_paths", "decoder_of", "read_plain"]

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
