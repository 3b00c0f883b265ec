"""`--write-matching FILE`: a capture with the packets of all connections whose exchanges were selected."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.capture import open_captures
from kafkasniff.capture.write.capture_writer import MAX_COMMENT, CaptureWriter, commented, form_of
from kafkasniff.capture.write.output_files import PatchedFile, replace_file
from kafkasniff.cli.environment import Environment
from kafkasniff.cli.output import Progress
from kafkasniff.cli.running.pipeline import BatchParts, Event, Pipeline
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.errors import OutputError
from kafkasniff.model import DecidedRequest, Lines, Message, SaslToken
from kafkasniff.native import kernel
from kafkasniff.sinks.native_text import NativeText
from kafkasniff.sinks.text import TextSink

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafkasniff.engine.connection_stats import MessageOwner
    from kafkasniff.engine.lines import Ends, LineMaker
    from kafkasniff.native.lines import LineBatch
    from kafkasniff.packets import Key
    from kafkasniff.redact.matching import Written
    from kafkasniff.sinks.lines import OrderedSink


class Discarded:
    """An output of which nothing is kept."""

    def write(self, data: bytes | memoryview, /) -> None:
        """Discard data."""

    def flush(self) -> None:
        """There is nothing to flush."""


class SelectedConnections:
    """The connections whose messages or tokens were selected. `every`: all are that have any."""

    def __init__(self, *, every: bool) -> None:
        self._every = every
        self._numbers: set[int] = set()
        """Those of the inspector."""
        self._ended: list[tuple[int, Key, int]] = []
        """Number, both ends and `connection_id` of connections that have ended."""

    def add(self, number: int) -> None:
        """A message or a token of a connection was selected, perhaps after its end."""
        self._numbers.add(number)

    def ended(self, connection: MessageOwner, decoded: int) -> None:
        """A connection has ended, of which this many bytes are messages or tokens."""
        if decoded:
            self._ended.append((connection.number, connection.endpoints, connection.identify()))

    def __iter__(self) -> Iterator[tuple[Key, int]]:
        """Both ends and `connection_id` of the selected ones."""
        return ((key, identity) for number, key, identity in self._ended if self._every or number in self._numbers)


class Selected:
    """A sink in front of another one that notes whose messages were selected.

    `limit`: the number of messages passed on to `sink`; None: all are.
    """

    def __init__(self, sink: OrderedSink, limit: int | None, connections: SelectedConnections) -> None:
        self._sink = sink
        self._limit = limit
        self._connections = connections

    @property
    def shown(self) -> int:
        """Messages passed on."""
        return self._sink.shown

    @property
    def _open(self) -> bool:
        """The limit is not reached."""
        return self._limit is None or self.shown < self._limit

    def write(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, Message | SaslToken) and event.connection is not None:
            self._connections.add(event.connection)
        if self._open:
            self._sink.write(event)

    def write_lines(self, lines: Lines) -> None:
        """Take lines, whose connections were noted before. Without a limit only."""
        self._sink.write_lines(lines)

    def hold(self, request: Message) -> None:
        """Keep the place of a request."""
        if self._open:
            self._sink.hold(request)

    def decide(self, decided: DecidedRequest) -> None:
        """A held request is selected, or not."""
        if decided.is_selected:
            self._connections.add(decided.connection)
        if self._open:
            self._sink.decide(decided)

    def close(self) -> None:
        """End of events."""
        self._sink.close()


# Comments on packets, in pcapng.

_COMMENT_OVERHEAD: Final = 160
"""Bytes that a comment takes in memory besides its text."""
_COMMENT_SHARE: Final = 4
"""Comments may take this part of the memory budget."""
_MESSAGE: Final = b"\x1fd"
"""The mark of a day, with which each message begins (`native.text_columns`)."""
_MARK: Final = b"\x1f"
_MARK_DIGITS: Final = 3
"""Bytes of the mark of a column after that one."""


class PacketComments:
    """What the packets of a capture complete: lines of text without time and addresses.

    A sink, and the stream of the `TextSink` that makes the lines. `room`: bytes of memory; later packets than those for
    which it suffices have no comments.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._texts: dict[int, bytes] = {}
        self._packets: list[int] = []
        """Those of the messages whose lines have not been written yet."""
        self.made: deque[NDArray[np.int64]] = deque()
        """Last packets of messages whose lines were made by the kernel, in the order in which they are written."""
        self.text = TextSink(self)
        self.text.stream = self

    def write(self, event: Event | bytes | memoryview, /) -> None:
        """Take an event, or lines of it."""
        if isinstance(event, bytes | memoryview):
            self._take(bytes(event))
        elif isinstance(event, Message | SaslToken):
            packet = event.last_packet if isinstance(event, Message) else event.packet
            self._packets.append(packet or 0)  # packets are counted from 1
            self.text.write(event)

    def write_lines(self, lines: Lines) -> None:
        """Take lines of the kernel."""
        self._packets += self.made.popleft().tolist()
        self.text.write_lines(lines)

    @property
    def is_full(self) -> bool:
        """Some have no comments."""
        return self._room <= 0

    def flush(self) -> None:
        """There is nothing to flush."""

    def close(self) -> None:
        """End of events."""
        self.text.close()

    def of(self, packet: int, _time_ns: int, _options: bytes) -> bytes | None:
        """The comment on a packet, by its number; each is requested once."""
        return self._texts.pop(packet, None)

    def _take(self, data: bytes) -> None:
        """Take the lines of messages, whose columns are not padded yet. Hot."""
        # Before the first mark: more lines below an earlier message, whose comment is long enough.
        lines = data.split(_MESSAGE)[1:]
        packets, self._packets = self._packets[: len(lines)], self._packets[len(lines) :]
        texts = self._texts
        for packet, line in zip(packets, lines, strict=True):
            if self._room <= 0:
                return
            # Time and addresses are before the first mark.
            columns = [column[_MARK_DIGITS:].strip() for column in line.split(_MARK)[1:]]
            text = b"  ".join(filter(None, columns))[: MAX_COMMENT + 1]
            if b"\n" in text:
                text = b"\n".join(map(bytes.strip, text.split(b"\n")))
            before = texts.get(packet)
            if before is None:
                self._room -= _COMMENT_OVERHEAD
            elif len(before) > MAX_COMMENT:
                continue
            else:
                text = before + b"\n" + text
            self._room -= len(text) - len(before or b"")
            texts[packet] = text


class _NumberedText(NativeText):
    """Lines of the kernel, whose messages' last packets are noted in `made`."""

    def __init__(self, made: deque[NDArray[np.int64]], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._made = made
        self._packets: NDArray[np.int64]

    def bind(self, batch: LineBatch) -> None:
        """The batch that is written from here on."""
        super().bind(batch)
        self._packets = batch.messages["last_packet"]

    def take(self, first: int, last: int) -> Iterator[Lines | int]:
        """Write the lines of these messages."""
        for made in super().take(first, last):
            if isinstance(made, Lines):
                self._made.append(self._packets[first : first + made.count].copy())
                first += made.count
            else:
                first = made + 1
            yield made


def _add_comments(
    environment: Environment, path: str, framing: Mapping[str, Any], catalog: Catalog, memory: int, *, progress: bool
) -> None:
    """Add to each packet of a written file that completes messages a comment with their lines.

    These are read from the file itself, so they cannot contain what is blank there. Raises as `write_selected`; then
    the file has no comments.
    """
    comments = PacketComments(memory // _COMMENT_SHARE)
    inspector = Inspector(records="metadata", exchanges=False, memory=memory, **framing)
    enricher = Enricher(catalog, summary=inspector.summary)

    def make(ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False) -> LineMaker:
        return _NumberedText(comments.made, kernel(), comments.text, ends, capture, enricher)

    run = Pipeline(environment, inspector, comments, enricher=enricher)
    if inspector.write_lines(make):
        run.lines = comments
    with open_captures([path]) as source:
        run.run(source, Progress(environment, source) if progress else None)
        run.close()
    try:
        with open(path, "rb") as file:
            replace_file(path, commented(file, comments.of))
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror or error}") from error
    if comments.is_full:
        environment.say(f"the last packets in {path} have no comments: memory limit")


def write_selected(
    environment: Environment,
    path: str,
    captures: Sequence[str],
    selected: Iterable[tuple[Key, int]],
    framing: Mapping[str, Any],
    *,
    catalog: Catalog,
    secrets: bool,
    payload: bool,
    memory: int,
    progress: bool,
) -> Written:
    """Read the captures again, and write. Raises CaptureError, OutputError, Interrupted.

    After an exception there is no file, or one without comments.

    `selected`: both ends and `connection_id` of connections; `framing`: which bytes are messages, as arguments of
    `Inspector`; `catalog`: names of topics; `secrets`, `payload`: what to show of these; `memory`: the budget in bytes.
    """
    from kafkasniff.kafka.apis.entities import METADATA_TOPIC
    from kafkasniff.kafka.embedded.internal_topics import INTERNAL_TOPICS
    from kafkasniff.redact.matching import Matching, WantedConnections
    from kafkasniff.redact.message import Blanker

    wanted = WantedConnections()
    for key, identity in selected:
        wanted.add(key, identity)
    blanker = None if secrets and payload else Blanker(secrets=secrets, payload=payload, topic=catalog.topic)
    form = form_of(path)
    with PatchedFile(path) as file, open_captures(captures) as source:
        matching = Matching(
            file,
            CaptureWriter(file, form, source.interface),
            wanted,
            blanker=blanker,
            own_topics=catalog.topics_named({*INTERNAL_TOPICS, METADATA_TOPIC}),
            memory=memory,
            **framing,
        )
        shown = Progress(environment, source) if progress else None
        parts = BatchParts()
        try:
            for batch in source:
                first = batch.end_order - batch.packets
                for part in parts.of(batch):
                    with environment.interrupts.held():
                        matching.feed(part, source.packets, first, source.fragments)
                    if shown is not None:
                        shown.update()
        finally:
            if shown is not None:
                shown.clear()
        with environment.interrupts.held():
            written = matching.close()
    if form == "pcapng" and written.packets:
        _add_comments(environment, path, framing, catalog, memory, progress=progress)
    return written


def written_line(environment: Environment, written: Written, path: str) -> str:
    """Summary of the file; also reports what is missing from it or could not be blanked."""
    if written.fragments:
        environment.say(
            f"{written.fragments:,} packets are not in {path}: they came in IP fragments, which cannot be blanked"
        )
    if written.missing:
        environment.say(
            f"{written.missing:,} of the connections were not found again and are not in {path}: "
            "the captures have changed, or the connections did not fit into memory"
        )
    if written.encrypted:
        what = "connection is" if written.encrypted == 1 else "connections are"
        environment.say(f"{written.encrypted:,} {what} still encrypted in {path}: the keys are not in it")
    if written.given_up:
        environment.say(f"{written.given_up:,} connections are blanked more than needed in {path}: memory limit")
    packets = f"{written.packets:,} packet{'' if written.packets == 1 else 's'}"
    return f"{packets} of {written.connections:,} connection{'' if written.connections == 1 else 's'} in {path}"
