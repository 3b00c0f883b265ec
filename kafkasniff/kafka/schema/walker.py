"""Decodes a message field by field from its layout: the executable specification of the native kernel.

It is several times slower and handles everything: it keeps the fields before a failure, reports oddities, and can
return the position of each field.

Problems that the kernel reports, too, are defined once (`Template`): the kernel reports one as its number, its place
and up to three numbers; `kernel/walk_notes.zig` (`Problem`) has the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import unpack_from
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.kafka.schema.codes import uuid_text
from kafkasniff.kafka.schema.context import (
    MAX_ELEMENTS,
    ZERO_SIZE_SLACK,
    DecodeContext,
    Odd,
    RecordsReader,
    add_error,
    keep_tag,
)
from kafkasniff.kafka.schema.definition import FORMATS, Field, Struct, element_size
from kafkasniff.kafka.schema.secrets import redact_config, redacted
from kafkasniff.native.library import Noted

UNKNOWN_TAG: Final = "unknown tagged field"
"""Type of a span: a tagged field that this version of the definition does not have."""


class Span(msgspec.Struct):
    """Bytes and their meaning; the spans of a message follow one another without gaps."""

    start: int
    """Absolute offset in the data."""
    end: int
    path: str
    """Path in the body: `topics[0].name`."""
    type: str
    """The type on the wire: `int32`, `compact string`, `count of []` …"""
    value: Any
    """The value as in the body; a number for counts."""
    field: Field | None = None
    """The definition of a string, bytes or records at this place, after their length; None for all else."""

    def content(self, data: bytes) -> int:
        """Start of the part that may be hidden: strings, bytes and records after their length, others at their start.

        The bytes of tagged fields without a definition have their own span.
        """
        if self.field is None:
            return self.start
        if not self.field.compact:
            return self.start + (2 if self.field.type == "string" else 4)
        position = self.start
        while data[position] > 0x7F:
            position += 1
        return position + 1


def value_at(body: Any, path: str) -> Any:
    """The value at the path of a span; None if the body has none."""
    for step in path.split("."):
        name, _, index = step.partition("[")
        body = body.get(name)
        if index and body is not None:
            place = int(index[:-1])
            body = body[place] if place < len(body) else None
        if body is None:
            return None
    return body


class Template(msgspec.Struct, frozen=True):
    """A problem of a field."""

    kind: str
    words: str
    """Text after the path; `{}` for each number. Bytes after a body have no path."""
    ends: bool = False
    """Decoding ends there."""

    def detail(self, path: str, *numbers: int) -> str:
        """The sentence; surplus numbers are ignored."""
        return f"{path}: {self.words.format(*numbers)}"


CUT_NUMBER: Final = Template("body-truncated", "{} bytes needed, {} left", ends=True)
CUT_VALUE: Final = Template("body-truncated", "{} bytes, {} left", ends=True)
CUT_TAG: Final = Template("body-truncated", "tag {} has {} bytes, {} left", ends=True)
LONG_VARINT: Final = Template("varint-too-long", "a varint has at most 5 bytes", ends=True)
NEGATIVE_LENGTH: Final = Template("length-negative", "{} bytes", ends=True)
NEGATIVE_COUNT: Final = Template("length-negative", "{} elements", ends=True)
LONG_ARRAY: Final = Template("array-too-long", "{} elements of at least {} bytes, {} bytes left", ends=True)
LONG_TAG_SECTION: Final = Template("array-too-long", "{} tagged fields in {} bytes", ends=True)
NULL_VALUE: Final = Template("null-not-allowed", "null, which this version does not allow")
ODD_BOOLEAN: Final = Template("bool-not-0-or-1", "{}")
ODD_MARK: Final = Template("struct-mark-odd", "{} instead of 1 (present) or -1 (null)")
ODD_TAGGED_MARK: Final = Template("struct-mark-odd", "{} instead of 1 (present) or 0 (null)")
NOT_TEXT: Final = Template("string-not-utf8", "{} bytes that are not UTF-8")

TRAILING: Final = Template("trailing-bytes", "{} bytes follow the body of {} version {}")

NUMBERED: Final = (
    *(CUT_NUMBER, CUT_VALUE, CUT_TAG, LONG_VARINT, NEGATIVE_LENGTH, NEGATIVE_COUNT, LONG_ARRAY, LONG_TAG_SECTION),
    *(NULL_VALUE, ODD_BOOLEAN, ODD_MARK, ODD_TAGGED_MARK, NOT_TEXT, TRAILING),
)
"""By the kernel's numbers, from 1 on."""


def add_noted(context: DecodeContext, noted: Iterable[Noted]) -> None:
    """Add the kernel's problems of a body."""
    for number, path, position, numbers in noted:
        template = NUMBERED[number - 1]
        context.problem(template.kind, template.detail(path, *numbers), position, always=template.ends)


def walk_ended(noted: list[Noted]) -> bool:
    """Whether the kernel's last problem ended its walk."""
    return bool(noted) and NUMBERED[noted[-1].number - 1].ends


class Walk(NamedTuple):
    """Result of decoding."""

    body: dict[str, Any]
    """All of it, or the complete fields before the failure, at every depth."""
    position: int
    """Where decoding ended."""
    complete: bool
    """False after a failure, which is the last problem of the context."""


MANY_TAGS: Final = Template("too-many-elements", "too many tagged fields without a definition", ends=True)
MANY_ELEMENTS: Final = Template("too-many-elements", f"more than {MAX_ELEMENTS} elements in one message", ends=True)


class _Failure(Exception):  # noqa: N818 - ends the walk from any depth; never leaves this module
    def __init__(self, problem: Template, path: str, position: int, *numbers: int) -> None:
        self.kind = problem.kind
        self.detail = problem.detail(path, *numbers)
        super().__init__(self.detail)
        self.position = position


def walk(  # noqa: PLR0917
    root: Struct,
    data: bytes,
    position: int,
    end: int,
    context: DecodeContext,
    reader: RecordsReader | None = None,
    *,
    spans: list[Span] | None = None,
    most: int | None = None,
) -> Walk:
    """Decode `data[position:end]` by a layout; problems and error codes go to the context, spans to `spans`.

    `most`: number of spans that are kept, from the first on.

    `data` may extend beyond `end`, which is never read. Layouts with `records` fields need a `reader`.
    """
    hide = root.secrets and not context.options.show_secrets
    walker = _Walker(data, position, end, context, reader, hide=hide, spans=spans)
    walker.most = most
    body: dict[str, Any] = {}
    try:
        walker.struct(root, body, "")
    except _Failure as failure:
        context.problem(failure.kind, failure.detail, failure.position, always=True)
        return Walk(body, walker.position, False)
    return Walk(body, walker.position, True)


class _Walker:
    def __init__(
        self,
        data: bytes,
        position: int,
        end: int,
        context: DecodeContext,
        reader: RecordsReader | None,
        *,
        hide: bool,
        spans: list[Span] | None,
    ) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.context = context
        self.reader = reader
        self.hide = hide
        self.spans = spans
        self.most: int | None = None
        self.left = MAX_ELEMENTS
        self.inside: list[str] = []

    def span(self, start: int, path: str, kind: str, value: Any, field: Field | None = None) -> None:
        if self.spans is not None and (self.most is None or len(self.spans) < self.most):
            self.spans.append(Span(start, self.position, path, kind, value, field))

    def odd(self, problem: Template, path: str, position: int, *numbers: int) -> None:
        """Report a problem that does not end decoding."""
        self.context.problem(problem.kind, problem.detail(path, *numbers), position)

    # Numbers

    def number(self, form: str, size: int, path: str) -> Any:
        """A value of fixed size, in the formats of the `struct` module."""
        if size > self.end - self.position:
            raise _Failure(CUT_NUMBER, path, self.position, size, self.end - self.position)
        value = unpack_from(f">{form}", self.data, self.position)[0]
        self.position += size
        return value

    def varint(self, path: str) -> int:
        """An unsigned varint of at most 5 bytes."""
        start = self.position
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte: int = self.number("B", 1, path)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        self.position = start
        raise _Failure(LONG_VARINT, path, start)

    # Structs

    def struct(self, struct: Struct, into: dict[str, Any], path: str) -> None:
        """Decode a struct into a dict, which on a failure keeps the fields before it."""
        first_span = len(self.spans) if self.spans is not None else 0
        complete = False
        try:
            for field in struct.fields:
                self.field(field, into, f"{path}.{field.name}" if path else field.name)
            if struct.flexible:
                self.tag_section(struct, into, path)
            complete = True
        finally:
            if self.hide and any(field.secret == "config" for field in struct.fields):
                redact_config(into, complete)
                self.hide_spans(first_span, path)

    def hide_spans(self, first: int, path: str) -> None:
        """Redact the spans of a configuration entry: only its end shows that its value is secret."""
        if self.spans is not None:
            for span in self.spans[first:]:
                if span.path.rpartition(".")[2] == "value" and isinstance(span.value, str | bytes):
                    span.value = redacted(span.value)

    def tag_section(self, struct: Struct, into: dict[str, Any], path: str) -> None:
        start = self.position
        label = f"{path}._tags" if path else "_tags"
        count = self.varint(label)
        if count * 2 > self.end - self.position:
            room, self.position = self.end - self.position, start
            raise _Failure(LONG_TAG_SECTION, label, start, count, room)
        self.span(start, label, "count of tagged fields", count)
        known = {field.tag: field for field in struct.tagged}
        previous = -1
        for _ in range(count):
            start = self.position
            tag = self.varint(label)
            size = self.varint(label)
            stop = self.position + size
            if stop > self.end:
                left, self.position = self.end - self.position, start
                raise _Failure(CUT_TAG, label, start, tag, size, left)
            self.span(start, label, "tag and size", tag)
            if tag <= previous:
                self.context.problem("tags-not-ascending", f"{label}: tag {tag} comes after tag {previous}", start)
            previous = max(tag, previous)
            field = known.get(tag)
            if field is None:
                self.unknown_tag(into, tag, stop, label)
            else:
                self.tagged_field(field, into, stop, f"{path}.{field.name}" if path else field.name)

    def tagged_field(self, field: Field, into: dict[str, Any], stop: int, path: str) -> None:
        """Decode a tagged field that has a definition; its declared size determines its end."""
        start, outer = self.position, self.end
        mark, spans = self.context.mark(), None if self.spans is None else len(self.spans)
        value: dict[str, Any] = {}
        self.end = stop
        try:
            self.field(field, value, path)
        except _Failure as failure:
            # The field does not fit into its size: the bytes are kept like those of an unknown tag.
            self.context.rewind(mark)
            if self.spans is not None:
                del self.spans[spans:]
            self.position = start
            detail = f"{path}: its {stop - start} bytes do not hold it: {failure.detail}"
            self.context.problem("tag-size-mismatch", detail, start)
            self.unknown_tag(into, field.tag or 0, stop, path)
            return
        finally:
            self.end = outer
        into.update(value)
        if self.position != stop:
            detail = f"{path}: {self.position - start} bytes long, its tag says {stop - start}"
            self.context.problem("tag-size-mismatch", detail, start)
            rest = self.position
            self.position = stop
            self.span(rest, path, "rest of a tagged field", None)

    def unknown_tag(self, into: dict[str, Any], tag: int, stop: int, path: str) -> None:
        start = self.position
        try:
            keep_tag(self.context, into, tag, self.data[start:stop], not self.hide)
        except Odd:
            raise _Failure(MANY_TAGS, path, start) from None
        self.position = stop
        self.span(start, path, UNKNOWN_TAG, into["_unknown_tags"][-1])

    # Fields

    def field(self, field: Field, into: dict[str, Any], path: str) -> None:
        """Decode a field into the dict of its struct."""
        if field.array:
            self.array(field, into, path)
        elif field.struct is not None:
            if field.nullable and self.is_null_struct(path, tagged=field.tag is not None):
                into[field.name] = None
                return
            # Added before it is decoded: a failure inside keeps the fields before it.
            value: dict[str, Any] = {}
            into[field.name] = value
            try:
                self.struct(field.struct, value, path)
            except _Failure:
                if not value:
                    del into[field.name]
                raise
        else:
            into[field.name] = self.value(field, path, field.nullable)

    def is_null_struct(self, path: str, *, tagged: bool) -> bool:
        """Decode the mark before a nullable struct.

        Kafka's generator writes it as an int8, -1 for null; in a tag section as an unsigned varint, 0 for null.
        """
        start = self.position
        if tagged:
            count = self.varint(path)
            if count > 1:
                self.odd(ODD_TAGGED_MARK, path, start, count)
            self.span(start, path, "varint, 0 for null", count)
            return count == 0
        mark = self.number("b", 1, path)
        if mark not in (-1, 1):
            self.odd(ODD_MARK, path, start, mark)
        self.span(start, path, "int8, -1 for null", mark)
        return bool(mark < 0)

    def value(self, field: Field, path: str, nullable: bool) -> Any:
        """Read a scalar."""
        start = self.position
        if field.type not in FORMATS:
            return self.variable(field, path, nullable)
        form, size = FORMATS[field.type]
        value = self.number(form, size, path)
        if field.type == "bool":
            if value > 1:
                self.odd(ODD_BOOLEAN, path, start, value)
            value = value != 0
        elif field.type == "uuid":
            value = uuid_text(value)
        elif field.type == "error" and value:
            add_error(self.context, value, path)
        self.span(start, path, "int16" if field.type == "error" else field.type, value)
        return value

    def variable(self, field: Field, path: str, nullable: bool) -> Any:
        """Read a string, bytes or records."""
        start = self.position
        length = self.length(field, path, "h" if field.type == "string" else "i")
        kind = f"compact {field.type}" if field.compact else field.type
        if length == -1:
            return self.null(path, kind, start, nullable)
        if length < 0:
            self.position = start
            raise _Failure(NEGATIVE_LENGTH, path, start, length)
        stop = self.position + length
        if stop > self.end:
            self.span(start, path, f"length of {kind}", length)
            left, self.position = self.end - self.position, start
            raise _Failure(CUT_VALUE, path, start, length, left)
        begin, self.position = self.position, stop
        value: Any
        if field.type == "records":
            value = self.records(field, begin, stop)
            # Records are redacted by their decoder, which only needs their position here.
            hidden = field.secret == "value" and self.hide
            self.span(start, path, kind, {"redacted": stop - begin} if hidden else value, field)
            return value
        else:
            value = self.data[begin:stop]
            if field.type == "string":
                try:
                    value = value.decode()
                except UnicodeDecodeError:
                    self.odd(NOT_TEXT, path, begin, length)
            if field.secret == "value" and self.hide:
                value = self.context.withhold(value) if field.type == "bytes" else redacted(value)
        self.span(start, path, kind, value, field)
        return value

    def records(self, field: Field, begin: int, stop: int) -> Any:
        if self.context.options.records == "skip":
            return None
        assert self.reader is not None, "Schema sees to it"
        decode = self.reader.decode_unaligned if field.unaligned else self.reader.decode_records
        return decode(self.data, begin, stop, self.context)

    def null(self, path: str, kind: str, start: int, nullable: bool) -> None:
        if not nullable:
            self.odd(NULL_VALUE, path, start)
        self.span(start, path, kind, None)

    def length(self, field: Field, path: str, form: str) -> int:
        if field.compact:
            return self.varint(path) - 1
        value: int = self.number(form, 2 if form == "h" else 4, path)
        return value

    def array(self, field: Field, into: dict[str, Any], path: str) -> None:
        start = self.position
        count = self.length(field, path, "i")
        kind = f"count of {'compact ' if field.compact else ''}[]{'' if field.struct else field.type}"
        if count == -1:
            into[field.name] = None
            self.null(path, kind, start, field.nullable)
            return
        if count < 0:
            self.position = start
            raise _Failure(NEGATIVE_COUNT, path, start, count)
        size = element_size(field)
        room = self.end - self.position
        if count > room + ZERO_SIZE_SLACK:
            self.position = start
            raise _Failure(LONG_ARRAY, path, start, count, size, room)
        self.left -= count
        if self.left < 0:
            self.position = start
            raise _Failure(MANY_ELEMENTS, path, start)
        self.span(start, path, kind, count)
        values: list[Any] = []
        into[field.name] = values
        try:
            for index in range(count):
                self.element(field, values, f"{path}[{index}]")
        except _Failure as failure:
            # A truncated message keeps the available elements; if there is none, the count is wrong.
            if not values:
                del into[field.name]
            if len(values) <= 1 and count * size > room and failure.kind == "body-truncated":
                raise _Failure(LONG_ARRAY, path, start, count, size, room) from None
            raise

    def element(self, field: Field, values: list[Any], path: str) -> None:
        """Read an element of an array."""
        if field.struct is None:
            values.append(self.value(field, path, False))
            return
        # As with any struct: added before it is decoded.
        value: dict[str, Any] = {}
        values.append(value)
        try:
            self.struct(field.struct, value, path)
        except _Failure:
            if not value:
                values.pop()
            raise
