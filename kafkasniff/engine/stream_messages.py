"""Regular messages of the stream engine: exchanges as lines, as columns, or one by one.

Where both messages of an exchange are in one batch, writers of lines and columns read them as they are. A request that
is answered in a later batch waits as a column, if lines or columns are made; otherwise it is an event.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import OpenExchange
from kafkasniff.engine.followed import Asked, FollowedConnection
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.engine.ordered_events import Keyed, begins_exchange
from kafkasniff.engine.outstanding import HIDDEN, ORDINAL_BITS, ROW, BegunRequests, OutstandingRequests, keys_of
from kafkasniff.engine.paired import until
from kafkasniff.engine.regular_messages import HEADER, Edges, Messages
from kafkasniff.engine.versions import distinct, version_of
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.native.feed import ARENA, ENDED, KEYS, NONE, REQUEST, SILENT, VERSIONS
from kafkasniff.native.rows import joined

__all__ = ["StreamMessages"]

MAX_BEGUN: Final = 16 << 10
MAX_BEGUN_BYTES: Final = 16 << 20
"""Bytes of a request that waits as a column with its body, and of all of them; larger ones are events."""

Bools = NDArray[np.bool_]


class StreamMessages:
    """Which regular messages become lines or columns, and the requests that wait as columns."""

    def __init__(self, state: InspectorState) -> None:
        self._state = state
        self.outstanding = OutstandingRequests()
        """Requests that have lines."""
        self.begun = BegunRequests()
        """Requests with their bodies, of exchanges that become columns."""
        self.pin: Callable[[int, bool], None] | None = None
        """Receives the filter's decision on exchanges that Python reads from now on; None without a filter."""

    @property
    def memory(self) -> int:
        """Approximate bytes of memory of the requests that wait."""
        return self.outstanding.memory + self.begun.memory

    # -- lines --------------------------------------------------------------------------------------------------------

    def lines(self, messages: Messages, selected: NDArray[np.uint8] | None) -> tuple[Messages, Edges, Bools]:
        """The messages that can have lines; their edges; which of `messages` are events instead.

        `selected`: whether a filter selects a request that is answered later, by message. Above 1 the decision is open:
        such requests and their responses are events.
        """
        rows, hides = messages.rows, self._state.detail.hides
        alone, is_request = rows["pair"] == NONE, (rows["flags"] & REQUEST) > 0
        is_ended = (rows["flags"] & ENDED) > 0
        plain = _of_codes(rows, alone & ~is_ended, answers_alone)
        if selected is not None:
            # Exchanges without a response also need an `Exchange`.
            plain &= (~is_request | (selected <= 1)) & ((rows["flags"] & SILENT) == 0)
        answers = np.flatnonzero(plain & ~is_request)
        found, answered = self.outstanding.take(keys_of(rows.take(answers)))
        plain[answers[~found]] = False
        answers = answers[found]
        hidden = ~alone if hides else np.zeros(len(rows), bool)
        hidden[answers[answered["number"] == HIDDEN]] = True
        begun = np.flatnonzero(plain & is_request)
        if hides:
            hidden[begun] = True
        over = np.zeros(len(rows), bool)
        if selected is None and is_ended.any():
            begun = self._end_silent(rows, begun, over)
        own = np.zeros(len(begun), np.uint8) if selected is None else selected[begun]
        self._begin(messages, begun, own)
        if hidden.any():
            self.count_hidden(is_request[hidden])
        is_event = alone & ~(plain | over)
        shown = ~(hidden | is_event | over)
        place = np.cumsum(shown) - 1
        kept = shown[answers]
        answered, answers = answered[kept], place[answers[kept]]
        kept = shown[begun]
        own, begun = own[kept], place[begun[kept]]
        left = rows.compress(shown)
        whole = left["pair"] != NONE
        left["pair"][whole] = place[left["pair"][whole]]
        edges = Edges(plain[shown], begun, own, answers, answered)
        return messages._replace(rows=left), edges, is_event

    def _end_silent(self, rows: NDArray[np.void], begun: NDArray[np.intp], over: Bools) -> NDArray[np.intp]:
        """Remove exchanges that had no response; returns those of `begun` that are not among them.

        `over`: set for the ends of these, which need nothing else.
        """
        ends = np.flatnonzero((rows["flags"] & ENDED) > 0)
        keys, asked = keys_of(rows.take(ends)), keys_of(rows.take(begun))
        over[ends] = self.outstanding.drop(keys) | np.isin(keys, asked)
        return begun[~np.isin(asked, keys)]

    def _begin(self, messages: Messages, begun: NDArray[np.intp], selected: NDArray[np.uint8]) -> None:
        """Store these requests until their responses arrive."""
        if not len(begun):
            return
        rows = messages.rows.take(begun)
        buffer, arena = messages.buffer, messages.arena
        starts = (rows["start"] + np.uint64(HEADER)).tolist()
        columns = (starts, rows["client_id"].tolist(), (rows["flags"] & ARENA).tolist())
        ids = [
            None if size < 0 else (arena if place else buffer)[start : start + size]
            for start, size, place in zip(*columns, strict=True)
        ]
        made = np.zeros(len(rows), ROW)
        for name in ("first_time", "time", "ordinal", "correlation", "code"):
            made[name] = rows[name]
        made["client_id"], made["selected"] = self.outstanding.indices(ids), selected
        made["number"] = HIDDEN if self._state.detail.hides else 0
        self.outstanding.add(keys_of(rows), made)

    def count_hidden(self, is_request: Bools) -> None:
        """Count messages that are not shown."""
        left_out, requests = self._state.detail.left_out, int(np.count_nonzero(is_request))
        left_out.requests += requests
        left_out.responses += len(is_request) - requests

    # -- columns ------------------------------------------------------------------------------------------------------

    def whole(self, messages: Messages, takes: Callable[[int], bool]) -> tuple[Messages, Bools]:
        """The messages, with requests of earlier batches that are answered now, and which of them are events.

        `takes`: whether exchanges of a version of an API, by its code, become columns.
        """
        rows = messages.rows
        alone, is_request = rows["pair"] == NONE, (rows["flags"] & REQUEST) > 0
        is_event = alone.copy()
        # Requests that expect no response are events, and so are their ends.
        alone &= (rows["flags"] & (SILENT | ENDED)) == 0
        answers = np.flatnonzero(alone & ~is_request)
        found, asked = self.begun.take(keys_of(rows.take(answers)))
        begun = alone & is_request & (rows["size"] <= MAX_BEGUN)
        begun = _of_codes(rows, begun, lambda code: answers_alone(code) and takes(code))
        sizes = np.cumsum(np.where(begun, rows["size"], 0), dtype=np.int64)
        begun &= sizes + len(self.begun.data) <= MAX_BEGUN_BYTES
        before = self.begun.data
        self.begun.add(rows.compress(begun), messages.buffer, messages.arena)
        is_event &= ~begun
        if not len(asked):
            return messages, is_event
        answers = answers[found]
        is_event[answers] = False
        asked["start"] += np.uint64(len(messages.arena))
        asked["pair"] = answers
        rows["pair"][answers] = len(rows) + np.arange(len(asked))
        is_event = np.append(is_event, np.zeros(len(asked), np.bool_))
        return messages._replace(rows=joined((rows, asked)), arena=messages.arena + before), is_event

    def number(self, keyed: Sequence[Keyed], messages: Messages, is_event: Bools) -> None:
        """Number the exchanges that begin with these sorted events, and with the messages that are not events.

        In the order of their requests, before anything is emitted. Requests that wait as columns keep their numbers.
        """
        rows, owners = messages.rows, messages.owners
        # Requests of earlier batches are last and have numbers.
        here = int(np.count_nonzero(rows["number"] == 0))
        asked = np.flatnonzero(((rows["flags"][:here] & REQUEST) > 0) & ~is_event[:here])
        waiting = asked[rows["pair"][asked] == NONE]
        keys = keys_of(rows.take(waiting))
        recalled = waiting[~self.begun.has(keys)]
        opened: list[OpenExchange] = []
        for connection, ordinal in rows[["connection", "ordinal"]][recalled].tolist():
            owner = owners[connection]
            assert owner is not None
            exchange = owner.exchanges[ordinal] = OpenExchange(0)
            opened.append(exchange)
        begins = [entry for entry in keyed if begins_exchange(entry[4]) and entry[4].ordinal not in entry[3].exchanges]
        stops = _stops(begins, messages, here)
        first = self._state.exchanges + 1
        rows["number"][asked] = first + np.arange(len(asked)) + np.searchsorted(stops, asked, side="right")
        numbers = first + np.arange(len(begins)) + np.searchsorted(asked, stops)
        for (_, _, _, connection, event), number in zip(begins, numbers.tolist(), strict=True):
            connection.exchanges[event.ordinal] = OpenExchange(number)
        for exchange, number in zip(opened, rows["number"][recalled].tolist(), strict=True):
            exchange.number = number
        self.begun.number(keys, rows["number"][waiting])
        self._state.exchanges += len(asked) + len(begins)

    # -- exchanges that end otherwise ---------------------------------------------------------------------------------

    def take_asked(self, connection: FollowedConnection, ordinal: int) -> Asked | NDArray[np.void] | None:
        """A request that waits as a column, which waits no longer; with its body it is a regular message again."""
        key = np.array([(connection.slot << ORDINAL_BITS) + ordinal], np.int64)
        found, rows = self.begun.take(key)
        if found[0]:
            _keep_numbers(connection, rows)
            return rows
        found, rows = self.outstanding.take(key)
        return self._asked(connection, rows[0]) if found[0] else None

    def _asked(self, connection: FollowedConnection, row: np.void) -> Asked:
        number, _, time_ns, ordinal, correlation, _, code, selected = row.item()
        version = version_of(code)
        if number > 0:
            exchange = connection.exchanges[ordinal] = OpenExchange(number)
            exchange.api, exchange.api_version, exchange.correlation_id = version.api, version.version, correlation
            if self.pin is not None:
                self.pin(number, bool(selected))
        client_id = self.outstanding.client_id(row)
        return Asked(version.key, version.version, correlation, client_id, time_ns, None, number == HIDDEN)

    def settle(self, connection: FollowedConnection) -> NDArray[np.void]:
        """Let no request of a connection wait as a column; returns those with their bodies, as regular messages."""
        for row in self.outstanding.take_connection(connection.slot):
            connection.asked[int(row["ordinal"])] = self._asked(connection, row)
        begun = self.begun.take_connection(connection.slot)
        _keep_numbers(connection, begun)
        return begun


def _stops(begins: Sequence[Keyed], messages: Messages, here: int) -> NDArray[np.int64]:
    """For each of these events, the first of the messages up to `here` that does not precede it."""
    rows = messages.rows[:here]
    orders: list[int] = rows["order"].tolist() if begins else []
    stops: list[int] = []
    at = 0
    for order, place, within, _, _ in begins:
        at = until(rows, orders, messages.owners, (order, place, within), at)
        stops.append(at)
    return np.array(stops, np.int64)


def _keep_numbers(connection: FollowedConnection, begun: NDArray[np.void]) -> None:
    """Let the exchanges of requests that become events keep their numbers; those of this batch get theirs later."""
    for ordinal, number in zip(begun["ordinal"].tolist(), begun["number"].tolist(), strict=True):
        if number:
            connection.exchanges[ordinal] = OpenExchange(number)


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
