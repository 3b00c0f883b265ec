"""`--write-matching FILE`: a capture with the packets of all connections whose exchanges were selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkasniff.cli.environment import Environment
from kafkasniff.engine.shards import packed
from kafkasniff.model import Connection, Lines, Message, SaslToken

if TYPE_CHECKING:
    from kafkasniff.cli.running.pipeline import Event
    from kafkasniff.engine.connection_stats import MessageOwner
    from kafkasniff.enrich import Catalog
    from kafkasniff.redact.matching import Written
    from kafkasniff.sinks.ordered_sink import OrderedSink
    from kafkasniff.tcp.plan import Key

__all__ = ["AllSelected", "Discarded", "Selected", "write_selected", "written_line"]


class Discarded:
    """An output of which nothing is kept."""

    def write(self, data: bytes | memoryview, /) -> None:
        """Discard data."""

    def flush(self) -> None:
        """There is nothing to flush."""


class AllSelected:
    """All connections with messages or tokens, for runs without a filter: their messages can be lines."""

    def __init__(self) -> None:
        self.connections: list[tuple[Key, int]] = []
        """Both ends and `connection_id` of those that have ended."""

    def ended(self, connection: MessageOwner, decoded: int) -> None:
        """A connection has ended, of which this many bytes were decoded."""
        if decoded:
            self.connections.append((connection.endpoints, connection.identify()))


class Selected:
    """A sink in front of another one that notes whose messages were selected.

    `limit`: the number of messages passed on to `sink`; None: all are.
    """

    def __init__(self, sink: OrderedSink | None, limit: int | None) -> None:
        self._sink = sink
        self._limit = limit
        self._numbers: set[int] = set()
        """Selected connections that have not ended."""
        self.connections: list[tuple[Key, int]] = []
        """Both ends and `connection_id` of selected connections that have ended."""
        self._selected = 0

    @property
    def shown(self) -> int:
        """Messages passed on; without a sink, those selected."""
        return self._selected if self._sink is None else self._sink.shown

    def write(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, Message | SaslToken):
            self._note(event)
        if (sink := self._open_sink()) is not None:
            sink.write(event)

    def write_lines(self, lines: Lines) -> None:
        """Raise AssertionError: the messages of lines are unknown."""
        raise AssertionError(lines)

    def hold(self, request: Message) -> None:
        """Keep the place of a request."""
        if (sink := self._open_sink()) is not None:
            sink.hold(request)

    def decide(self, exchange: int, request: Message | None) -> None:
        """The held request of an exchange is selected, or not if it is None."""
        if request is not None:
            self._note(request)
        if (sink := self._open_sink()) is not None:
            sink.decide(exchange, request)

    def _note(self, event: Message | SaslToken) -> None:
        self._selected += isinstance(event, Message)
        if event.connection is not None:
            self._numbers.add(event.connection)

    def _open_sink(self) -> OrderedSink | None:
        """The sink until the limit is reached."""
        return None if self._limit is not None and self.shown >= self._limit else self._sink

    def ended(self, connection: Connection) -> None:
        """A connection has ended, and all its events were written."""
        if connection.connection in self._numbers:
            self._numbers.remove(connection.connection)
            one, other = sorted((packed(connection.client), packed(connection.broker)))
            self.connections.append(((one, other), connection.connection_id))

    def close(self) -> None:
        """End of events."""
        if self._sink is not None:
            self._sink.close()


def write_selected(
    environment: Environment,
    path: str,
    captures: Sequence[str],
    selected: Selected | AllSelected,
    framing: Mapping[str, Any],
    *,
    catalog: Catalog,
    secrets: bool,
    payload: bool,
    memory: int,
    progress: bool,
) -> Written:
    """Read the captures again, and write. Raises CaptureError, OutputError, Interrupted; then there is no file.

    `framing`: which bytes are messages, as arguments of `Inspector`; `catalog`: names of topics; `secrets`,
    `payload`: what to show of these; `memory`: the budget in bytes.
    """
    from kafkasniff.capture import open_captures
    from kafkasniff.capture.write.capture_writer import CaptureWriter, form_of
    from kafkasniff.capture.write.patched_file import PatchedFile
    from kafkasniff.cli.running.pipeline import BatchParts
    from kafkasniff.cli.running.progress import Progress
    from kafkasniff.kafka.apis.cluster_metadata import TOPIC_NAME
    from kafkasniff.kafka.embedded.internal_topics import INTERNAL_TOPICS
    from kafkasniff.redact.matching import Matching, WantedConnections
    from kafkasniff.redact.message import Blanker

    wanted = WantedConnections()
    for key, identity in selected.connections:
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
