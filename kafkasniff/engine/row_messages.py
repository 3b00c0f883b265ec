"""Messages of rows as objects, each made when it is due, with the values that the kernel has read from them.

They are those of `decode_request` and `decode_response`, which are called if there is more to report than a body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.message_table import HEADER, Messages
from kafkasniff.engine.roles import client_id_text, distinct, version_of
from kafkasniff.engine.stream_messages import HELD
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import BODY_RATIO, likely_bytes
from kafkasniff.kafka.messages.rendered import Ahead, BodyMaker
from kafkasniff.kafka.schema.context import BodyWithErrors, DecodeOptions, RenderedBody
from kafkasniff.model import PACKET_NUMBER, Direction, ErrorCode, Message, Problem
from kafkasniff.native.feed import ARENA, KEYS, MESSAGE, NONE, REQUEST, TAGS, VERSIONS

ENTRIES_AT_ONCE: Final = 1024
"""Number of rows whose columns are converted to lists at a time."""
_FIELDS: Final = (
    *("pair", "connection", "ordinal", "start", "size", "client_id", "correlation", "packet", "time", "code"),
    *("latency", "duration", "first_packet", "last_packet", "flags", "retransmits", "number", "behind", "muted"),
)
_VALUES: Final = itemgetter(*((MESSAGE.names or ()).index(name) for name in _FIELDS))
MessageRow = tuple[Any, ...]
"""Index of a message, and its `_FIELDS`."""


class AnsweredRequest(msgspec.Struct, frozen=True):
    """What a response needs of its request."""

    client_id: str | bytes | None
    carry: object = None
    """The context for decoding the response."""
    message: Message | None = None
    """The request, if an `Exchange` is to be emitted."""


class _Store:
    """Bytes of messages, and the bodies that are decoded ahead."""

    __slots__ = ("ahead", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ahead: Ahead | None = None


class RowMessages:
    """The messages of a batch, or those at `index`, as objects.

    Rows become tuples a few at a time: a tuple takes many times the memory of a row, and Python's cycle collector
    traverses all existing ones. `maker`: decodes bodies, a few at a time.
    """

    def __init__(
        self,
        messages: Messages,
        options: DecodeOptions,
        maker: BodyMaker | None = None,
        index: NDArray[np.intp] | None = None,
    ) -> None:
        self.messages = messages
        rows = messages.rows
        self._index = np.arange(len(rows)) if index is None else index
        self._options = options
        self._stores = _Store(messages.buffer), _Store(messages.arena)
        self._asked: dict[int, AnsweredRequest] = {}
        """Requests whose response is not made yet, by message index."""
        if index is not None and maker is not None and maker.use(options):
            in_arena = rows["flags"][index] & ARENA > 0
            for store, mine in zip(self._stores, (~in_arena, in_arena), strict=True):
                if mine.any():
                    store.ahead = _ahead(maker, rows, index[mine], store.data)

    def __iter__(self) -> Iterator[MessageRow]:
        """The rows, each created when requested."""
        for first in range(0, len(self._index), ENTRIES_AT_ONCE):
            index = self._index[first : first + ENTRIES_AT_ONCE]
            rows = self.messages.rows.take(index)
            yield from zip(index.tolist(), *(rows[name].tolist() for name in _FIELDS), strict=True)

    def row(self, index: int) -> MessageRow:
        """One row."""
        return index, *_VALUES(self.messages.rows[index].item())

    def recall(self, pair: int, capture_of: Callable[[int], str | None]) -> None:
        """Keep the request of a response, if it came in an earlier batch and has its line already."""
        if pair != NONE and pair >= self.messages.here and self.messages.rows["mark"][pair] & HELD:
            row = self.row(pair)
            self.message(row, capture_of(row[8]), (), keeps=True)

    def message(
        self, row: MessageRow, capture: str | None, problems: tuple[Problem, ...], *, keeps: bool
    ) -> tuple[Message, AnsweredRequest | None, int]:
        """The message of a row; for a response, its request; the approximate bytes of memory that it adds. Hot.

        `problems`: in addition to its own; `keeps`: keep requests for their responses.
        """
        # fmt: off
        (
            index, pair, connection, _, start, size, length, correlation_id, _, time_ns, code,
            latency, duration, first_packet, last_packet, flags, _, number, _, _,
        ) = row
        # fmt: on
        owner, store, version = self.messages.owners[connection], self._stores[(flags & ARENA) > 0], version_of(code)
        assert owner is not None
        options, data, end = self._options, store.data, start + size
        kind: Direction
        header: dict[str, Any]
        asked: AnsweredRequest | None = None
        if flags & REQUEST:
            kind = "request"
            client_id = None if length < 0 else client_id_text(data[start + HEADER : start + HEADER + length])
            header = {
                "request_api_key": version.key,
                "request_api_version": version.version,
                "correlation_id": correlation_id,
            }
            if version.request.header:
                header["client_id"] = client_id
            is_plain = client_id.__class__ is not bytes
            latency = duration = None
        else:
            kind, header = "response", {"correlation_id": correlation_id}
            asked = self._asked.pop(pair, None)
            if asked is None:
                asked = AnsweredRequest(self.messages.client_id(index))
            client_id = asked.client_id
            is_plain = not (version.flexible_response and (size < 5 or data[start + 4]))
        body: Any = None
        errors: tuple[ErrorCode, ...] | None = None
        if store.ahead is not None and is_plain:
            body = store.ahead.take(index)
            if body is not None:
                errors = body.errors if body.__class__ in {RenderedBody, BodyWithErrors} else ()
            if body.__class__ is BodyWithErrors:
                body = body.body
        is_ahead = body is not None
        place = (
            number,
            owner.number,
            capture,
            time_ns,
            owner.client,
            owner.broker,
            first_packet & PACKET_NUMBER,
            last_packet & PACKET_NUMBER,
            latency,
            duration,
        )
        carry: object = None
        if errors is None:
            if asked is None:
                decoded = decode_request(data, start, end, options, memory=owner.message_memory)
                client_id, carry = decoded.client_id, decoded.carry
            else:
                decoded = decode_response(
                    data,
                    start,
                    end,
                    version.key,
                    version.version,
                    options,
                    memory=owner.message_memory,
                    request=asked.carry,
                )
            message = decoded_message(kind, size, decoded, client_id, decoded.problems, place)
        else:
            # By position, in the order of `model.Message`, which takes half the time.
            message = Message(
                kind,
                size,
                correlation_id,
                version.key,
                version.api,
                version.version,
                client_id,
                header,
                (),
                body,
                None,
                None,
                None,
                errors,
                (),
                *place,
            )
        if problems:
            message = msgspec.structs.replace(message, problems=(*problems, *message.problems))
        plan = version.response
        if asked is None:
            plan = version.request
            self._asked[index] = AnsweredRequest(client_id, carry, message if keeps else None)
        weight = 0
        if not is_ahead:
            weight = likely_bytes(version.key, kind, size, message.body) if plan.has_records else size * BODY_RATIO
        if store.ahead is not None:
            weight += store.ahead.memory
            store.ahead.memory = 0
        return message, asked, weight


def decoded_message(  # noqa: PLR0917 - called in the hot path
    kind: Direction,
    size: int,
    decoded: Decoded,
    client_id: str | bytes | None,
    problems: tuple[Problem, ...],
    place: tuple[Any, ...],
) -> Message:
    """The message of a decoded frame; `place`: its last fields, from `exchange` on. Hot."""
    return Message(
        kind,
        size,
        decoded.correlation_id,
        decoded.api_key,
        decoded.api,
        decoded.api_version,
        client_id,
        decoded.header,
        decoded.header_tags,
        decoded.body,
        decoded.body_version,
        decoded.raw,
        decoded.raw_redacted,
        decoded.errors,
        problems,
        *place,
    )


def _ahead(maker: BodyMaker, rows: NDArray[np.void], index: NDArray[np.intp], buffer: bytes) -> Ahead:
    """The bodies of these messages, which are emitted in this order."""
    programs = np.zeros((2, KEYS * VERSIONS), np.uint64)
    for code in distinct(rows["code"][index].astype(np.int64)):
        key, version = divmod(code, VERSIONS)
        for row, direction in enumerate(("response", "request")):
            program = maker.program(key, version, direction)  # type: ignore[arg-type]
            programs[row, code] = 0 if program is None else program.address
    flags = rows["flags"]
    chosen = np.where(flags & TAGS, 0, programs[flags & REQUEST, rows["code"]]).astype(np.uint64)
    start = rows["start"].astype(np.int64)
    return Ahead(maker, buffer, chosen, start, start + rows["body"], start + rows["size"], index)
