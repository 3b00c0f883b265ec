"""Numbers of the exchanges that begin in a batch, in the order of their requests, before anything is emitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import OpenExchange
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.engine.ordered_events import Keyed, begins_exchange
from kafkasniff.engine.outstanding import BegunRequests, keys_of
from kafkasniff.engine.paired import until
from kafkasniff.engine.regular_messages import Messages
from kafkasniff.native.feed import NONE, REQUEST

__all__ = ["number_exchanges"]


def number_exchanges(
    state: InspectorState,
    keyed: Sequence[Keyed],
    messages: Messages,
    is_event: NDArray[np.bool_],
    begun: BegunRequests,
) -> None:
    """Number the exchanges that begin with these sorted events, and with the messages that are not events.

    `begun`: the requests among the messages that are answered later, unless an event has recalled them.
    """
    rows, owners = messages.rows, messages.owners
    # Requests of earlier batches are last and have numbers.
    here = int(np.count_nonzero(rows["number"] == 0))
    asked = np.flatnonzero(((rows["flags"][:here] & REQUEST) > 0) & ~is_event[:here])
    waiting = asked[rows["pair"][asked] == NONE]
    keys = keys_of(rows.take(waiting))
    recalled = waiting[~begun.has(keys)]
    opened: list[OpenExchange] = []
    for connection, ordinal in rows[["connection", "ordinal"]][recalled].tolist():
        owner = owners[connection]
        assert owner is not None
        exchange = owner.exchanges[ordinal] = OpenExchange(0)
        opened.append(exchange)
    begins = [entry for entry in keyed if begins_exchange(entry[4]) and entry[4].ordinal not in entry[3].exchanges]
    stops = _stops(begins, messages, here)
    first = state.exchanges + 1
    rows["number"][asked] = first + np.arange(len(asked)) + np.searchsorted(stops, asked, side="right")
    numbers = first + np.arange(len(begins)) + np.searchsorted(asked, stops)
    for (_, _, _, connection, event), number in zip(begins, numbers.tolist(), strict=True):
        connection.exchanges[event.ordinal] = OpenExchange(number)
    for exchange, number in zip(opened, rows["number"][recalled].tolist(), strict=True):
        exchange.number = number
    begun.number(keys, rows["number"][waiting])
    state.exchanges += len(asked) + len(begins)


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
