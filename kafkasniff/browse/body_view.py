"""Messages for the explorer: bodies as nodes of a tree, made when a node is opened.

All text is escaped, as in the output of `decode`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.model import Exchange, Problem
from kafkasniff.sinks.names import field_at, layout_of
from kafkasniff.sinks.summaries import summary
from kafkasniff.sinks.tree import VALUE_WIDTH, is_nested, scalar_text, value_note
from kafkasniff.text.printable import PLAIN, printable
from kafkasniff.text.times import duration, rfc3339

__all__ = ["MAX_CHILDREN", "MAX_SEARCHED_VALUE", "BodyNode", "are_decoded", "children", "facts", "roots"]

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
        pairs = ((f"[{place}]", f"{node.path}[{place}]", value[place]) for place in part)
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
