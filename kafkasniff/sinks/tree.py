"""A body as an indented tree, with names of codes and errors, and dates, next to the values.

Fields without nested fields share lines up to the width; the order is that of the wire.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.dissectors import message_of
from kafkasniff.kafka.schema.codes import enum_text, error_name
from kafkasniff.kafka.schema.definition import Field, Struct
from kafkasniff.kafka.schema.schema import data_definitions, data_schema
from kafkasniff.model import Body, Direction, ErrorCode, Message
from kafkasniff.redact.payload import stand_in_text
from kafkasniff.text.printable import Paint, display_width, printable
from kafkasniff.text.times import milliseconds_date

# -- names of codes ----------------------------------------------------------------------------------------------------


_INDEX: Final = re.compile(r"\[\d+\]")


def error_label(error: ErrorCode) -> str:
    """`NOT_LEADER_OR_FOLLOWER`; `error 999` for a code without a name."""
    return error.name or f"error {error.code}"


@lru_cache(maxsize=4096)
def _name(enum: str, value: int | str) -> str | None:
    return enum_text(enum, value)


def enum_name(enum: str, value: object) -> str | None:
    """Name of a value by a table of `dissectors/enums.txt`; None if it has none."""
    return _name(enum, value) if isinstance(value, int | str) else None


def layout_of(message: Message) -> Struct | None:
    """The fields of the message's body; None if its version is unknown."""
    version = message.api_version if message.body_version is None else message.body_version
    api = dissectors.api(message.api_key) if message.api_key is not None else None
    if api is None or version is None or version not in api.versions:
        return None
    return (api.request(version) if message.type == "request" else api.response(version)).root


def nested_field(message: Message) -> str | None:
    """The field with a nested message; None if there is none."""
    return None if message.api_key is None else _nested_field(message.api_key, message.type)


@lru_cache(maxsize=1024)  # keys come from the wire
def _nested_field(api_key: int, direction: Direction) -> str | None:
    message = message_of(api_key, direction)
    return None if message is None or message.nested is None else message.nested[0]


def layout_inside(body: Body) -> Struct | None:
    """The fields of `value` in a record's `{"type", "version", "value"}`, of `body` in the message of an Envelope.

    None for any other struct, which may have such names, too, with values of any kind.
    """
    match body:
        case {"type": str(name), "version": int(version)}:
            return _data_layout(name, version)
        case {"api_key": int(key), "api_version": int(version)}:
            # Only requests have a client id.
            kind: Direction = "request" if "client_id" in body else "response"
            read_as = body.get("body_version")
            return layout_of(
                Message(kind, 0, api_key=key, api_version=version if read_as is None else read_as),
            )
    return None


@lru_cache(maxsize=1024)
def _data_layout(name: str, version: int) -> Struct | None:
    definition = data_definitions().get(name)
    if definition is not None and definition.kind == "coordinator-key":
        version = definition.message.versions.low  # in this place is the record's type
    schema = data_schema(name, version)
    return None if schema is None else schema.root


def field_at(layout: Struct | None, path: str) -> Field | None:
    """The field at a path as in error codes and spans, `topics[0].partitions[1].index`; None if there is none."""
    field: Field | None = None
    for name in _INDEX.sub("", path).split("."):
        if layout is None:
            return None
        field = next((field for field in (*layout.fields, *layout.tagged) if field.name == name), None)
        if field is None:
            return None
        layout = field.struct
    return field


# -- trees -------------------------------------------------------------------------------------------------------------


VALUE_WIDTH: Final = 400
"""Bytes of one string or bytes value that are shown."""
MARGIN: Final = 4
"""Indentation of the tree."""
MIN_WIDTH: Final = 40
"""Columns that a tree takes at least."""

_UTF8: Final = codecs.getincrementaldecoder("utf-8")
_RECORD: Final = dict.fromkeys(("offset", "timestamp", "key", "value", "headers")).keys()
"""Fields of a record without interpreted data, in order."""
_INSIDE: Final = frozenset({"value", "body"})
# int64 fields that are times without "timestamp" in their names.
_TIMES: Final = frozenset({"log_append_time_ms", "transaction_start_time_ms"})


def bytes_dump(value: bytes, limit: int = VALUE_WIDTH) -> str:
    """Bytes as quoted text if they are UTF-8, else in hex; at most `limit` of them, and the number of the rest."""
    shown = value[:limit]
    try:
        # Incremental: a truncated last character must not turn text into hex.
        text = value.decode() if len(value) <= limit else _UTF8().decode(shown)
    except UnicodeDecodeError:
        dump = f"0x{shown.hex()}"
    else:
        dump = f'"{_quoted(text)}"'
        if len(value) <= limit:
            return dump
        shown = text.encode()
    rest = len(value) - len(shown)
    return f"{dump}… +{rest} bytes" if rest else dump


def _quoted(text: str) -> str:
    return printable(text).replace('"', '\\"')


class PlainText(str):
    """Text that is shown as it is."""

    __slots__ = ()


def scalar_text(value: object) -> str:
    """A value without nested fields, escaped."""
    if value.__class__ is PlainText:
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if len(value) > VALUE_WIDTH:
            rest = len(value[VALUE_WIDTH:].encode("utf-8", "surrogatepass"))
            return f'"{_quoted(value[:VALUE_WIDTH])}"… +{rest} bytes'
        return f'"{_quoted(value)}"'
    if isinstance(value, bytes):
        return bytes_dump(value)
    if isinstance(value, dict):
        if "redacted" in value:
            return f"[{value['redacted']} bytes redacted]"
        return stand_in_text(value) or "{}"
    return "[]" if value == [] else printable(str(value))


def body_tree(
    message: Message,
    paint: Paint,
    *,
    records: bool,
    width: int = 120,
    hide: Callable[[Body], Body] | None = None,
) -> Iterator[str]:
    """Lines of a message's body; `records`: with the records, if they were decoded.

    `hide`: returns the displayed form of a record.
    """
    if message.body is not None:
        writer = _Tree(paint, records, max(width, MIN_WIDTH), hide)
        yield from writer.struct(message.body, layout_of(message), MARGIN, "")


def struct_lines(body: Body, paint: Paint, width: int, indent: int) -> Iterator[str]:
    """Lines of fields that no definition has."""
    return _Tree(paint, records=False, width=width).struct(body, None, indent, "")


class _Tree:
    def __init__(self, paint: Paint, records: bool, width: int, hide: Callable[[Body], Body] | None = None) -> None:
        self.hide = hide
        self.paint = paint
        self.records = records
        self.width = width
        self.labels = {name: f"{paint.name}{name}{paint.reset}: " for name in _RECORD}

    def struct(self, body: Body, layout: Struct | None, indent: int, first: str) -> Iterator[str]:
        """Lines of a struct; `first` replaces as much indentation before the first one."""
        fields = {field.name: field for field in (*layout.fields, *layout.tagged)} if layout is not None else {}
        line, used = "", 0
        start = " " * (indent - len(first)) + first
        space = " " * indent
        paint = self.paint
        noted: set[str] = set()
        for name, value in _beside(body):
            if name[1:] in noted and name[0] == "_":
                continue  # the note says the same
            field = fields.get(name)
            label = f"{paint.name}{printable(name)}{paint.reset}: "
            if is_nested(value):
                if name == "records" and isinstance(value, list) and not self.records:
                    continue
                if line:
                    yield start + line
                    start, line, used = space, "", 0
                inner = field.struct if field is not None else layout_inside(body) if name in _INSIDE else None
                for text in self.nested(name, label, value, field, inner, indent):
                    yield start + text
                    start = ""
                start = space
                continue
            plain, text = self.scalar(name, value, field)
            if field is not None and field.enum is not None and plain.endswith(")"):
                noted.add(name)
            size = len(name) + 2 + display_width(plain)
            if line and indent + used + 2 + size > self.width:
                yield start + line
                start, line, used = space, "", 0
            line, used = (f"{line}  {label}{text}", used + 2 + size) if line else (f"{label}{text}", size)
        if line:
            yield start + line
        elif start.strip() and not body:
            yield f"{start}{{}}"

    def nested(  # noqa: PLR0917 - a field and what is known of it
        self, name: str, label: str, value: Any, field: Field | None, inner: Struct | None, indent: int
    ) -> Iterator[str]:
        """Lines of a struct or an array in a struct; the first without indentation, the others with all of it."""
        if isinstance(value, dict):
            yield label.rstrip()
            yield from self.struct(value, inner, indent + 2, "")
            return
        yield f"{label}[{len(value)}]"
        if all(not is_nested(item) for item in value):
            yield from self.wrapped([self.scalar(name, item, field) for item in value], indent + 2)
            return
        is_records = name == "records" and inner is None
        for item in value:
            if is_records and self.hide is not None:
                item = self.hide(item)  # noqa: PLW2901 - as it is shown
            if is_records:
                item = _with_decoded(item)  # noqa: PLW2901 - likewise
            if not isinstance(item, dict):
                yield f"{' ' * (indent + 2)}- {scalar_text(item)}"
            elif is_records and item.keys() == _RECORD and not item["headers"]:
                yield from self.record(item, indent + 4)
            else:
                yield from self.struct(item, inner, indent + 4, "- ")

    def record(self, record: dict[str, Any], indent: int) -> Iterator[str]:
        """Lines of a record without headers and interpreted data: equal to those of `struct`. Hot."""
        timestamp = record["timestamp"]
        date, colour = value_note("timestamp", timestamp, None, self.paint)
        shown = coloured = str(timestamp)
        if date:
            shown, coloured = f"{timestamp} ({date})", f"{timestamp} {colour}({date}){self.paint.reset}"
        key, value = scalar_text(record["key"]), scalar_text(record["value"])
        offset = str(record["offset"])
        start, line, used = f"{' ' * (indent - 2)}- ", "", 0
        for name, plain, text in (
            ("offset", offset, offset),
            ("timestamp", shown, coloured),
            ("key", key, key),
            ("value", value, value),
            ("headers", "[]", "[]"),
        ):
            size = len(name) + 2 + display_width(plain)
            if not line:
                line, used = f"{self.labels[name]}{text}", size
            elif indent + used + 2 + size > self.width:
                yield start + line
                start, line, used = " " * indent, f"{self.labels[name]}{text}", size
            else:
                line, used = f"{line}  {self.labels[name]}{text}", used + 2 + size
        yield start + line

    def wrapped(self, items: list[tuple[str, str]], indent: int) -> Iterator[str]:
        """An array of scalars, as many to a line as fit."""
        line, used = "", 0
        for plain, text in items:
            size = display_width(plain)
            if line and indent + used + 3 + size > self.width:  # a comma may follow
                yield f"{' ' * indent}{line},"
                line, used = "", 0
            line, used = (f"{line}, {text}", used + 2 + size) if line else (text, size)
        if line:
            yield " " * indent + line

    def scalar(self, name: str, value: object, field: Field | None) -> tuple[str, str]:
        """A value with its annotation, without and with colours."""
        text = scalar_text(value)
        note, colour = value_note(name, value, field, self.paint)
        return (f"{text} ({note})", f"{text} {colour}({note}){self.paint.reset}") if note else (text, text)


def _beside(body: Body) -> Iterable[tuple[str, Any]]:
    """The fields in wire order, each followed by its interpretation."""
    if not any(name.startswith("_") for name in body):
        return body.items()
    order: list[str] = []
    for name in body:
        if not (name.startswith("_") and name[1:] in body):
            order += [name, f"_{name}"] if f"_{name}" in body else [name]
    return [(name, body[name]) for name in order]


def _with_decoded(record: Body) -> Body:
    """A record with its decoded key and value (`kafkasniff.values`) in place of their bytes."""
    for name in ("key", "value"):
        found = record.get(f"_{name}")
        if found is not None and "schema_type" in found:
            record = {**record, name: decoded_text(found)}
            del record[f"_{name}"]
    return record


def decoded_text(found: Body) -> PlainText:
    """A decoded key or value in one line: its type, JSON and the schema."""
    import orjson  # noqa: PLC0415 - for these values only

    from kafkasniff.sinks.jsonl import bytes_default  # noqa: PLC0415 - likewise

    text = printable(orjson.dumps(found["value"], default=bytes_default()).decode(), backslashes=False)
    rest = len(text) - VALUE_WIDTH
    if rest > 0:
        text = f"{text[:VALUE_WIDTH]}… +{rest} characters"
    name = f"{printable(found['name'])} " if "name" in found else ""
    schema = found.get("schema_id", found.get("schema_guid"))
    return PlainText(f"{name}{text}" if schema is None else f"{name}{text} (schema {schema})")


def is_nested(value: object) -> bool:
    """Whether a value of a body has values of its own, rather than being shown as one."""
    if isinstance(value, dict):
        return bool(value) and "redacted" not in value and stand_in_text(value) is None
    return isinstance(value, list) and bool(value)


def value_note(name: str, value: object, field: Field | None, paint: Paint) -> tuple[str | None, str]:
    """The annotation of a value, if it has one, and its colour."""
    if isinstance(value, int) and (field.type == "error" if field is not None else name.endswith("error_code")):
        return error_name(value) or "unknown error", paint.error if value else paint.dim
    if field is not None and field.enum is not None:
        enum_text = enum_name(field.enum, value)
        if enum_text is not None and enum_text != value:
            return enum_text, paint.note
    if isinstance(value, int) and not isinstance(value, bool) and is_time(name):
        return milliseconds_date(value), paint.note
    return None, ""


def is_time(name: str) -> bool:
    """Whether a number of this name is a time in milliseconds, or a code in its place."""
    return "timestamp" in name or name in _TIMES
