"""Effects of exchanges in columns on the state of their connections, in turn with exchanges emitted one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import Account
from kafkasniff.engine.paired import PairColumns
from kafkasniff.engine.regular_messages import EVENTS
from kafkasniff.kafka.apis.named_apis import API_VERSIONS
from kafkasniff.kafka.connection.waits import Turns
from kafkasniff.native.feed import VERSIONS
from kafkasniff.native.rows import joined

__all__ = ["AccountTurns", "ColumnTurns"]

Ints = NDArray[np.int64]
_NEVER: Final = -(1 << 62)
"""A time before all others."""


class ColumnTurns:
    """The turns of requests (`connection.waits.Turns`) whose exchanges are columns, among those emitted one by one.

    Fills `behind_ns` and `muted_ns` of the columns of `batch`. `emitted`: places of the connections with exchanges
    that are emitted one by one; `accounts`: advanced together with this.
    """

    def __init__(
        self, batch: Sequence[PairColumns], emitted: Container[int], accounts: AccountTurns | None = None
    ) -> None:
        self._accounts = accounts
        self._columns = [found for found in batch if found.facts is not None]
        self._waiting: dict[int, tuple[Turns, int, int]] = {}
        """By place of the connection: its first waiting row, and the one after its last."""
        if not self._columns:
            return
        asked, answered = _joined(self._columns)
        throttle = np.concatenate([found.throttle_ns for found in self._columns])
        at_once = np.concatenate([found.at_once for found in self._columns])
        connection, order, step = asked["connection"], answered["order"], answered["step"]
        # Rows from here on are in the order of their connections, and in that of their responses within each.
        self._order = by_connection = np.lexsort((step, order, connection))
        connection, asked_ns, throttle = (
            connection[by_connection],
            asked["time"][by_connection],
            throttle[by_connection],
        )
        done, latency = answered["time"][by_connection], answered["latency"][by_connection]
        before = np.append(0, done[:-1])
        starts = np.flatnonzero(np.append(True, connection[1:] != connection[:-1]))
        # A request waits until the response before it is complete. That is all, unless responses are out of order or
        # throttled; the first one of a connection is compared with its state.
        self._behind = np.maximum(np.minimum(before, asked_ns + latency) - asked_ns, 0)
        self._behind[starts] = 0
        self._muted = np.zeros_like(self._behind)
        odd = done < before
        odd[starts] = False
        self._odd: Ints = np.append(0, np.cumsum(odd | (throttle > 0)))
        """Number of odd rows before each row."""
        self._columns_of_rows = asked_ns, done, latency, throttle, at_once[by_connection]
        self._order_of_rows, self._step_of_rows = order[by_connection], step[by_connection]
        self._take_whole(connection[starts].tolist(), starts, np.append(starts[1:], len(connection)), emitted)

    @cached_property
    def _rows(self) -> list[tuple[int, ...]]:
        return list(zip(*(column.tolist() for column in self._columns_of_rows), strict=True))

    @cached_property
    def _orders(self) -> list[int]:
        orders: list[int] = self._order_of_rows.tolist()
        return orders

    @cached_property
    def _steps(self) -> list[int]:
        steps: list[int] = (self._step_of_rows.astype(np.int64) * EVENTS).tolist()
        return steps

    def _take_whole(self, connections: list[int], starts: Ints, stops: Ints, emitted: Container[int]) -> None:
        """Process the rows [start, stop) of each connection; rows of connections in `emitted` wait for `until`."""
        owners = self._columns[0].owners
        whole: list[int] = []
        turns: list[Turns] = []
        for at, number in enumerate(connections):
            owner = owners[number]
            assert owner is not None
            if owner.place in emitted:
                self._waiting[owner.place] = owner.turns, int(starts[at]), int(stops[at])
            else:
                whole.append(at)
                turns.append(owner.turns)
        first, stop = starts[whole], stops[whole]
        asked, done, latency = (column[first] for column in self._columns_of_rows[:3])
        # As `_take`, for all connections at once whose rows are as computed.
        answered = np.array([_NEVER if one.answered is None else one.answered for one in turns], np.int64)
        behind = np.maximum(np.minimum(answered, asked + latency) - asked, 0)
        odd = self._odd
        unmuted = np.array([one.muted_until is None for one in turns], np.bool_)
        usual = unmuted & (done >= answered) & (odd[stop] == odd[first])
        self._behind[first[usual]] = behind[usual]
        last = self._columns_of_rows[1][stop - 1]
        for one, is_usual, row, end, last_done in zip(
            turns, usual.tolist(), first.tolist(), stop.tolist(), last.tolist(), strict=True
        ):
            if is_usual:
                one.answered = last_done
            else:
                self._take(one, row, end)

    def until(self, place: int, order: int, within: int) -> None:
        """Process those of the connection at this place that precede what is emitted now."""
        if self._accounts is not None:
            self._accounts.until(place, order, within)
        waiting = self._waiting.get(place)
        if waiting is None:
            return
        turns, start, stop = waiting
        at = bisect_left(self._orders, order, start, stop)
        while at < stop and self._orders[at] == order and self._steps[at] < within:
            at += 1
        if at > start:
            self._take(turns, start, at)
            self._waiting[place] = turns, at, stop

    def finish(self) -> None:
        """Process the rest: nothing else is emitted."""
        if self._accounts is not None:
            self._accounts.finish()
        for turns, start, stop in self._waiting.values():
            self._take(turns, start, stop)
        self._waiting.clear()
        if not self._columns:
            return
        behind, muted = np.empty_like(self._behind), np.empty_like(self._muted)
        behind[self._order], muted[self._order] = self._behind, self._muted
        first = 0
        for found in self._columns:
            last = first + len(found.asked)
            found.behind_ns[:], found.muted_ns[:] = behind[first:last], muted[first:last]
            first = last

    def _take(self, turns: Turns, start: int, stop: int) -> None:
        """Process rows of a connection. Hot: most are as computed for all rows together."""
        rows = self._rows
        for at in range(start, stop):
            asked, done, latency, throttle, at_once = rows[at]
            behind, muted = turns.answer(asked, done, latency, throttle, at_once=bool(at_once))
            self._behind[at], self._muted[at] = behind, muted
            if turns.muted_until is None and turns.answered == done and self._odd[stop] == self._odd[at + 1]:
                turns.answered = rows[stop - 1][1]
                return


class AccountTurns:
    """Adds exchanges that are columns to the statistics of their connections, among what is emitted one by one.

    Some facts depend on the order: which client id came first, and whether an exchange was complete before the client
    sent its software. `emitted`: places of the connections with anything that is emitted one by one.
    """

    def __init__(self, batch: Sequence[PairColumns], emitted: Container[int]) -> None:
        self._waiting: dict[int, tuple[Account, deque[tuple[int, int, str | None]]]] = {}
        """By place of the connection, with order and place in the packet: client ids; None: an exchange is complete."""
        if not batch:
            return
        asked, answered = _joined(batch)
        client_ids, ids = _client_ids(batch)
        connection = asked["connection"].astype(np.int64)
        by_connection = np.lexsort((asked["step"], asked["order"], connection))
        connection, ids = connection[by_connection], ids[by_connection]
        starts = np.flatnonzero(np.append(True, connection[1:] != connection[:-1]))
        stops = np.append(starts[1:], len(connection))
        # Nearly all connections have a single client id.
        varies = np.logical_or.reduceat(ids != np.repeat(ids[starts], stops - starts), starts)
        owners = batch[0].owners
        serves = np.logical_or.reduceat(asked["code"][by_connection] // VERSIONS != API_VERSIONS, starts)
        columns = connection[starts], starts, stops, ids[starts], varies, serves
        for number, start, stop, first, is_varied, is_served in zip(*(one.tolist() for one in columns), strict=True):
            owner = owners[number]
            assert owner is not None
            account = owner.account
            if account is None:
                continue
            account.requests += stop - start
            account.responses += stop - start
            account.served = account.served or is_served
            if not is_varied and account.is_settled(client_ids[first]):
                continue
            if owner.place not in emitted:
                if is_varied or client_ids[first] not in account.client_ids:
                    for index in dict.fromkeys(ids[start:stop].tolist()):
                        if (client_id := client_ids[index]) is not None:
                            account.name(client_id)
                if not account.before_software:
                    account.over()
                continue
            own = by_connection[start:stop]
            over = answered[own][np.lexsort((answered["step"][own], answered["order"][own]))[:1]]
            names = [client_ids[index] for index in ids[start:stop].tolist()]
            named = zip(asked["order"][own].tolist(), (asked["step"][own] * EVENTS).tolist(), names, strict=True)
            turns = [turn for turn in named if turn[2] is not None]
            turns += zip(over["order"].tolist(), (over["step"] * EVENTS).tolist(), (None,), strict=True)
            self._waiting[owner.place] = account, deque(sorted(turns, key=itemgetter(0, 1)))

    def until(self, place: int, order: int, within: int) -> None:
        """Process those of the connection at this place that precede what is emitted now."""
        found = self._waiting.get(place)
        if found is None:
            return
        account, waiting = found
        while waiting and waiting[0][:2] < (order, within):
            _take_turn(account, waiting.popleft()[2])

    def finish(self) -> None:
        """Process the rest: nothing else is emitted."""
        for account, waiting in self._waiting.values():
            for _, _, client_id in waiting:
                _take_turn(account, client_id)
        self._waiting.clear()


def _client_ids(batch: Sequence[PairColumns]) -> tuple[list[str | None], Ints]:
    """Client ids, and their indices by exchange; the last id is that of exchanges without one."""
    places: dict[str, int] = {}
    parts: list[Ints] = []
    for found in batch:
        # Nearly all of the names are those of topics and groups.
        used, index = np.unique(np.minimum(found.client_id, len(found.names)), return_inverse=True)
        own = [
            places.setdefault(found.names[place], len(places)) if place < len(found.names) else -1
            for place in used.tolist()
        ]
        parts.append(np.array(own, np.int64)[index])
    return [*places, None], np.concatenate(parts)


def _take_turn(account: Account, client_id: str | None) -> None:
    if client_id is None:
        account.over()
    else:
        account.name(client_id)


def _joined(batch: Iterable[PairColumns]) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """The requests and the responses of all columns."""
    asked, answered = zip(*((found.asked, found.answered) for found in batch), strict=True)
    return joined(asked), joined(answered)
