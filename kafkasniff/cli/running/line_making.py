"""Decides which lines of a run the native kernel writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkasniff.cli.options.option_groups import OutputOptions, make_renderer

if TYPE_CHECKING:
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.engine.line_makers import Ends, LineMaker, MakeLines
    from kafkasniff.engine.lines_ahead import LinesAhead
    from kafkasniff.enrich import Enricher
    from kafkasniff.filters import Predicate, Selector
    from kafkasniff.kafka.messages.rendered import Renderer
    from kafkasniff.native.library import Kernel
    from kafkasniff.sinks.formats import FormatSink, Left, SinkSettings

__all__ = ["begin_lines"]

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
    from kafkasniff.native import kernel

    native, maker = kernel(), options.format.line_maker
    holds = filtered is not None and filtered[1].holds
    if left is not None and (holds or left() < FEW):
        # Lines that wait for a request are counted one by one.
        maker = None
    if filtered is None:
        make = None if maker is None else maker(native, sink, settings, enricher, renderer, left)
        return make is not None and inspector.write_lines(make, ahead=ahead)
    from kafkasniff.engine.selection import Selection, asks_columns
    from kafkasniff.sinks.native_names import AddedNames

    if not asks_columns(filtered[0]):
        return False
    # Filters look at bodies as dicts, so the inspector has no renderer.
    own = make_renderer(options, settings.payload)
    make = None if maker is None else maker(native, sink, settings, enricher, own, left)
    secrets = inspector.decode_options.show_secrets
    names = AddedNames(native, enricher)
    selection = Selection(*filtered, native, names, show_secrets=secrets, writes=make is not None)
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
