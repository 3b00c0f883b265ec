"""Lines of a run, by the kernel or one by one in Python: `Inspector` and `ByPython` have to write the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from io import BytesIO
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.lines_ahead import LinesAhead
from kafkasniff.engine.selection import Selection
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import shows_nothing
from kafkasniff.filters import Selector
from kafkasniff.filters.expression import parse_filter
from kafkasniff.kafka.connection.events import LeftOut, Level
from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.model import NO_TIME, Exchange, Lines, Message, Summary
from kafkasniff.native import kernel
from kafkasniff.packets import PacketBatch
from kafkasniff.redact.payload import SHOWN
from kafkasniff.runtime.threads import Threads
from kafkasniff.sinks.csv import CSV, CsvSink
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.native_lines import AddedNames, NativeLines
from kafkasniff.sinks.native_text import NativeText
from kafkasniff.sinks.text import TextSink
from tests.oracle.inspector import ByPython


class Shown:
    """Output of a run."""

    def __init__(self) -> None:
        self.out = BytesIO()
        self.native = 0
        """Messages whose lines the kernel wrote."""
        self.decoded = 0
        """Messages that Python looked at."""
        self.summary = Summary()
        self.left_out = LeftOut()


def same(found: Shown, expected: Shown) -> None:
    for line, other in zip_longest(found.out.getvalue().splitlines(), expected.out.getvalue().splitlines()):
        assert line == other
    assert found.summary == expected.summary
    assert found.left_out == expected.left_out
    assert not expected.native


def threads_of(form: str, threads: int | None) -> int | None:
    """Lines of text are made on demand."""
    return threads if form == "json" or threads is None else 0


def shown(  # noqa: PLR0917 - what a run is
    kind: type[Inspector],
    form: str,
    batches: Iterable[PacketBatch],
    levels: Sequence[Level] = (),
    enricher: Enricher | None = None,
    threads: int | None = None,
    *,
    expression: str | None = None,
    writes: bool = True,
    options: Mapping[str, Any] = MappingProxyType({}),
    sink: Mapping[str, Any] = MappingProxyType({}),
) -> Shown:
    """Lines as JSON, CSV, text or tree. `levels` apply to one batch each, in rotation; `threads` read ahead.

    `expression`: selects messages. Without `writes` the kernel only reads those that are not selected. `options` and
    `sink`: of the inspector and the sink.
    """
    with ExitStack() as stack:
        ahead = None
        if threads is not None:
            ahead = LinesAhead(*(stack.enter_context(Threads(count, "test")) for count in (threads, 1)))
        run = _Run(form, Enricher() if enricher is None else enricher, expression, sink)
        run.start(kind, {"records": "metadata" if form == "text" and not levels else "full", **options})
        return run.lines(batches, levels, ahead, writes=writes)


def agree(form: str, batches: Sequence[Any], *, threads: int | None = None, **options: Any) -> tuple[Shown, Shown]:
    """Lines of both engines, which are the same."""
    found = shown(Inspector, form, batches, threads=threads_of(form, threads), **options)
    expected = shown(ByPython, form, batches, **options)
    same(found, expected)
    return found, expected


class _Run:
    def __init__(self, form: str, enricher: Enricher, filters: str | None, sink: Mapping[str, Any]) -> None:
        self.found, self.enricher, self.native, self.form = Shown(), enricher, kernel(), form
        self.predicate = None if filters is None else parse_filter(filters)
        self.selector = None if self.predicate is None else Selector(self.predicate)
        hiding = sink.get("payload", SHOWN).hiding
        self.renderer = Renderer(self.native, sink.get("form", "auto"), shows_nothing, hiding)
        self.names: dict[str, Any] = {
            "names_captures": sink.get("capture", False),
            "terminal": sink.get("terminal", False),
        }
        out = self.found.out
        self.sink: JsonSink | CsvSink | TextSink
        if form == "csv":
            self.sink, self.names = CsvSink(out), {"names_captures": True, "shape": CSV}
        elif form == "json":
            self.sink = JsonSink(out, **sink)
        else:
            self.sink = TextSink(out, **{"verbosity": 2 * (form == "tree"), **sink})

    def start(self, kind: type[Inspector], options: Mapping[str, Any]) -> None:
        renders = self.form == "json" and self.selector is None
        self.inspector = kind(
            exchanges=self.selector is not None, renderer=self.renderer if renders else None, **options
        )

    def lines(
        self, batches: Iterable[PacketBatch], levels: Sequence[Level], ahead: LinesAhead | None, *, writes: bool
    ) -> Shown:
        def make(
            ends: Callable[[int], Any], capture: Callable[[int], str | None], *, ahead: bool = False
        ) -> NativeLines | NativeText:
            if writes and isinstance(self.sink, TextSink):
                return NativeText(self.native, self.sink, ends, capture, self.enricher)
            return NativeLines(self.native, self.renderer, ends, capture, self.enricher, ahead=ahead, **self.names)

        inspector, selects = self.inspector, None
        if self.predicate is not None and self.selector is not None:
            names = AddedNames(self.enricher)
            selects = Selection(
                self.predicate,
                self.selector,
                self.native,
                names,
                show_secrets=inspector.decode_options.show_secrets,
                writes=writes,
                records=lambda: inspector.options_now,
            )
        self.enricher.count_into(inspector.summary)
        inspector.count_beside(self.enricher)
        inspector.write_lines(make, selects, ahead=ahead)
        for number, one in enumerate(batches):
            if levels:
                inspector.level = levels[number % len(levels)]
            times = one.time_ns[one.time_ns != NO_TIME]
            if self.selector is not None and self.selector.start_ns is None and len(times):
                self.selector.start_ns = int(times[0])
            for events in inspector.feed_lines(one):
                self.take(events)
        for rest in inspector.close_lines():
            self.take(rest)
        self.sink.close()
        assert self.selector is None or not self.selector._decided
        self.found.summary, self.found.left_out = inspector.summary, inspector.left_out
        return self.found

    def take(self, events: Iterable[Any]) -> None:
        named = list(self.enricher.feed(events))
        self.found.decoded += sum(isinstance(event, Message) for event in named)
        for event in named if self.selector is None else self.selector.feed(named):
            if isinstance(event, Lines):
                self.sink.write_lines(event)
                self.found.native += event.count
            elif not isinstance(event, Exchange):
                self.sink.write(event)
