"""Messages as `kernel/feed.zig` has them, made by Python of what an `Inspector` yields: the input of native lines."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import MessageOwner
from kafkasniff.engine.message_table import HEADER
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import reads_nothing
from kafkasniff.kafka.connection.detail import Detail
from kafkasniff.kafka.connection.events import MessageEvent
from kafkasniff.kafka.connection.framing import Frame
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.messages.message_header import request_header
from kafkasniff.kafka.messages.message_plan import response_plan
from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Endpoint, Message
from kafkasniff.native import kernel
from kafkasniff.native.feed import ARENA, KEYS, MESSAGE, NONE, REQUEST, TAGS, VERSIONS
from kafkasniff.native.lines import LineBatch
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.jsonl import BytesForm, JsonSink
from kafkasniff.sinks.native_lines import NativeLines
from kafkasniff.tcp.packets import PacketBatch
from tests.oracle.inspector import ByPython


class Side(NamedTuple):
    """What lines say of a connection."""

    number: int
    client: Endpoint | None
    broker: Endpoint | None


class Seen(NamedTuple):
    """A message as Python has it, and where it was."""

    event: MessageEvent
    message: Message
    connection: Side

    @property
    def data(self) -> bytes:
        frame = self.event.frame
        return frame.data[frame.start : frame.end]


class Recorder(ByPython):
    """An inspector that keeps what it yields; nothing is taken in bulk."""

    def __init__(self, **options: Any) -> None:
        super().__init__(exchanges=False, **options)
        self.seen: list[Seen] = []
        self.reported: list[Any] = []
        """All that it yields, in order."""
        emit = self._emitter.emit_message

        def seen(connection: MessageOwner, event: MessageEvent, out: list[Any], *begun: Any) -> None:
            emit(connection, event, out, *begun)
            side = Side(connection.number, connection.client, connection.broker)
            self.seen.append(Seen(event, out[-1], side))

        self._emitter.emit_message = seen  # type: ignore[method-assign]


def recorded(batches: Iterable[PacketBatch], **options: Any) -> tuple[Recorder, list[Seen]]:
    """The messages of packets that the feed could have yielded, and who read them."""
    recorder = Recorder(**options)
    for one in batches:
        for events in recorder.feed_slices(one):
            recorder.reported += events
    for events in recorder.close_slices():
        recorder.reported += events
    return recorder, [one for one in recorder.seen if _is_plain(one)]


def crafted(data: bytes, kind: tuple[int, int] | None, options: DecodeOptions) -> Seen | None:
    """A message that was not captured: a request, or the response to one of this key and version (`kind`).

    None where the feed would not take it.
    """
    side = Side(1, Endpoint("192.0.2.1", 40_000), Endpoint("2001:db8::2", 9092))
    if kind is None:
        decoded = decode_request(data, 0, len(data), options)
    else:
        decoded = decode_response(data, 0, len(data), *kind, options)
    frame = Frame(5, 0, data, 0, len(data), len(data), 3, 4, 0, 1_000_000_000, 5)
    latency = None if kind is None else 1_234_567
    client_id = decoded.client_id if kind is None else "client"
    event = MessageEvent(5, 0, frame, kind is None, decoded, client_id, (), latency, latency)
    message = Message(
        type="request" if kind is None else "response",
        size=len(data),
        correlation_id=decoded.correlation_id,
        api_key=decoded.api_key,
        api=decoded.api,
        api_version=decoded.api_version,
        client_id=client_id,
        header_tags=decoded.header_tags,
        body=decoded.body,
        body_version=decoded.body_version,
        raw=decoded.raw,
        raw_redacted=decoded.raw_redacted,
        errors=decoded.errors,
        problems=decoded.problems,
        exchange=7,
        connection=1,
        capture="capture",
        time_ns=frame.time_ns,
        client=side.client,
        broker=side.broker,
        first_packet=3,
        last_packet=4,
        latency_ns=latency,
        duration_ns=latency,
    )
    one = Seen(event, message, side)
    return one if _is_plain(one) else None


def _is_plain(one: Seen) -> bool:
    """Whether the feed takes such a message: its frame is whole, and its header like most."""
    event, message = one.event, one.message
    if event.problems or event.frame.size != len(one.data) or message.time_ns is None:
        return False
    if message.api_key is None or message.api_version is None or message.correlation_id is None:
        return False
    if not (message.api_key < KEYS and 0 <= message.api_version < VERSIONS):
        return False
    if event.is_request:
        header = request_header(one.data, 0, len(one.data))
        return header is not None and not message.header_tags
    return event.latency_ns is not None and event.duration_ns is not None


class Batch(NamedTuple):
    """Messages as the kernel takes them."""

    seen: list[Seen]
    messages: NDArray[np.void]
    buffer: NDArray[np.uint8]
    arena: NDArray[np.uint8]


def batches(
    seen: list[Seen], size: int, *, tells_earlier: bool = True, client_ids: dict[int | None, bytes | None] | None = None
) -> Iterator[Batch]:
    """The messages, in groups of this size; their bytes are in buffer and arena in turn.

    `tells_earlier`: requests of earlier batches are known; `client_ids`: of exchanges before these.
    """
    client_ids = {} if client_ids is None else client_ids
    for first in range(0, len(seen), size):
        yield _batch(seen[first : first + size], client_ids, tells_earlier=tells_earlier)


def _batch(seen: list[Seen], client_ids: dict[int | None, bytes | None], *, tells_earlier: bool) -> Batch:
    messages = np.zeros(len(seen), MESSAGE)
    stores = bytearray(b"#"), bytearray(b"##")
    asked: dict[int | None, int] = {}
    earlier: list[tuple[int, bytes | None]] = []
    for index, (one, row) in enumerate(zip(seen, messages, strict=True)):
        event, message, data = one.event, one.message, one.data
        frame = event.frame
        store = index % 2
        assert message.api_key is not None
        assert message.api_version is not None
        row["order"], row["first_packet"], row["last_packet"] = frame.order, frame.first_packet, frame.last_packet
        row["packet"], row["time"], row["ordinal"] = frame.last_seen, frame.time_ns, event.ordinal
        row["first_time"] = frame.first_time
        row["connection"] = one.connection.number
        row["start"], row["size"] = len(stores[store]), len(data)
        row["code"] = message.api_key * VERSIONS + message.api_version
        row["correlation"] = message.correlation_id
        row["pair"], row["client_id"] = NONE, -1
        flags = ARENA * store
        if event.is_request:
            header = request_header(data, 0, len(data))
            assert header is not None
            length = int.from_bytes(data[8:10], "big", signed=True) if header.length > 8 else -1
            row["body"], row["client_id"] = header.length, length
            asked[message.exchange] = index
            client_ids[message.exchange] = None if length < 0 else data[10 : 10 + length]
            flags |= REQUEST
        else:
            tagged = response_plan(message.api_key, message.api_version).header > 0
            row["body"] = 4 + tagged
            row["latency"], row["duration"] = event.latency_ns, event.duration_ns
            flags |= TAGS * (tagged and data[4:5] != b"\0")
            pair = asked.get(message.exchange)
            if pair is not None:
                row["pair"], messages[pair]["pair"] = pair, index
            elif tells_earlier and message.exchange in client_ids:
                earlier.append((index, client_ids[message.exchange]))
        row["flags"], row["number"] = flags, message.exchange
        stores[store].extend(data + b"#")
    requests = np.zeros(len(earlier), MESSAGE)
    for place, ((index, client_id), row) in enumerate(zip(earlier, requests, strict=True)):
        messages[index]["pair"] = len(messages) + place
        header = bytes(HEADER) + (client_id or b"")
        row["start"], row["size"], row["flags"] = len(stores[1]), len(header), REQUEST | ARENA
        row["pair"], row["client_id"] = index, -1 if client_id is None else len(client_id)
        stores[1].extend(header)
    buffer, arena = (np.frombuffer(bytes(store), np.uint8) for store in stores)
    return Batch(seen, np.concatenate((messages, requests)), buffer, arena)


class Native:
    """Lines of recorded messages."""

    def __init__(
        self,
        sides: Iterable[Side],
        captures: Sequence[str],
        options: DecodeOptions,
        form: BytesForm = "auto",
        payload: Payload = SHOWN,
        **more: Any,
    ) -> None:
        by_number = {side.number: side for side in sides}
        self.renderer = Renderer(kernel(), form, reads_nothing, payload.hiding)
        self.enricher = Enricher(sessions=False)
        self.problems = 0
        """Problems of bodies whose lines were taken."""
        ends = by_number.__getitem__
        self.lines = NativeLines(kernel(), self.renderer, ends, captures.__getitem__, self.enricher, **more)
        self.lines.use(Detail(options))

    @classmethod
    def after(cls, recorder: Recorder, form: BytesForm = "auto", payload: Payload = SHOWN, **more: Any) -> Native:
        """The recorded messages."""
        sides = (one.connection for one in recorder.seen)
        return cls(sides, recorder._state.captures, recorder.decode_options, form, payload, **more)

    @property
    def call(self) -> int:
        """Address of what the kernel is called with."""
        assert self.lines._way is not None
        return ctypes.addressof(self.lines._way.lines._lines)

    def of(self, batch: Batch) -> list[bytes | int]:
        """Pieces of a batch."""
        self.lines.bind(LineBatch(batch.messages, len(batch.seen), batch.buffer, batch.arena))
        return self.take(0, len(batch.seen))

    def take(self, first: int, last: int) -> list[bytes | int]:
        """Pieces of a part of it."""
        found: list[bytes | int] = []
        for piece in self.lines.take(first, last):
            if isinstance(piece, int):
                found.append(piece)
            else:
                data = bytes(piece.data)
                assert piece.count == data.count(b"\n")
                self.problems += piece.problems
                found.append(data)
        return found


def named_by(enricher: Enricher, message: Message) -> Message | None:
    """The message with what an enricher adds; None where it learns or reports something."""
    if not isinstance(message.body, dict) or message.api_key is None:
        return message
    body = deepcopy(message.body)
    problems = enricher.name_body(message.api_key, message.api_version, message.type, body)
    used = bool(enricher.catalog.topics_learned or problems)
    return None if used else msgspec.structs.replace(message, body=body)


def by_sink(batch: Batch, form: BytesForm = "auto", payload: Payload = SHOWN, **more: Any) -> list[bytes]:
    """The lines of a batch the way of the specification."""
    found = []
    for one in batch.seen:
        out = io.BytesIO()
        sink = JsonSink(out, form=form, payload=payload, **more)
        message = named_by(Enricher(sessions=False), one.message) or one.message
        sink.write(message)
        sink.close()
        found.append(out.getvalue())
    return found
