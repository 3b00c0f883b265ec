"""The formats in which messages are written, by their names in `--format`.

A format is added by an entry in `FORMATS`: the options, the engine and `--jobs` ask only that entry. Modules of sinks
are imported when their format is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from kafkasniff.engine.lines import Ends, LineMaker, MakeLines
    from kafkasniff.enrich import Enricher
    from kafkasniff.kafka.messages.rendered import Renderer
    from kafkasniff.model import Exchange, Lines, Message, Problem, SaslToken
    from kafkasniff.native.library import Kernel
    from kafkasniff.redact.payload import Payload
    from kafkasniff.sinks.json_pieces import BytesForm
    from kafkasniff.sinks.lines import ByteOutput

Left = Callable[[], int] | None
"""Returns how many messages may still be written; None: all of them."""


class SinkSettings(NamedTuple):
    """What users choose, and what the output is; a format ignores the parts that do not concern it."""

    payload: Payload
    """How payload is shown."""
    captures: bool = False
    """There are several captures: show which one."""
    terminal: bool = False
    """The output is a terminal."""
    colour: bool = False
    encoding: str = "utf-8"
    """Encoding of text. JSON and CSV are UTF-8."""
    width: int = 120
    """Columns available for text."""
    verbosity: int = 0
    """0: lines; 1: bodies as well; 2: records as well."""
    hex: int = 0
    """1: also bytes; 2: all of them."""
    secrets: bool = False
    """Secrets are shown."""
    names: Mapping[str, str] | None = None
    """Address, or address:port, → the name shown for it."""
    bytes_form: BytesForm = "auto"
    """How bytes are written in JSON."""


class FormatSink(Protocol):
    """Writes events. Every event is passed on once, in the order of the capture."""

    stream: ByteOutput
    """Where finished lines go; may be replaced before the first one."""

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write an event, if the format shows such events."""

    def write_lines(self, lines: Lines) -> None:
        """Write lines that the format's line maker made, in turn with events."""

    def flush(self) -> None:
        """Pass everything written so far on to the stream."""

    def close(self) -> None:
        """End of events. The stream stays open."""


class Format(NamedTuple):
    """How messages can be written."""

    summary: str
    """Its name in a sentence."""
    open: Callable[[ByteOutput, SinkSettings], FormatSink]
    """Create the sink."""
    line_maker: (
        Callable[[Kernel, FormatSink, SinkSettings, Enricher, Renderer | None, Left], MakeLines | None] | None
    ) = None
    """The native kernel's writer of the same lines, given the stage before the sink and the renderer of bodies; it
    returns None if the kernel cannot write them with these settings. Without it, Python writes every line."""
    bodies: Literal["decoded", "json"] = "decoded"
    """The sink takes bodies as dicts, or also as JSON that the kernel rendered."""
    records_from: int | None = None
    """The verbosity from which records are decoded; None: only if the user asks for them."""
    shows_hex: bool = False
    """It can show the bytes of messages."""
    lines_ahead: bool = False
    """No line depends on earlier ones, so that threads can make them ahead."""


def _open_text(stream: ByteOutput, settings: SinkSettings) -> FormatSink:
    from kafkasniff.sinks.text import TextSink
    from kafkasniff.sinks.text_columns import FILE_COLUMNS, column_widths

    if settings.terminal:
        from kafkasniff.sinks.terminal import TerminalOutput

        stream = TerminalOutput(stream, settings.width, settings.encoding)
    return TextSink(
        stream,
        verbosity=settings.verbosity,
        hex=settings.hex,
        secrets=settings.secrets,
        colour=settings.colour,
        encoding=settings.encoding,
        width=settings.width,
        captures=settings.captures,
        names=settings.names,
        payload=settings.payload,
        columns=column_widths(settings.width) if settings.terminal else FILE_COLUMNS,
    )


def _text_lines(
    native: Kernel,
    sink: FormatSink,
    _settings: SinkSettings,
    enricher: Enricher,
    _renderer: Renderer | None,
    left: Left,
) -> MakeLines | None:
    from kafkasniff.sinks.text import TextSink

    assert isinstance(sink, TextSink)
    if not sink.writes_plain_lines:
        return None
    text = sink

    def make(ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False) -> LineMaker:
        from kafkasniff.sinks.native_text import NativeText

        if ahead:
            raise ValueError("each line of text depends on those before it")
        return NativeText(native, text, ends, capture, enricher, left)

    return make


def _open_json(stream: ByteOutput, settings: SinkSettings) -> FormatSink:
    from kafkasniff.sinks.jsonl import JsonSink

    return JsonSink(
        stream,
        form=settings.bytes_form,
        capture=settings.captures,
        payload=settings.payload,
        terminal=settings.terminal,
    )


def _json_lines(
    native: Kernel,
    _sink: FormatSink,
    settings: SinkSettings,
    enricher: Enricher,
    renderer: Renderer | None,
    _left: Left,
) -> MakeLines | None:
    if renderer is None:
        return None

    def make(ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False) -> LineMaker:
        from kafkasniff.sinks.native_lines import NativeLines

        return NativeLines(
            native,
            renderer,
            ends,
            capture,
            enricher,
            names_captures=settings.captures,
            terminal=settings.terminal,
            ahead=ahead,
        )

    return make


def _csv_lines(
    native: Kernel,
    _sink: FormatSink,
    _settings: SinkSettings,
    enricher: Enricher,
    _renderer: Renderer | None,
    _left: Left,
) -> MakeLines:
    def make(ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False) -> LineMaker:
        from kafkasniff.enrich.plan import shows_nothing
        from kafkasniff.kafka.messages.rendered import Renderer
        from kafkasniff.sinks.csv import CSV
        from kafkasniff.sinks.native_lines import NativeLines

        renderer = Renderer(native, "auto", shows_nothing)
        return NativeLines(native, renderer, ends, capture, enricher, shape=CSV, names_captures=True, ahead=ahead)

    return make


def _open_csv(stream: ByteOutput, _settings: SinkSettings) -> FormatSink:
    from kafkasniff.sinks.csv import CsvSink

    return CsvSink(stream)


FORMATS: Final[Mapping[str, Format]] = {
    "text": Format("text", _open_text, _text_lines, records_from=2, shows_hex=True),
    "json": Format("JSON lines", _open_json, _json_lines, bodies="json", records_from=0, lines_ahead=True),
    "csv": Format("CSV without bodies", _open_csv, _csv_lines, lines_ahead=True),
}
"""The first one is the default."""
