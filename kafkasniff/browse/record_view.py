"""The records of an exchange: a row of a table for each, and one as a whole. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kafkasniff.filters.record_paths import MAX_JSON, json_part
from kafkasniff.kafka.apis.entities import PARTITION_FIELDS
from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.model import Body, Exchange
from kafkasniff.sinks.hex_view import hex_rows
from kafkasniff.sinks.jsonl import body_json
from kafkasniff.sinks.tree import layout_of, scalar_text
from kafkasniff.text.printable import printable
from kafkasniff.text.times import milliseconds_date

MAX_RECORDS: Final = 100_000
"""Maximum number of records in the table, some 300 bytes each; the tree has all."""
MAX_VALUE: Final = 256 << 10
"""Maximum number of bytes of a key, value or header that are shown of one record."""
MAX_HEADERS: Final = 1000
"""Maximum number of headers that are shown of one record."""
MAX_CELL: Final = 4 << 10
"""Largest value that is shown as JSON in the table: more would not fit anyway."""

ValueForm = Literal["text", "JSON", "hex"]
FORMS: Final[tuple[ValueForm, ...]] = ("text", "JSON", "hex")


class RecordRow(NamedTuple):
    """A record, and where it is."""

    message: int
    """Index of the message."""
    path: str
    topic: str
    """Escaped; the topic's id if its name is unknown."""
    partition: int | None
    record: Body
    offset: int | None = None
    """The one that the broker gave the record of a Produce request, if that was accepted; else as in the record."""

    @property
    def time(self) -> str:
        """The timestamp as a date, or as a number if it is not a date."""
        timestamp = self.record["timestamp"]
        return "-" if timestamp is None else milliseconds_date(timestamp) or str(timestamp)

    @property
    def headers(self) -> str:
        """Names and values of the headers."""
        pairs = islice(self.record.get("headers") or (), MAX_HEADERS)
        return " ".join(f"{_name(pair['key'])}={scalar_text(pair['value'])}" for pair in pairs)

    @property
    def schema(self) -> str:
        """The schema ids of key and value."""
        return "/".join(_schema(self.record, name) or "-" for name in ("key", "value")).replace("-/-", "")

    def cell(self, name: str, form: ValueForm) -> str:
        """Key or value in one line."""
        value = self.record[name]
        data = _bytes(value)
        if data is not None and form == "hex":
            return data[:MAX_CELL].hex(" ")
        if _wants_json(self.record, name, form) and (data is None or len(data) <= MAX_CELL):
            text = _json(self.record, name, -1)
            if text is not None:
                return text
        return scalar_text(value)


def records(exchange: Exchange) -> Iterator[RecordRow]:
    """The records of request and response, in order."""
    messages = [message for message in (exchange.request, exchange.response) if message is not None]
    given = _given_offsets(exchange)
    for number, message in enumerate(messages):
        layout = layout_of(message)
        if layout is not None and layout.records and isinstance(message.body, dict):
            for row in _in_struct(RecordRow(number, "", "", None, {}), layout, message.body):
                # Producers count from 0 in each batch, brokers on from the first record of the partition.
                place = row.topic, row.partition
                offset = given.get(place, row.record["offset"])
                if place in given:
                    given[place] += 1
                yield row._replace(offset=offset)


def _given_offsets(exchange: Exchange) -> dict[tuple[str, int | None], int]:
    """The offset of the first record of each partition that a response to Produce accepts."""
    response = exchange.response
    if response is None or not isinstance(response.body, dict):
        return {}
    found = {}
    for topic in response.body.get("responses") or ():
        name = topic.get("_topic_name", topic.get("name", topic.get("topic_id")))
        for partition in topic.get("partition_responses") or ():
            if partition.get("error_code") == 0 and partition.get("base_offset", -1) >= 0:
                found[_name(name), partition.get("index")] = partition["base_offset"]
    return found


def _in_struct(around: RecordRow, layout: Struct, body: Body) -> Iterator[RecordRow]:
    topic = body.get("_topic_name")
    for field in layout.fields:
        value = body.get(field.name)
        if field.name in PARTITION_FIELDS and isinstance(value, int):
            around = around._replace(partition=value)
        elif (field.entity == "topic_name" and not field.array) or field.name == "topic_id":
            around = around._replace(topic=_name(value if topic is None else topic))
    for field in (*layout.fields, *layout.tagged):
        value = body.get(field.name)
        path = f"{around.path}.{field.name}" if around.path else field.name
        inside = [(path, value)]
        if isinstance(value, list):
            inside = [(f"{path}[{index}]", one) for index, one in enumerate(value)]
        for where, one in inside:
            if not isinstance(one, dict):
                continue
            here = around._replace(path=where)
            if field.type == "records":
                yield from _in_batches(here, one)
            elif field.struct is not None and field.struct.records:
                yield from _in_struct(here, field.struct, one)


def _in_batches(around: RecordRow, value: Body) -> Iterator[RecordRow]:
    for number, batch in enumerate(value["batches"]):
        for index, record in enumerate(batch.get("records") or ()):
            yield around._replace(path=f"{around.path}.batches[{number}].records[{index}]", record=record)


def _name(value: Any) -> str:
    return printable(value) if isinstance(value, str | bytes) else scalar_text(value)


def _bytes(value: Any) -> bytes | None:
    return (
        value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value if type(value) is bytes else None
    )


def _schema(record: Body, name: str) -> str:
    found = record.get(f"_{name}")
    if not isinstance(found, dict):
        return ""
    return str(found.get("schema_id", found.get("schema_guid", "")))


def _is_decoded(record: Body, name: str) -> bool:
    """Whether a schema decoded key or value (`kafkasniff.values`)."""
    return "schema_type" in (record.get(f"_{name}") or ())


def _wants_json(record: Body, name: str, form: ValueForm) -> bool:
    return form == "JSON" or (form == "text" and _is_decoded(record, name))


def _json(record: Body, name: str, indent: int) -> str | None:
    """Key or value as JSON, or its decoded form; None if it is not JSON."""
    found, data = record.get(f"_{name}"), _bytes(record[name])
    if found is not None and _is_decoded(record, name):
        data = body_json(found["value"]).encode()
    elif isinstance(found, dict) and not _schema(record, name):
        data = body_json(found).encode()
    elif data is not None and len(data) <= MAX_JSON:
        data = json_part(data)
    else:
        return None
    try:
        text = msgspec.json.format(data, indent=indent).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    # Strings may hold characters that act on a terminal.
    return "\n".join(printable(line, backslashes=False) for line in text.split("\n"))


def whole_record(row: RecordRow, form: ValueForm) -> Iterator[str]:
    """A whole record as lines."""
    record = row.record
    yield f"topic {row.topic or '-'} · partition {'-' if row.partition is None else row.partition}"
    yield f"offset {row.offset} · time {row.time}"
    if row.schema:
        yield f"schema {row.schema} (key/value)"
    for name in ("key", "value"):
        yield ""
        json = _json(record, name, 2) if _wants_json(record, name, form) else None
        yield from _named(name, record[name], json, form)
    headers = record.get("headers") or ()
    for one in islice(headers, MAX_HEADERS):
        yield ""
        yield from _named(f"header {_name(one['key'])}", one["value"], None, form)
    if len(headers) > MAX_HEADERS:
        yield f"… {len(headers) - MAX_HEADERS:,} more headers"


def _named(name: str, value: Any, json: str | None, form: ValueForm) -> Iterator[str]:
    data = _bytes(value)
    if data is None and json is None:
        yield f"{name}: {scalar_text(value)}"
        return
    yield f"{name}:" if data is None else f"{name}, {len(data):,} bytes:"
    if json is not None:
        yield from json[:MAX_VALUE].split("\n")
        rest = len(json) - MAX_VALUE
    else:
        assert data is not None
        yield from _lines(data[:MAX_VALUE], form)
        rest = len(data) - MAX_VALUE
    if rest > 0:
        yield f"… {rest:,} more, written by decode --format json"


def _lines(data: bytes, form: ValueForm) -> Iterator[str]:
    if form != "hex":
        try:
            lines = data.decode().split("\n")
        except UnicodeDecodeError:
            pass  # shown as hex
        else:
            yield from map(printable, lines)
            return
    digits = max(4, len(f"{len(data):x}"))
    for offset, _, shown in hex_rows(data, 0, len(data), whole=True):
        yield f"{offset:0{digits}x}  {shown}"
