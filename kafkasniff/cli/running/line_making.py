"""Decides which lines of a run the native kernel writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkasniff.cli.options.option_groups import OutputOptions, make_renderer

if TYPE_CHECKING:
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.engine.line_runs import Ends, LineMaker, MakeLines
    from kafkasniff.engine.lines_ahead import LinesAhead
    from kafkasniff.enrich import Enricher
    from kafkasniff.filters import Predicate, Selector
    from kafkasniff.kafka.messages.rendered import Renderer
    from kafkasniff.native.library import Kernel
    from kafkasniff.redact.payload import Payload
    from kafkasniff.sinks.jsonl import JsonSink
    from kafkasniff.sinks.text import TextSink

__all__ = ["begin_lines"]


def begin_lines(
    inspector: Inspector,
    sink: TextSink | JsonSink,
    enricher: Enricher,
    options: OutputOptions,
    payload: Payload,
    *,
    renderer: Renderer | None,
    captures: bool,
    terminal: bool,
    filtered: tuple[Predicate, Selector] | None,
    limited: bool,
    ahead: LinesAhead | None = None,
) -> bool:
    """Let the kernel write lines of `sink` as far as it can; returns whether it does.

    `renderer`: that of the inspector; `enricher`: the stage before the sink; `captures`: there are several, as for
    `make_sink`; `filtered`: the filter, if not everything is shown; `limited`: the number of messages is limited;
    `ahead`: threads that take packets and write lines ahead.
    """
    from kafkasniff.native import kernel

    native = kernel()
    if native is None:
        return False
    if filtered is None:
        make = None if limited else _maker(native, sink, renderer, enricher, captures=captures, terminal=terminal)
        return make is not None and inspector.write_lines(make, ahead=ahead)
    from kafkasniff.engine.selection import Selection, asks_columns

    if not asks_columns(filtered[0]):
        return False
    # Filters look at bodies as dicts, so the inspector has no renderer.
    own = make_renderer(options, payload)
    make = None if limited else _maker(native, sink, own, enricher, captures=captures, terminal=terminal)
    secrets = inspector.decode_options.show_secrets
    selection = Selection(*filtered, native, show_secrets=secrets, writes=make is not None)
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


def _maker(
    native: Kernel,
    sink: TextSink | JsonSink,
    renderer: Renderer | None,
    enricher: Enricher,
    *,
    captures: bool,
    terminal: bool,
) -> MakeLines | None:
    """The line writer for `sink`; None if the kernel cannot write its lines."""
    from kafkasniff.sinks.text import TextSink

    if isinstance(sink, TextSink):
        if not sink.writes_plain_lines:
            return None
        text = sink

        def make_text(
            ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False
        ) -> LineMaker:
            from kafkasniff.sinks.native_text import NativeText

            if ahead:
                raise ValueError("each line of text depends on those before it")
            return NativeText(native, text, ends, capture, enricher)

        return make_text
    if renderer is None:
        return None

    def make_json(
        ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False
    ) -> LineMaker:
        from kafkasniff.sinks.native_lines import NativeLines

        return NativeLines(
            native, renderer, ends, capture, enricher, names_captures=captures, terminal=terminal, ahead=ahead
        )

    return make_json
