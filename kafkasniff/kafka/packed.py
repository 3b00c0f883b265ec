"""Bodies and records as dicts, by the native kernel: it writes MessagePack, which msgspec reads.

What the kernel leaves to Python within a body (`kernel/pack.zig`, `Extension`) is made while msgspec reads: secret
bytes, `records` fields that are large, compressed or odd, batches that keep their bytes, records with headers that say
more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct as Packing
from typing import Any, Final

import msgspec

from kafkasniff.kafka.body_problems import add_noted, walk_ended
from kafkasniff.kafka.context import DecodeContext, DecodeOptions, RenderingOptions
from kafkasniff.kafka.layout import Struct
from kafkasniff.kafka.packed_records import HEADED, MAX_PACKED, caller_of, plain, with_header_facts
from kafkasniff.kafka.program import program_of
from kafkasniff.kafka.secrets import redact_config
from kafkasniff.kafka.wire import Ended, Odd, add_error
from kafkasniff.native.caller import Program, read_notes
from kafkasniff.native.calls import PACK, PACKED_RECORDS, SHOW_SECRETS, Hiding, Noted
from kafkasniff.native.library import Kernel

__all__ = ["Decoder", "Reading", "decoder_of", "read_plain", "ways_to_configs"]

Decoder = Callable[[bytes, int, int, DecodeContext], tuple[dict[str, Any], int]]

_SECRET, _RECORDS, _UNALIGNED, _HELD = 1, 2, 3, 4
_RENDERED: Final = 6
"""`kernel/pack.zig`, `Extension`."""
_PLACE: Final = Packing("<QQ")
_RENDERED_PLACE: Final = Packing("<QQQ")

read_plain: Final = plain.decode

Way = tuple[tuple[str, bool], ...]
"""The fields that lead to a struct, from the root, and whether each is an array."""


class Reading:
    """Memory for one body that is being read."""

    def __init__(self, kernel: Kernel, most_output: int = MAX_PACKED) -> None:
        self.caller = caller_of(kernel, most_output)
        self._most_output = most_output
        self.pack = self.caller.pack
        self.decoder = msgspec.msgpack.Decoder(ext_hook=self.extension)
        self.options: DecodeOptions | None = None
        self.data = b""
        self.context = DecodeContext(DecodeOptions())

    def use(self, options: DecodeOptions) -> None:
        """Read as these options say."""
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
        """The body in `size` bytes of output, and where it ends; raises Odd, and Ended where the walk ended early."""
        notes, after, records, truncated, looked_at = self.caller.results()
        noted: list[Noted] = []
        if notes:
            codes, noted = read_notes(self.caller.notes(notes), 0, notes)
            for code, path in codes:
                add_error(context, code, path)
        context.records += records
        context.truncated |= truncated > 0
        context.telling |= looked_at > 0
        before = len(context.problems)
        body = self.read(self.caller.view[:size], data, context)
        self.caller.shrink()
        if records and any(problem.kind == "record-bound" for problem in context.problems[before:]):
            # Fields are counted in another order here than the walker reads them in.
            raise Odd
        if noted:
            ended = walk_ended(noted)
            if len(context.problems) > before and len(noted) > ended:
                # Those of records stand between these.
                raise Odd
            add_noted(context, noted)
            if ended:
                raise Ended(body, after)
        return body, after

    def read(self, packed: memoryview, data: bytes, context: DecodeContext) -> dict[str, Any]:
        """A body with what its extensions stand for; what these have to report goes to the context."""
        self.data, self.context = data, context
        body: dict[str, Any] = self.decoder.decode(packed)
        self.data = b""
        return body

    def extension(self, kind: int, content: memoryview) -> Any:
        """What an extension stands for."""
        context, data = self.context, self.data
        if kind == HEADED:
            return with_header_facts(plain.decode(content))
        position, size = _PLACE.unpack_from(content)
        end = position + size
        if kind == _HELD:
            from kafkasniff.kafka.record_batch import Batch, HeldRecords  # noqa: PLC0415

            kept = Batch(plain.decode(content[_PLACE.size :]))
            kept.held = HeldRecords(data[position:end], position - context.base)
            return kept
        if kind == _RENDERED:
            from kafkasniff.kafka.records import rendered_records  # noqa: PLC0415

            _, _, truncated = _RENDERED_PLACE.unpack_from(content)
            assert isinstance(context.options, RenderingOptions)
            json = bytes(content[_RENDERED_PLACE.size :])
            return rendered_records(json, truncated, data, position, end, context.options)
        if kind == _SECRET:
            return context.withhold(data[position:end])
        # Imported here, and above, because these modules need this one: schemas describe what lies in records.
        from kafkasniff.kafka.records import decode_records, decode_unaligned  # noqa: PLC0415

        return (decode_unaligned if kind == _UNALIGNED else decode_records)(data, position, end, context)


_free: Final[list[Reading]] = []
"""Readings that nobody uses: bodies lie in each other, and threads read at the same time."""


def decoder_of(kernel: Kernel, root: Struct) -> Decoder:
    """The decoder of a layout.

    It raises Odd at bytes that the walker has to read, and Ended where its walk ended early.
    """
    program = Program(kernel, program_of(root))
    ways = tuple(ways_to_configs(root))
    address, has_records, has_extensions = program.address, root.records, root.records or root.secrets

    def decode(data: bytes, position: int, end: int, context: DecodeContext) -> tuple[dict[str, Any], int]:
        # Hot: most messages pass here one by one.
        try:
            reading = _free.pop()
        except IndexError:
            reading = Reading(kernel)
        options = context.options
        if options is not reading.options:
            reading.use(options)
        if has_records:
            reading.caller.most_records = max(options.max_records - context.records, 0)
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
        if ways and not options.show_secrets:
            for way in ways:
                for config in _at(body, way):
                    redact_config(config)
        return body, after

    # The program is memory of this object's, which has to live as long as the function.
    decode.program = program  # type: ignore[attr-defined]
    return decode


def ways_to_configs(struct: Struct, way: Way = ()) -> Iterator[Way]:
    """To the structs of a layout that have a value that may be secret by its name; inner ones first."""
    for field in (*struct.fields, *struct.tagged):
        if field.struct is not None:
            yield from ways_to_configs(field.struct, (*way, (field.name, field.array)))
    if any(field.secret == "config" for field in struct.fields):
        yield way


def _at(struct: dict[str, Any], way: Way) -> Iterator[dict[str, Any]]:
    """The structs that a way leads to."""
    if not way:
        yield struct
        return
    (name, is_array), rest = way[0], way[1:]
    found = struct.get(name)
    for one in (found or ()) if is_array else () if found is None else (found,):
        yield from _at(one, rest)
