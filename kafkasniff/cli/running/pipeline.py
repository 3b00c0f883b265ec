"""The pipeline of decode, live and export: packets from a source through an inspector to a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.option_groups import OutputOptions, make_renderer
from kafkasniff.cli.output import Progress
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.message_table import Shown
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.model import Connection, DecidedRequest, Exchange, Lines, Message, Problem, SaslToken, Summary
from kafkasniff.packets import PacketBatch

if TYPE_CHECKING:
    from kafkasniff.capture import CaptureSource
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.engine.lines import Ends, LineMaker, MakeLines
    from kafkasniff.engine.lines_ahead import LinesAhead
    from kafkasniff.enrich import Enricher
    from kafkasniff.filters import Predicate, Selector
    from kafkasniff.kafka.messages.rendered import Renderer
    from kafkasniff.native.library import Kernel
    from kafkasniff.sinks.formats import Left, SinkSettings
    from kafkasniff.sinks.lines import FormatSink
    from kafkasniff.values.stage import ValueDecoder


# Which lines of a run the native kernel writes.

FEW: Final = 1000
"""Python writes fewer messages sooner than the kernel, whose tables for lines take 15 ms."""


def begin_lines(
    inspector: Inspector,
    sink: FormatSink,
    enricher: Enricher,
    options: OutputOptions,
    settings: SinkSettings,
    *,
    renderer: Renderer | None,
    filtered: tuple[Predicate, Selector] | None,
    left: Left,
    ahead: LinesAhead | None = None,
) -> bool:
    """Let the kernel write lines of `sink` as far as it can; returns whether it does.

    `settings`: those of the sink; `renderer`: that of the inspector; `enricher`: the stage before the sink;
    `filtered`: the filter, if not everything is shown; `left`: returns how many messages may still be shown, None for
    all; `ahead`: threads that take packets and write lines ahead.
    """
    from kafkasniff.native.library import kernel

    native, maker = kernel(), options.format.line_maker
    holds = filtered is not None and filtered[1].holds
    if left is not None and (holds or left() < FEW):
        # Lines that wait for a request are counted one by one.
        maker = None
    if filtered is None:
        make = None if maker is None else maker(native, sink, settings, enricher, renderer, left)
        return make is not None and inspector.write_lines(make, ahead=ahead)
    from kafkasniff.engine.selection import Selection, asks_columns
    from kafkasniff.sinks.native_lines import AddedNames

    if not asks_columns(filtered[0], records=True):
        return False
    # Filters look at bodies as dicts, so the inspector has no renderer.
    own = make_renderer(options, settings.payload)
    make = None if maker is None else maker(native, sink, settings, enricher, own, left)
    secrets = inspector.decode_options.show_secrets
    names = AddedNames(enricher)
    selection = Selection(
        *filtered,
        native,
        names,
        show_secrets=secrets,
        writes=make is not None,
        records=lambda: inspector.options_now,
    )
    return inspector.write_lines(_reader(native, enricher) if make is None else make, selection, ahead=ahead)


def _reader(native: Kernel, enricher: Enricher) -> MakeLines:
    """Reads messages without writing lines."""

    def make(ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False) -> LineMaker:
        from kafkasniff.enrich.plan import shows_nothing
        from kafkasniff.kafka.messages.rendered import Renderer
        from kafkasniff.sinks.native_lines import NativeLines

        renderer = Renderer(native, "auto", shows_nothing)
        return NativeLines(native, renderer, ends, capture, enricher, ahead=ahead)

    return make


Event = Message | SaslToken | Exchange | Problem

FIRST_ROWS: Final = 512
MAX_ROWS: Final = 65_536
MAX_BYTES: Final = 8 << 20
"""A batch is processed in parts. The first is small, so that the first lines appear immediately. All are bounded in
packets and payload bytes, since the events of a part are held until they are written, with signals deferred."""


class Sink(Protocol):
    """Consumer of events."""

    def write(self, event: Event) -> None:
        """Take an event."""

    def close(self) -> None:
        """End of events."""


class LineSink(Sink, Protocol):
    """Consumer of events and lines."""

    def write_lines(self, lines: Lines) -> None:
        """Take finished lines, in turn with events."""


class Ordered(LineSink, Protocol):
    """Consumer of events and lines that keeps the places of held requests (`sinks.lines.OrderedSink`)."""

    @property
    def shown(self) -> int:
        """Messages shown."""

    def hold(self, request: Message) -> None:
        """Write a request that is shown, or not, when `decide` is called."""

    def decide(self, decided: DecidedRequest) -> None:
        """Show a held request, or do not show it."""


class BatchParts:
    """Cuts batches into parts that are small at first and grow."""

    def __init__(self) -> None:
        self._rows = FIRST_ROWS

    def of(self, batch: PacketBatch) -> Iterator[PacketBatch]:
        """The parts of the next batch."""
        return batch.parts(self._bounds())

    def _bounds(self) -> Iterator[tuple[int, int]]:
        while True:
            yield self._rows, MAX_BYTES
            self._rows = min(2 * self._rows, MAX_ROWS)


def shown_parts(source: Iterable[PacketBatch], progress: Progress | None) -> Iterator[PacketBatch]:
    """The packets of a source in such parts. Progress is shown after each of them, and cleared at the end."""
    small = BatchParts()
    try:
        for batch in source:
            for part in small.of(batch):
                yield part
                if progress is not None:
                    progress.update()
    finally:
        if progress is not None:
            progress.clear()


class Pipeline:
    """Feeds packets to an inspector and its events to a sink: those that `selector` selects, up to `limit` messages.

    `counts`: what the limit and `shown` count; `enricher`: adds names to events before they are selected; `values`:
    then decodes keys and values. `flush`: called after events were written, for a reader who watches; `ended`: called
    with each `Connection` that the inspector yields, after the events of the same batch. `ordered`: the sink, if the
    selector holds requests; it applies the limit, too.
    """

    def __init__(
        self,
        environment: Environment,
        inspector: Inspector,
        sink: Sink,
        *,
        enricher: Enricher,
        selector: Selector | None = None,
        limit: int | None = None,
        counts: type[Message | Exchange] = Message,
        flush: Callable[[], None] | None = None,
        ended: Callable[[Connection], None] | None = None,
        ordered: Ordered | None = None,
        values: ValueDecoder | None = None,
    ) -> None:
        self._environment = environment
        self._values = values
        self._inspector = inspector
        self._enricher = enricher
        enricher.limit_memory(inspector.memory)
        inspector.count_beside(enricher)
        self._sink = sink
        self.lines: LineSink | None = None
        """The sink, if the inspector makes lines for it; set before the first packet."""
        self._selector = selector
        self._limit = limit
        self._counts = counts
        self._flush = flush
        self._ended = ended
        self._ordered = ordered
        self.shown = 0
        """Messages, or exchanges, passed to the sink."""
        self.tokens = 0
        """SASL tokens passed to the sink."""

    def left(self) -> int:
        """Messages until the limit is reached."""
        assert self._limit is not None
        return max(self._limit - self.shown, 0)

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and self.shown >= self._limit

    def feed(self, batch: PacketBatch) -> None:
        """Process a batch. Signals are deferred until its events are written, so that no line is cut."""
        if self._selector is not None:
            self._selector.begins(batch.time_ns)
        with self._environment.interrupts.held():
            for events in self._feed(batch):
                self._take(self._enriched(events))
                del events  # before the next ones are decoded

    def _feed(self, batch: PacketBatch) -> Iterator[Sequence[Shown]]:
        return self._inspector.feed_slices(batch) if self.lines is None else self._inspector.feed_lines(batch)

    def close(self) -> None:
        """End of packets: process what was still open."""
        with self._environment.interrupts.held():
            if not self.full:
                for events in self._inspector.close_slices() if self.lines is None else self._inspector.close_lines():
                    self._take(self._enriched(events))
                    del events
            self._sink.close()

    def _enriched(self, events: Sequence[Shown]) -> Sequence[Any]:
        events = self._enricher.feed(events)
        return events if self._values is None else self._values.feed(events)

    def run(self, source: Iterable[PacketBatch], progress: Progress | None = None) -> None:
        """Process all batches of a source, or as many as the limit needs."""
        for part in shown_parts(source, progress):
            self.feed(part)
            if self.full:
                return

    def _take(self, events: Sequence[Any]) -> None:
        ended: list[Connection] = []
        if self._ended is not None:
            # Connections are neither selected nor written.
            ended = [event for event in events if type(event) is Connection]
            if ended:
                events = [event for event in events if type(event) is not Connection]
        if self._selector is not None:
            events = self._selector.feed(events)
        write = self._sink.write
        if self._ordered is not None:
            self._take_ordered(events, self._ordered)
        elif self._limit is None:
            for event in events:
                if type(event) is Lines:
                    assert self.lines is not None
                    self.lines.write_lines(event)
                    self.shown += event.count
                else:
                    write(event)
            # No subclass is yielded; counted together, since asking each event costs as much as a part of its line.
            types = list(map(type, events))
            self.shown += types.count(self._counts)
            self.tokens += types.count(SaslToken)
        else:
            for event in events:
                left = self.left()
                if not left:
                    break
                if type(event) is Lines:
                    assert self.lines is not None
                    lines = event.first(left)
                    self.lines.write_lines(lines)
                    self.shown += lines.count
                else:
                    write(event)
                    self.shown += isinstance(event, self._counts)
                    self.tokens += isinstance(event, SaslToken)
        if self._ended is not None:
            for connection in ended:
                self._ended(connection)
        if self._flush is not None and events:
            self._flush()

    def _take_ordered(self, events: Sequence[Any], sink: Ordered) -> None:
        from kafkasniff.filters import HeldRequest

        for event in events:
            if self.full:
                return
            kind = type(event)
            if kind is Lines:
                sink.write_lines(event)
            elif kind is HeldRequest:
                sink.hold(event.request)
            elif kind is DecidedRequest:
                sink.decide(event)
            else:
                self.tokens += kind is SaslToken
                sink.write(event)
            self.shown = sink.shown


def learn_names(
    environment: Environment,
    catalog: Catalog,
    captures: Sequence[str],
    arguments: Mapping[str, Any],
    *,
    progress: bool,
) -> None:
    """Read captures for names before reading them for messages; `arguments` are those of the `Inspector`."""
    from kafkasniff.capture import open_captures
    from kafkasniff.library import learn

    def parts(source: CaptureSource) -> Iterator[PacketBatch]:
        return shown_parts(source, Progress(environment, source) if progress else None)

    learn(catalog, lambda: open_captures(captures, stdin=environment.stdin), arguments, parts=parts)


def summary_line(summary: Summary, shown: int | None = None, unit: str = "") -> str:
    """Summary of a run in one line; `shown`: number of messages (or of `unit`) shown, if they were selected."""
    connections = _number(summary.connections, "connection")
    if summary.connections:
        connections += f" ({summary.kafka_connections:,} Kafka"
        if summary.not_kafka:
            connections += f", {summary.not_kafka:,} not Kafka"
        if summary.undecided:
            connections += f", {summary.undecided:,} undecided"
        connections += ")"
    messages = _number(summary.requests + summary.responses, "message")
    if shown is not None:
        messages += f", {shown:,} {unit}shown"
    parts = [
        _number(summary.packets, "packet"),
        connections,
        messages,
        _number(summary.problems, "problem"),
        _number(summary.bytes_lost, "byte") + " lost",
    ]
    if summary.bytes_skipped:
        skipped = _number(summary.bytes_skipped, "byte") + " skipped"
        if summary.bytes_pending:
            skipped += f" ({summary.bytes_pending:,} of frames truncated at the end)"
        parts.append(skipped)
    if summary.bytes_ignored:
        parts.append(_number(summary.bytes_ignored, "byte") + " ignored")
    return ", ".join(parts)


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
