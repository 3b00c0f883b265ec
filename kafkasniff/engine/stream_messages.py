"""Regular messages of the stream engine: exchanges as lines, as columns, or one by one.

Where both messages of an exchange are in one batch, writers of lines and columns read them as they are. The engine
keeps a request that is answered in a later batch, if lines or columns are made; otherwise the request is an event.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import Asked, FollowedConnection, OpenExchange
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.engine.message_table import HEADER, Begun, Collected, Messages, begins_exchange, stops_of
from kafkasniff.engine.roles import client_id_text, distinct, version_of
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import BODY_RATIO, likely_bytes, request_plan, response_plan
from kafkasniff.kafka.messages.rendered import Ahead, BodyMaker
from kafkasniff.kafka.schema.context import BodyWithErrors, DecodeOptions, RenderedBody
from kafkasniff.model import PACKET_NUMBER, Direction, ErrorCode, Message, Problem
from kafkasniff.native.feed import ARENA, ENDED, KEYS, MESSAGE, NONE, REQUEST, SILENT, TAGS, VERSIONS
from kafkasniff.native.streams import StreamEngine

MAX_BEGUN: Final = 16 << 10
MAX_BEGUN_BYTES: Final = 16 << 20
"""Bytes of a request that is kept with its body, and of all of them; larger ones are events."""
HIDDEN: Final = -1
"""Number of an exchange that is counted but not shown; 0: it has no number yet."""
SELECTED, SHOWN, HELD = 1, 2, 4
"""Marks of kept requests: a filter selects it; it has a line, and is kept without its body; unless a filter decides on
it later."""
ORDINAL_BITS: Final = 40
"""Bits of a key for the ordinal of an exchange within its connection. The rest is the index of the connection."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def _keys_of(rows: NDArray[np.void]) -> Ints:
    """The keys of the exchanges of messages (`feed.MESSAGE`)."""
    keys: Ints = (rows["connection"].astype(np.int64) << ORDINAL_BITS) + rows["ordinal"]
    return keys


class HeldExchange(OpenExchange):
    """An exchange that ends with an event, whose request has its line already: a filter decides on it now.

    `row`, `messages`: the request, and those that have its bytes.
    """

    __slots__ = ("messages", "row")

    def __init__(self, number: int, row: np.void, messages: Messages) -> None:
        super().__init__(number)
        self.row = row
        self.messages = messages


class StreamMessages:
    """Which regular messages become lines or columns, and which requests `engine` keeps for that."""

    def __init__(self, state: InspectorState, engine: StreamEngine) -> None:
        self._state = state
        self._engine = engine
        self.pin: Callable[[int, bool], None] | None = None
        """Receives the filter's decision on exchanges that Python reads from now on; None without a filter."""
        self._messages: Messages
        self._begun = np.empty(0, MESSAGE)
        """Requests of this batch that are kept and are not events."""
        self._left: list[tuple[NDArray[np.void], Messages]] = []
        """Kept requests that leave, and where their bytes are."""
        self._waiting: dict[int, tuple[np.void, Messages]] | None = None
        """Both, by key; None: not looked up so far."""
        self._recalled: set[int] = set()
        """Keys of those whose exchange ended with an event."""

    def begin(self, messages: Messages, *, same_batch: bool = False) -> None:
        """The messages of a call of the engine; `same_batch`: of the packets of the last call."""
        if not same_batch:
            self._messages, self._begun, self._left = messages, messages.rows[:0], []
            self._recalled.clear()
        self._left.append((messages.asked, messages))
        self._waiting = None

    # -- lines --------------------------------------------------------------------------------------------------------

    def lines(self, messages: Messages, selected: NDArray[np.uint8] | None) -> tuple[Messages, Bools]:
        """The messages that can have lines; which of `messages` are events instead.

        `selected`: whether a filter selects a request that is answered later, by message: 0, 1, or `HELD`: its response
        decides. Otherwise they are events.
        """
        rows, hides = messages.rows, self._state.detail.hides
        alone, is_request = rows["pair"] == NONE, (rows["flags"] & REQUEST) > 0
        is_ended = (rows["flags"] & ENDED) > 0
        plain = _of_codes(rows, alone & ~is_ended, answers_alone)
        if selected is not None:
            # Exchanges without a response also need an `Exchange`.
            is_held = self._may_be_kept(rows, plain & is_request & (selected == HELD))
            plain &= (~is_request | (selected <= SELECTED) | is_held) & ((rows["flags"] & SILENT) == 0)
        asked = messages.asked.compress((messages.asked["mark"] & SHOWN) > 0)
        answered = asked.compress(asked["pair"] != NONE)
        answers = answered["pair"].astype(np.intp)
        found = plain[answers]
        answered, answers = answered.compress(found), answers[found]
        plain &= is_request
        plain[answers] = True
        hidden = ~alone if hides else np.zeros(len(rows), bool)
        hidden[answers[answered["number"] == HIDDEN]] = True
        begun = np.flatnonzero(plain & is_request)
        over = np.zeros(len(rows), bool)
        if selected is None and is_ended.any():
            # Nothing else is needed of requests that expect no response.
            ends = np.flatnonzero(is_ended)
            keys, own_keys = _keys_of(rows.take(ends)), _keys_of(rows.take(begun))
            over[ends] = np.isin(keys, _keys_of(asked)) | np.isin(keys, own_keys)
            begun = begun[~np.isin(own_keys, keys)]
        if hides:
            hidden[plain & is_request] = True
        own = np.zeros(len(begun), np.uint8) if selected is None else selected[begun]
        self._begun = rows.take(begun)
        self._begun["mark"] = SHOWN | own
        if hides:
            self._begun["number"] = HIDDEN
            self._engine.keep(self._begun, messages.buffer, messages.arena, whole=False)
        if hidden.any():
            self.count_hidden(is_request[hidden])
        is_event = alone & ~(plain | over)
        shown = ~(hidden | is_event | over)
        place = np.cumsum(shown) - 1
        answered, answers = answered.compress(shown[answers]), answers[shown[answers]]
        own, begun = own[shown[begun]], begun[shown[begun]]
        left = messages.only(shown).with_requests(answered, place[answers])
        return left._replace(lines=Begun(place[begun], own)), is_event

    def count_hidden(self, is_request: Bools) -> None:
        """Count messages that are not shown."""
        left_out, requests = self._state.detail.left_out, int(np.count_nonzero(is_request))
        left_out.requests += requests
        left_out.responses += len(is_request) - requests

    # -- columns ------------------------------------------------------------------------------------------------------

    def whole(self, messages: Messages, takes: Callable[[int], bool] | None) -> tuple[Messages, Bools]:
        """The messages of whole exchanges, with their requests of earlier batches; which of `messages` are events.

        `takes`: whether exchanges of a version of an API, by its code, become columns. Requests of such exchanges are
        among the messages even if they are answered later. None: there are no columns.
        """
        rows = messages.rows
        alone, is_request = rows["pair"] == NONE, (rows["flags"] & REQUEST) > 0
        if self._state.detail.hides:
            self.count_hidden(is_request[~alone])
            return messages.only(np.zeros(len(rows), bool)), alone
        if takes is None:
            return messages.only(~alone), alone
        is_event = alone.copy()
        # Requests that expect no response are events, and so are their ends.
        begun = alone & is_request & ((rows["flags"] & (SILENT | ENDED)) == 0)
        begun = _of_codes(rows, begun, lambda code: answers_alone(code) and takes(code))
        begun = self._may_be_kept(rows, begun)
        self._begun = rows.compress(begun)
        is_event &= ~begun
        asked = messages.asked
        asked = asked.compress((asked["pair"] != NONE) & ((asked["mark"] & SHOWN) == 0))
        answers = asked["pair"].astype(np.intp)
        is_event[answers] = False
        place = np.cumsum(~is_event) - 1
        return messages.only(~is_event).with_requests(asked, place[answers]), is_event

    def _may_be_kept(self, rows: NDArray[np.void], requests: Bools) -> Bools:
        """Which of these requests may be kept with their bodies."""
        requests = requests & (rows["size"] <= MAX_BEGUN)
        sizes = np.cumsum(np.where(requests, rows["size"], 0), dtype=np.int64)
        found: Bools = requests & (sizes + self._engine.kept <= MAX_BEGUN_BYTES)
        return found

    # -- numbers ------------------------------------------------------------------------------------------------------

    def numbered(self, collected: Collected) -> Collected:
        """The same, with numbers for the exchanges that begin with events and with messages, in their order.

        Requests that are kept keep their numbers.
        """
        keyed, messages = collected.keyed, collected.messages
        keyed.sort()
        pinned: set[int] = set()
        stops = [0] * len(keyed)
        asked = np.empty(0, np.intp)
        if messages is not None:
            rows = messages.rows
            here = rows[: messages.here]
            stops = stops_of(here, messages.owners, keyed)
            asked = np.flatnonzero((here["flags"] & REQUEST) > 0)
            begun = messages.begun
            is_over = np.array([key in self._recalled for key in _keys_of(rows.take(begun)).tolist()], np.bool_)
            is_held = (self._begun["mark"].compress(is_over) & HELD).astype(np.bool_).tolist()
            opened = [
                self._open(rows[index], messages, is_held=held)
                for index, held in zip(begun[is_over].tolist(), is_held, strict=True)
            ]
        begins = [
            index
            for index, (_, _, _, connection, event) in enumerate(keyed)
            if begins_exchange(event) and event.ordinal not in connection.exchanges
        ]
        between = np.array([stops[index] for index in begins], np.int64)
        first = self._state.exchanges + 1
        numbers = first + np.arange(len(begins)) + np.searchsorted(asked, between)
        for place, number in zip(begins, numbers.tolist(), strict=True):
            keyed[place][3].exchanges[keyed[place][4].ordinal] = OpenExchange(number)
        self._state.exchanges += len(asked) + len(begins)
        if messages is None:
            return collected._replace(stops=stops)
        rows["number"][asked] = first + np.arange(len(asked)) + np.searchsorted(between, asked, side="right")
        answers = np.flatnonzero((rows["flags"] & REQUEST == 0) & (rows["pair"] != NONE))
        rows["number"][answers] = rows["number"][rows["pair"][answers]]
        if len(begun):
            self._begun["number"] = rows["number"][begun]
            is_whole = (self._begun["mark"] & (SHOWN | HELD)) != SHOWN
            for whole in (False, True):
                kept = self._begun.compress(is_whole == whole)
                self._engine.keep(kept, messages.buffer, messages.arena, whole=whole)
        for exchange, row in zip(opened, self._begun.compress(is_over), strict=True) if len(begun) else ():
            exchange.number = int(row["number"])
            if row["mark"] & SHOWN and not row["mark"] & HELD and self.pin is not None:
                self.pin(exchange.number, bool(row["mark"] & SELECTED))
                pinned.add(exchange.number)
        return collected._replace(stops=stops, pinned=frozenset(pinned))

    @staticmethod
    def _open(row: np.void, messages: Messages, *, is_held: bool) -> OpenExchange:
        """The exchange of a request that ends with an event of the same batch."""
        version = version_of(int(row["code"]))
        exchange = HeldExchange(0, row, messages) if is_held else OpenExchange(0)
        messages.owner(row).exchanges[int(row["ordinal"])] = exchange
        exchange.api, exchange.api_version = version.api, version.version
        exchange.correlation_id = int(row["correlation"])
        return exchange

    # -- exchanges that end otherwise ---------------------------------------------------------------------------------

    def take_asked(self, connection: FollowedConnection, ordinal: int) -> Asked | tuple[np.void, Messages] | None:
        """The request of an exchange that ends with an event, if the request was none.

        With its body it is a regular message, with those that have its bytes.
        """
        if self._waiting is None:
            self._waiting = {}
            for rows, messages in (*self._left, (self._begun, self._messages)):
                for key, row in zip(_keys_of(rows).tolist(), rows, strict=True):
                    if key not in self._recalled:
                        self._waiting[key] = row, messages
        key = (connection.slot << ORDINAL_BITS) + ordinal
        found = self._waiting.pop(key, None)
        if found is None:
            return None
        self._recalled.add(key)
        row, messages = found
        number, shown = int(row["number"]), bool(row["mark"] & SHOWN)
        exchange = HeldExchange(number, row, messages) if row["mark"] & HELD else OpenExchange(number)
        if number > 0:
            connection.exchanges[ordinal] = exchange
        if not shown:
            return found
        version, correlation_id = version_of(int(row["code"])), int(row["correlation"])
        exchange.api, exchange.api_version, exchange.correlation_id = version.api, version.version, correlation_id
        if number > 0 and not row["mark"] & HELD and self.pin is not None:
            self.pin(number, bool(row["mark"] & SELECTED))
        client_id, time_ns = messages.client_id_of(row), int(row["time"])
        return Asked(version.key, version.version, correlation_id, client_id, time_ns, None, number == HIDDEN)


def _of_codes(rows: NDArray[np.void], chosen: Bools, wanted: Callable[[int], bool]) -> Bools:
    """Which of the chosen messages have a wanted version of an API."""
    codes = rows["code"].astype(np.int64)
    known = np.zeros(KEYS * VERSIONS, bool)
    if chosen.any():
        known[[code for code in distinct(codes[chosen]) if wanted(code)]] = True
    of: Bools = chosen & known[codes]
    return of


@functools.cache  # bounded by the number of codes
def answers_alone(code: int) -> bool:
    """Whether decoding responses needs only their bytes."""
    key, version = divmod(code, VERSIONS)
    return request_plan(key, version).alone and response_plan(key, version).alone


# -- messages as objects -----------------------------------------------------------------------------------------------


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
