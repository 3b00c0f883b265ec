"""Text output: one line per message, aligned; optionally with the body as a tree below it.

Lines are built by plain string formatting; repeating parts (endpoints, API labels) are cached with their colours.
Columns start narrow and only grow, as their contents require. Every string from the wire goes through
`kafkasniff.text.printable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkasniff.kafka.schema.context import LargeBody
from kafkasniff.model import Body, Endpoint, Exchange, Lines, Message, Problem, SaslToken
from kafkasniff.native.library import kernel
from kafkasniff.native.text_lines import LAST, TextPadding, capture_mark, column_mark, day_mark
from kafkasniff.redact.payload import SHOWN, BesideRecords, Payload
from kafkasniff.sinks.lines import ByteOutput, TextWriter, joined
from kafkasniff.sinks.summaries.phrases import amount, message_phrase
from kafkasniff.sinks.summaries.templates import summary
from kafkasniff.sinks.tree import body_tree, bytes_dump
from kafkasniff.text.printable import COLOUR, PLAIN, Paint, display_width, printable, word
from kafkasniff.text.times import clock_time, date_of, duration

if TYPE_CHECKING:
    from kafkasniff.sinks.hex_view import HexView


# -- columns -----------------------------------------------------------------------------------------------------------
#
# A sink marks where the text of a column ends. `ColumnOutput` pads it, in the order in which lines leave: a filter may
# decide on a line after later ones were made.


LINE_CACHE: Final = 4096
"""Maximum numbers of cached connections, APIs and client ids."""
NAME_WIDTH: Final = 40
"""Maximum length of a host's name."""

EndsText = tuple[Endpoint | None, Endpoint | None, str, str]
"""The ends of a connection, client first, and their column on a request and on a response."""


class ColumnWidths(NamedTuple):
    """Widths of the columns of a listing at its beginning."""

    ends: int
    api: int
    exchange: int
    correlation: int
    client: int


FILE_COLUMNS: Final = ColumnWidths(ends=0, api=12, exchange=4, correlation=7, client=8)
_NARROW: Final = ColumnWidths(ends=36, api=16, exchange=6, correlation=9, client=14)
_WIDE: Final = ColumnWidths(ends=44, api=25, exchange=7, correlation=11, client=24)
_WIDE_TERMINAL: Final = 180
"""Columns of a terminal from which nearly every endpoint, API and client id has room."""


def column_widths(terminal: int) -> ColumnWidths:
    """Widths for a terminal of this many columns: what is usual has room, so that nothing moves during reading."""
    return _WIDE if terminal >= _WIDE_TERMINAL else _NARROW


class ColumnOutput:
    """Pads the columns of lines on their way to `stream`, and adds the lines at the beginning of captures and days."""

    def __init__(self, stream: ByteOutput, paint: Paint, widths: ColumnWidths) -> None:
        self._stream = stream
        self._paint = paint
        self._padding = TextPadding(kernel(), (paint.dim.encode(), paint.reset.encode()), widths._asdict())
        self._captures: dict[str | None, str] = {None: capture_mark(0)}
        """Marks of the captures so far, by name."""

    def capture(self, name: str | None) -> str:
        """The mark of a capture."""
        mark = self._captures.get(name)
        if mark is None:
            line = f"{self._paint.dim}capture {printable(name or '')}{self._paint.reset}"
            mark = self._captures[name] = capture_mark(self._padding.add_capture(line.encode()))
        return mark

    def write(self, data: bytes | memoryview, /) -> None:
        """Write complete lines, or a piece of a long one."""
        self._stream.write(self._padding.pad(bytes(data)))

    def flush(self) -> None:
        """Flush what was written."""
        self._stream.flush()


class EncodedOutput:
    """Passes UTF-8 on in another encoding; characters that it lacks are written as backslash escapes."""

    def __init__(self, stream: ByteOutput, encoding: str) -> None:
        self._stream = stream
        self._encoding = encoding

    def write(self, data: bytes | memoryview, /) -> None:
        """Write whole characters."""
        self._stream.write(bytes(data).decode().encode(self._encoding, "backslashreplace"))

    def flush(self) -> None:
        """Flush what was written."""
        self._stream.flush()


class EndsTexts:
    """Both ends of connections with an arrow between them; cached by the connection's number.

    `names`: address, or address:port, → the name shown for it; may grow. `arrows`: from client to broker and back.
    """

    __slots__ = ("_arrows", "_names", "_paint", "cleared", "ready")

    def __init__(self, names: Mapping[str, str], paint: Paint, arrows: tuple[str, str]) -> None:
        self._names = names
        self._paint = paint
        self._arrows = arrows
        self.cleared = 0
        """How often `ready` was cleared: earlier results would now be named differently."""
        self.ready: dict[int | None, EndsText] = {}

    def of(self, connection: int | None, client: Endpoint | None, broker: Endpoint | None) -> EndsText:
        """The text for these ends, cached in `ready` under `connection`."""
        ready = self.ready.get(connection)
        if ready is None or ready[0] != client or ready[1] != broker:
            if len(self.ready) >= LINE_CACHE:
                self.ready.clear()
                self.cleared += 1
            left, right = self._name(client), self._name(broker)
            mark = column_mark("ends", len(left) + len(right) + 3)
            there, back = self._arrows
            paint = self._paint
            ready = self.ready[connection] = (
                client,
                broker,
                f"{left} {paint.request}{there}{paint.reset} {right}{mark}",
                f"{left} {paint.response}{back}{paint.reset} {right}{mark}",
            )
        return ready

    def _name(self, endpoint: Endpoint | None) -> str:
        if endpoint is None:
            return "?"
        shown = str(endpoint)
        # A name for this port alone is more specific.
        name = self._names.get(shown) or self._names.get(endpoint.address)
        return shown if name is None else f"{word(name, NAME_WIDTH)}:{endpoint.port}"


# -- lines -------------------------------------------------------------------------------------------------------------


CLIENT_WIDTH: Final = 24
"""Width of the client id column."""
RAW_WIDTH: Final = 256
"""Bytes shown of a body that was not read to its end."""
PROBLEMS_SHOWN: Final = 3
"""Problems of one message that are shown without `-v`."""
PIECE_CHARACTERS: Final = 64 << 10
"""Characters of lines below a message that are joined at once."""
HEX_INDENT: Final = " " * 4
MIN_HEX_WIDTH: Final = 80
"""Columns that the bytes of messages take at least."""
LATENCY_WIDTH: Final = 8
"""Width of a latency: `duration` needs 7 below 1000 s."""

_NO_TIME: Final = " " * 15
_NO_DAY: Final = day_mark(None)
_NO_CLIENT: Final = column_mark("client", 0)
_NO_LATENCY: Final = " " * LATENCY_WIDTH
_INDENT: Final = " " * 17


def _label(key: int | None, version: int | None, api: str | None) -> str:
    """API and version, as far as known: those of an orphan response are not."""
    if api is not None:
        return f"{api} v{version}"
    return "?" if key is None else f"API {key} v{version}"


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("_", "-") in {"utf-8", "utf8"}


def _read_as(message: Message, summary_text: str) -> str:
    return f"{summary_text}, read as v{message.body_version}"


class TextSink:
    """Writes events as lines of text to `stream`.

    `verbosity` 0: one line per message; 1: also its body; 2: also records (if they were decoded). `hex` 1: also bytes
    and fields of messages that have a `frame`, decoded with their records; 2: all their bytes; `secrets`: messages show
    them. `colour`: with ANSI colours; `encoding`: of the stream, characters that it lacks are escaped; `width`: columns
    available for the tree and the bytes; `captures`: show where another capture begins; `names`: address, or
    address:port, → the name shown for it, from the captures' name records or the user; may grow while lines are
    written; `payload`: how payload is shown; `columns`: their widths at the beginning.
    """

    def __init__(
        self,
        stream: ByteOutput,
        *,
        verbosity: int = 0,
        hex: int = 0,
        secrets: bool = False,
        colour: bool = False,
        encoding: str = "utf-8",
        width: int = 120,
        captures: bool = False,
        names: Mapping[str, str] | None = None,
        payload: Payload = SHOWN,
        columns: ColumnWidths = FILE_COLUMNS,
    ) -> None:
        self._payload = payload if payload.hides else None
        self._beside = BesideRecords.of(payload)
        if not _is_utf8(encoding):
            stream = EncodedOutput(stream, encoding)
        self._paint = COLOUR if colour else PLAIN
        self._columns = ColumnOutput(stream, self._paint, columns)
        self._lines = TextWriter(self._columns)
        self._add = self._lines.add
        self._verbosity = verbosity
        self._has_more = bool(verbosity or hex) or self._payload is not None
        self._hex: HexView | None = None
        if hex:
            # Imported only for that: a run without it starts sooner.
            from kafkasniff.sinks.hex_view import HexView  # noqa: PLC0415

            self._hex = HexView(
                self._paint, whole=hex > 1, secrets=secrets, payload=not payload.hides, width=max(width, MIN_HEX_WIDTH)
            )
        self._encoding = encoding
        self._width = width
        self._captures = captures
        arrows = ("→", "←") if self._encodable("→←") else (">", "<")
        self._ends = EndsTexts({} if names is None else names, self._paint, arrows)
        self._labels: dict[tuple[int | None, int | None], str] = {}
        self._clients: dict[str | bytes | None, str] = {}
        self._date = "", day_mark(None)
        """The day of the last message, and its mark."""

    def _encodable(self, text: str) -> bool:
        try:
            text.encode(self._encoding)
        except UnicodeEncodeError:
            return False
        return True

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write one event. Hot."""
        if type(event) is Message:
            if event.problems or self._has_more:
                line, pieces = self._in_pieces(event)
                self._put(event, line, next(pieces, ""))
                for piece in pieces:
                    self._add(piece)
            else:
                self._put(event, self._summary(event), "")
        elif isinstance(event, Problem):
            self._problem(event)
        elif isinstance(event, SaslToken):
            self._sasl(event)
        # Exchanges are shown by their messages, and an end without an answer by a problem.

    @property
    def stream(self) -> ByteOutput:
        """Where lines go; their columns are not padded yet. May be replaced before the first line."""
        return self._lines.stream

    @stream.setter
    def stream(self, stream: ByteOutput) -> None:
        self._lines.stream = stream

    def _summary(self, message: Message) -> str:
        """The summary of a message."""
        text = summary(message, self._paint)
        return text if message.body_version is None else _read_as(message, text)

    def flush(self) -> None:
        """Flush all lines so far."""
        self._lines.flush()

    def close(self) -> None:
        """Flush the last lines; the stream stays open."""
        self._lines.flush()

    def _in_pieces(self, message: Message) -> tuple[str, Iterator[str]]:
        """The summary of a message, and the lines below its own in lazily made pieces."""
        hide, given = None, message
        if self._payload is not None:
            if message.body.__class__ is LargeBody:
                hide = self._payload.record
                message = self._beside.hide(message)
            else:
                message = self._payload.hide(message)
        below = (
            joined(self._below(message, hide, given), "\n", PIECE_CHARACTERS)
            if message.problems or self._verbosity or self._hex is not None
            else iter(())
        )
        return self._summary(message), below

    def _put(self, message: Message, text: str, below: str) -> None:
        """Write a message's line with its summary, and the first piece of the lines below it. Hot."""
        clock = self._begin(message.capture, message.time_ns)
        api_key = (message.api_key, message.api_version)
        api = self._labels.get(api_key) or self.label(*api_key, message.api)
        exchange = "#?" if message.exchange is None else f"#{message.exchange}"
        correlation = "corr ?" if message.correlation_id is None else f"corr {message.correlation_id}"
        number = (
            f"{exchange}{column_mark('exchange', len(exchange))} "
            f"{correlation}{column_mark('correlation', len(correlation))}"
        )
        pair = self._ends.ready.get(message.connection)
        if pair is None or pair[0] is not message.client or pair[1] is not message.broker:
            pair = self._ends.of(message.connection, message.client, message.broker)
        if message.type == "request":
            client = self._clients.get(message.client_id) or self._client(message.client_id)
            line = f"{clock}  {pair[2]}  {api}  {number}  {_NO_LATENCY}  {client}  {text}"
        else:
            ns = message.latency_ns
            latency = _NO_LATENCY if ns is None else duration(ns).rjust(LATENCY_WIDTH)
            line = f"{clock}  {pair[3]}  {api}  {number}  {latency}  {_NO_CLIENT}  {text}"
        if not text:
            line += LAST
        self._add(f"{line}\n{below}" if below else line)

    def _client(self, client_id: str | bytes | None) -> str:
        """The column of a client id."""
        if len(self._clients) >= LINE_CACHE:
            self._clients.clear()
        text = "-" if client_id is None else word(client_id, CLIENT_WIDTH)
        made = self._clients[client_id] = f"{text}{column_mark('client', display_width(text))}"
        return made

    def _begin(self, capture: str | None, time_ns: int | None) -> str:
        """The beginning of the line of a message, up to its clock time."""
        return f"{self.capture(capture)}{self._time(time_ns)}"

    def _time(self, time_ns: int | None) -> str:
        """The mark of the day, and the clock time."""
        if time_ns is None:
            return f"{_NO_DAY}{_NO_TIME}"
        day = date_of(time_ns)
        if day != self._date[0]:
            self._date = day, day_mark(day)
        return f"{self._date[1]}{clock_time(time_ns)}"

    # -- for lines written by the kernel (`native_text`) --------------------------------------------------------------

    @property
    def writes_plain_lines(self) -> bool:
        """Whether messages without problems have neither bytes nor placeholders for payload below them."""
        return self._hex is None and self._payload is None

    @property
    def verbosity(self) -> int:
        """0: lines; 1: bodies as well; 2: records as well."""
        return self._verbosity

    @property
    def width(self) -> int:
        """Columns available for bodies."""
        return self._width

    @property
    def paint(self) -> Paint:
        """The colours."""
        return self._paint

    @property
    def turn(self) -> int:
        """Changes when earlier results of `ends` would now be named differently."""
        return self._ends.cleared

    def ends(self, connection: int, client: Endpoint | None, broker: Endpoint | None) -> tuple[str, str]:
        """The column of both ends on a request and on a response."""
        _, _, request, response = self._ends.of(connection, client, broker)
        return request, response

    def label(self, key: int | None, version: int | None, api: str | None) -> str:
        """The column of an API's version."""
        text = _label(key, version, api)
        if len(self._labels) >= LINE_CACHE:
            self._labels.clear()
        made = f"{self._paint.api}{text}{self._paint.reset}{column_mark('api', display_width(text))}"
        self._labels[key, version] = made
        return made

    def capture(self, name: str | None) -> str:
        """What the line of a message of a capture begins with."""
        return self._columns.capture(name) if self._captures else ""

    def write_lines(self, lines: Lines) -> None:
        """Add finished lines."""
        self._lines.add_encoded(bytes(lines.data))

    def problem_lines(self, problems: tuple[Problem, ...]) -> Iterator[str]:
        """The lines below a message's own for its problems."""
        paint = self._paint
        shown = problems if self._verbosity else problems[:PROBLEMS_SHOWN]
        for problem in shown:
            place = "" if problem.offset is None else f" (at byte {problem.offset})"
            yield f"{_INDENT}{paint.warn}{problem.kind}: {printable(problem.detail)}{place}{paint.reset}"
        if len(shown) < len(problems):
            yield f"{_INDENT}{paint.warn}+{len(problems) - len(shown)} more problems{paint.reset}"

    def _below(self, message: Message, hide: Callable[[Body], Body] | None, given: Message) -> Iterable[str]:
        """The lines below a message's own: its problems, with `-v` its whole content, with `-x` its bytes.

        `hide`: returns the displayed form of a record; `given`: the message with its payload.
        """
        yield from self.problem_lines(message.problems)
        if self._verbosity:
            yield from self._content(message, hide)
        if self._hex is not None and given.frame is not None:
            yield from self._hex.lines(given, given.frame, HEX_INDENT)

    def _content(self, message: Message, hide: Callable[[Body], Body] | None) -> Iterator[str]:
        paint = self._paint
        place = f"packet {message.first_packet}"
        if message.last_packet != message.first_packet:
            place = f"packets {message.first_packet}-{message.last_packet}"
        facts = [f"conn {message.connection}", place, f"{message.size} bytes"]
        if message.duration_ns is not None:
            facts.append(f"took {duration(message.duration_ns)}")
        yield f"    {paint.dim}{', '.join(facts)}{paint.reset}"
        for tag, value in message.header_tags:
            yield f"    {paint.name}header tag {tag}{paint.reset}: {bytes_dump(value, 64)}"
        if message.body is not None:
            yield from body_tree(message, paint, records=self._verbosity > 1, width=self._width, hide=hide)
        if message.raw is not None:
            yield f"    {paint.name}raw{paint.reset}: {bytes_dump(message.raw, RAW_WIDTH)}"
        elif message.raw_redacted is not None:
            yield f"    {paint.name}raw{paint.reset}: [{message.raw_redacted} bytes redacted]"

    def _sasl(self, token: SaslToken) -> None:
        time = self._begin(token.capture, token.time_ns)
        pair = self._ends.of(token.connection, token.client, token.broker)[2 if token.direction == "request" else 3]
        api = f"{self._paint.api}SASL token{self._paint.reset}{column_mark('api', len('SASL token'))}"
        phrase = message_phrase(token.meaning)
        if phrase:
            phrase += ", "
        elif token.mechanism is not None:
            phrase = f"{word(token.mechanism)} "
        shown = "redacted" if token.token is None else bytes_dump(token.token, 64)
        number = f"conn {token.connection}"  # a token belongs to no exchange
        self._add(f"{time}  {pair}  {api}  {number}  {phrase}{amount(token.size)}, {shown}")
        if self._hex is not None:
            for line in self._hex.token_lines(token, HEX_INDENT):
                self._add(line)

    def _problem(self, problem: Problem) -> None:
        paint = self._paint
        time = self._time(problem.time_ns)
        place = ""
        if problem.client is not None or problem.broker is not None:
            ends = self._ends.of(problem.connection, problem.client, problem.broker)
            place = f"{ends[3 if problem.direction == 'response' else 2]}  "
        facts = []
        if problem.connection is not None:
            facts.append(f"conn {problem.connection}")
        if self._captures and problem.capture is not None:
            facts.append(printable(problem.capture))
        if problem.packet is not None:
            facts.append(f"packet {problem.packet}")
        place_text = f" ({', '.join(facts)})" if facts else ""
        self._add(f"{time}  {place}{paint.warn}{problem.kind}: {printable(problem.detail)}{place_text}{paint.reset}")
