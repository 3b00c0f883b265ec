"""`--write-matching FILE`: a capture with the packets of all connections whose exchanges were selected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkasniff.cli.environment import Environment
from kafkasniff.model import DecidedRequest, Lines, Message, SaslToken

if TYPE_CHECKING:
    from kafkasniff.cli.running.pipeline import Event
    from kafkasniff.engine.connection_stats import MessageOwner
    from kafkasniff.enrich import Catalog
    from kafkasniff.packets import Key
    from kafkasniff.redact.matching import Written
    from kafkasniff.sinks.ordered_sink import OrderedSink


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
    """Read the captures again, and write. Raises CaptureError, OutputError, Interrupted; then there is no file.

    `selected`: both ends and `connection_id` of connections; `framing`: which bytes are messages, as arguments of
    `Inspector`; `catalog`: names of topics; `secrets`, `payload`: what to show of these; `memory`: the budget in bytes.
    """
    from kafkasniff.capture import open_captures
    from kafkasniff.capture.write.capture_writer import CaptureWriter, form_of
    from kafkasniff.capture.write.output_files import PatchedFile
    from kafkasniff.cli.running.pipeline import BatchParts
    from kafkasniff.cli.running.progress import Progress
    from kafkasniff.kafka.apis.cluster_metadata import TOPIC_NAME
    from kafkasniff.kafka.embedded.internal_topics import INTERNAL_TOPICS
    from kafkasniff.redact.matching import Matching, WantedConnections
    from kafkasniff.redact.message import Blanker

    wanted = WantedConnections()
    for key, identity in selected:
        wanted.add(key, identity)
    blanker = None if secrets and payload else Blanker(secrets=secrets, payload=payload, topic=catalog.topic)
    with PatchedFile(path) as file, open_captures(captures) as source:
        matching = Matching(
            file,
            CaptureWriter(file, form_of(path), source.interface),
            wanted,
            blanker=blanker,
            own_topics=catalog.topics_named({*INTERNAL_TOPICS, TOPIC_NAME}),
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
            return matching.close()


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
