"""Messages for the explorer: bodies as nodes of a tree, their bytes and records as rows.

The children of a node are made when it is opened.

All text is escaped, as in the output of `decode`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kafkasniff.filters.record_paths import MAX_JSON, json_part
from kafkasniff.kafka.apis.entities import PARTITION_FIELDS
from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.model import Body, Exchange, Problem
from kafkasniff.sinks.hex_view import HexRow, HexView, hex_rows
from kafkasniff.sinks.jsonl import body_json
from kafkasniff.sinks.summaries.templates import summary
from kafkasniff.sinks.tree import VALUE_WIDTH, field_at, is_nested, layout_of, scalar_text, value_note
from kafkasniff.text.printable import PLAIN, printable
from kafkasniff.text.times import duration, milliseconds_date, rfc3339

MAX_CHILDREN: Final = 1000
"""Maximum number of children of a node in the tree; more are divided into parts."""
MAX_SEARCHED_VALUE: Final = 256 << 10
"""Number of bytes or characters of a value that are searched, as many as the table shows of one."""


class BodyNode(NamedTuple):
    """A message, or a field or element in its body."""

    label: str
    path: str
    value: Any
    layout: Struct | None
    is_error: bool = False
    """An error code that is not zero."""
    part: range | None = None
    """Which children of a field with very many it has."""

    @property
    def opens(self) -> bool:
        """Whether it has children."""
        return is_nested(self.value)

    @property
    def text(self) -> str:
        """The label, with the beginning of a long value."""
        value = self.value
        if isinstance(value, bytes | str) and len(value) > VALUE_WIDTH:
            return f"{self.label} {printable(value[:MAX_SEARCHED_VALUE])}"
        return self.label


def facts(exchange: Exchange) -> list[str]:
    """What is known of an exchange besides its bodies, a line each."""
    request, response = exchange.request, exchange.response
    lines = [exchange.status.replace("_", " ")]
    seen = request if request is not None else response
    if seen is not None:
        lines[0] += f" · {seen.client} → {seen.broker}"
    if exchange.software_name is not None:
        lines.append(f"client software: {printable(f'{exchange.software_name} {exchange.software_version or str()}')}")
    if exchange.latency_ns is not None:
        lines.append(f"latency {duration(exchange.latency_ns)}")
    if not are_decoded(exchange):
        lines.append("not all records are decoded: press m for more")
    lines += [f"! {problem.kind}: {printable(problem.detail)}" for problem in _problems(exchange)]
    return lines


def are_decoded(exchange: Exchange) -> bool:
    """Whether all records are decoded: there were no more than the bound."""
    return all(problem.kind != "record-bound" for problem in _problems(exchange))


def _problems(exchange: Exchange) -> list[Problem]:
    problems = [*exchange.problems]
    for message in (exchange.request, exchange.response):
        if message is not None:
            problems += message.problems
    return problems


def roots(exchange: Exchange) -> Iterator[BodyNode]:
    """The messages of an exchange."""
    for message in (exchange.request, exchange.response):
        if message is None:
            continue
        # An export does not have them.
        packets = "" if message.first_packet is None else f" · packet {message.first_packet}"
        if message.last_packet != message.first_packet:
            packets += f"-{message.last_packet}"
        label = (
            f"{message.type} · {message.size:,} bytes{packets} · {rfc3339(message.time_ns) or 'no time'}"
            f" · {summary(message, PLAIN)}"
        )
        yield BodyNode(label, "", message.body, layout_of(message))


def children(node: BodyNode) -> Iterator[BodyNode]:
    """Fields of a struct, elements of an array by their index, or parts of very many of them."""
    value = node.value
    part = range(len(value)) if node.part is None else node.part
    step = 1
    while len(part) > step * MAX_CHILDREN:
        step *= MAX_CHILDREN
    if step > 1:
        for start in range(0, len(part), step):
            few = part[start : start + step]
            yield node._replace(label=f"[{few[0]}] … [{few[-1]}]", part=few)
        return
    pairs: Iterable[tuple[str, str, Any]]
    if isinstance(value, dict):
        pairs = ((name, f"{node.path}.{name}" if node.path else name, one) for name, one in value.items())
        pairs = islice(pairs, part.start, part.stop)
    else:
        pairs = ((f"[{index}]", f"{node.path}[{index}]", value[index]) for index in part)
    for name, path, one in pairs:
        yield _node(name, path, one, node.layout)


def _node(name: str, path: str, value: Any, layout: Struct | None) -> BodyNode:
    shown = printable(name)
    if is_nested(value):
        size = "" if isinstance(value, dict) else f" [{len(value):,}]"
        return BodyNode(f"{shown}{size}", path, value, layout)
    own = path.rpartition(".")[2].partition("[")[0]
    note, _ = value_note(own, value, field_at(layout, path), PLAIN)
    is_error = own.endswith("error_code") and isinstance(value, int) and value != 0
    return BodyNode(f"{shown}: {scalar_text(value)}{f' ({note})' if note else ''}", path, value, layout, is_error)


MAX_ROWS: Final = 20_000
"""Maximum number of rows of bytes for each message; `decode -xx` shows all."""
_RECORD: Final = re.compile(r"\.records\[\d+\](?=\.|$)")
_ON_THE_WIRE: Final = {
    "offset": "offset_delta",
    "timestamp": "timestamp_delta",
    "crc_ok": "crc",
    "compression": "attributes",
    "timestamp_type": "attributes",
    "transactional": "attributes",
    "control": "attributes",
    "base_offset": "offset",
    "batch_length": "message_size",
}
"""Fields of batches and records in bodies, and the bytes from which they are made; the last two are of old formats."""
_IN_BODIES: Final = {"offset_delta": "offset", "timestamp_delta": "timestamp", "attributes": "compression"}


class ByteRows:
    """Rows of request and response, as `decode -x` shows them; the first of each names it.

    `width`: columns available; `whole`: all bytes of long fields.
    """

    def __init__(self, exchange: Exchange | None, width: int, *, whole: bool = False) -> None:
        self.rows: list[HexRow] = []
        self._starts: list[int] = []
        """The first row of each message."""
        self._places: list[dict[str, tuple[int, int]]] = []
        """First and last row of each field of a message, with all that is in it."""
        view = HexView(PLAIN, whole=whole, secrets=False, width=max(width, 80))
        for message in () if exchange is None else (exchange.request, exchange.response):
            if message is None:
                continue
            self._starts.append(len(self.rows))
            self._places.append({})
            self.rows.append(HexRow(message.type))
            if message.frame is None:
                self.rows.append(HexRow("no bytes: an export does not have them"))
                continue
            rows = view.rows(message, message.frame)
            for row in islice(rows, MAX_ROWS):
                self._note(row.path)
                self.rows.append(row)
            if next(rows, None) is not None:
                self.rows.append(HexRow("… more bytes, shown by decode -xx"))

    def _note(self, path: str) -> None:
        here, places = len(self.rows), self._places[-1]
        while path:
            first, _ = places.get(path, (here, here))
            places[path] = first, here
            path = _above(path)

    def message_of(self, row: int) -> int:
        """The message of a row, as its place among those that were seen."""
        return bisect_right(self._starts, row) - 1

    def find(self, message: int, path: str) -> range:
        """The rows that show a field of the tree, or the closest one around it; of all of a message, its first."""
        for byte_path in _byte_paths(path):
            found = self._places[message].get(byte_path)
            if found is not None:
                return range(found[0], found[1] + 1)
        return range(self._starts[message], self._starts[message] + 1)


def _above(path: str) -> str:
    """The path of the struct or array around a field or element."""
    return path[: max(path.rfind("."), path.rfind("["), 0)]


def _byte_paths(path: str) -> Iterator[str]:
    """The fields on the wire that a field of a body may come from, the closest first."""
    while path:
        yield path
        above, dot, name = path.rpartition(".")
        yield f"{above}{dot}{_ON_THE_WIRE.get(name, name.removeprefix('_'))}"
        # Old formats: messages in a compressed one, and one that is its own batch.
        yield _RECORD.sub(lambda match: match[0].replace("records", "messages"), path)
        yield _RECORD.sub("", path)
        path = _above(path)


def body_path(path: str) -> str:
    """The field of a body that is made from a field on the wire; the body may lack it, but not what is around it."""
    above, dot, name = path.rpartition(".")
    return f"{above}{dot}{_IN_BODIES.get(name, name)}".replace(".messages[", ".records[")


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
