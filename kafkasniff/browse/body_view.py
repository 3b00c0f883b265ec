"""Messages for the explorer: bodies as nodes of a tree, made when a node is opened, and their bytes as rows.

All text is escaped, as in the output of `decode`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.model import Exchange, Problem
from kafkasniff.sinks.hex_view import HexRow, HexView
from kafkasniff.sinks.summaries.templates import summary
from kafkasniff.sinks.tree import VALUE_WIDTH, field_at, is_nested, layout_of, scalar_text, value_note
from kafkasniff.text.printable import PLAIN, printable
from kafkasniff.text.times import duration, rfc3339

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
