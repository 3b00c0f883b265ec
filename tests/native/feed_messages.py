"""Messages as `kernel/feed.zig` has them, made by Python of what an `Inspector` yields: the input of native lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.accounts import InspectedConnection
from kafkasniff.inspector import Inspector
from kafkasniff.kafka.events import MessageEvent
from kafkasniff.kafka.message import request_header
from kafkasniff.kafka.message_plan import response_plan
from kafkasniff.model import Message
from kafkasniff.native.lines import EARLIER, KEYS, VERSIONS
from kafkasniff.packets import PacketBatch

NONE: Final = 0xFFFF_FFFF
REQUEST, ARENA, TAGS = 1, 2, 4
MESSAGE: Final = np.dtype(
    [
        *((name, np.int64) for name in ("order", "start", "first_packet", "last_packet", "packet", "time")),
        *((name, np.int64) for name in ("latency", "duration", "ordinal")),
        *((name, np.uint32) for name in ("connection", "size", "pair")),
        ("correlation", np.int32),
        ("body", np.uint32),
        ("code", np.uint16),
        ("client_id", np.int16),
        ("step", np.uint32),
        ("flags", np.uint8),
        ("spare", np.uint8),
        ("spares", np.uint16),
    ]
)
"""`feed.Message`."""


class Seen(NamedTuple):
    """A message as Python has it, and where it was."""

    event: MessageEvent
    message: Message
    connection: InspectedConnection

    @property
    def data(self) -> bytes:
        frame = self.event.frame
        return frame.data[frame.start : frame.end]


class Recorder(Inspector):
    """An inspector that keeps what it yields; nothing is taken in bulk."""

    _in_bulk = False

    def __init__(self, **options: Any) -> None:
        super().__init__(exchanges=False, **options)
        self.seen: list[Seen] = []

    def _message(self, connection: InspectedConnection, event: MessageEvent, out: list[Any]) -> None:
        super()._message(connection, event, out)
        self.seen.append(Seen(event, out[-1], connection))


def recorded(batches: Iterable[PacketBatch], **options: Any) -> tuple[Recorder, list[Seen]]:
    """The messages of packets that the feed could have yielded, and who read them."""
    recorder = Recorder(**options)
    for one in batches:
        for _ in recorder.feed_slices(one):
            pass
    for _ in recorder.close_slices():
        pass
    return recorder, [one for one in recorder.seen if _is_plain(one)]


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
    numbers: NDArray[np.int64]
    buffer: NDArray[np.uint8]
    arena: NDArray[np.uint8]
    earlier: NDArray[np.void]
    kept: list[bytes]
    """What `earlier` has the addresses of."""


def batches(seen: list[Seen], size: int, *, tells_earlier: bool = True) -> Iterator[Batch]:
    """The messages, so many at a time; their bytes are in buffer and arena in turn.

    `tells_earlier`: requests of earlier batches are known.
    """
    client_ids: dict[int | None, bytes | None] = {}
    for first in range(0, len(seen), size):
        yield _batch(seen[first : first + size], client_ids, tells_earlier=tells_earlier)


def _batch(seen: list[Seen], client_ids: dict[int | None, bytes | None], *, tells_earlier: bool) -> Batch:
    messages = np.zeros(len(seen), MESSAGE)
    stores = bytearray(b"#"), bytearray(b"##")
    asked: dict[int | None, int] = {}
    kept: list[bytes] = []
    earlier: list[tuple[int, int, int]] = []
    for index, (one, row) in enumerate(zip(seen, messages, strict=True)):
        event, message, data = one.event, one.message, one.data
        frame = event.frame
        store = index % 2
        assert message.api_key is not None
        assert message.api_version is not None
        row["order"], row["first_packet"], row["last_packet"] = frame.order, frame.first_packet, frame.last_packet
        row["packet"], row["time"], row["ordinal"] = frame.last_seen, frame.time_ns, event.ordinal
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
                client_id = client_ids[message.exchange]
                kept.append(client_id or b"")
                earlier.append((index, -1 if client_id is None else len(client_id), address(kept[-1])))
        row["flags"] = flags
        stores[store].extend(data + b"#")
    numbers = np.array([one.message.exchange for one in seen], np.int64)
    buffer, arena = (np.frombuffer(bytes(store), np.uint8) for store in stores)
    return Batch(seen, messages, numbers, buffer, arena, np.array(earlier, EARLIER), kept)


def address(data: bytes) -> int:
    """Where bytes are."""
    return np.frombuffer(data, np.uint8).ctypes.data if data else 0
