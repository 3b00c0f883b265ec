"""Parts of a run that are decoded separately: each counts from zero, and the counts of all parts are added up.

What depends on how a part was decoded rather than on its packets is known afterwards, and no row has it: the numbers of
exchanges, and the problems of a connection so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import force_setattr

from kafkasniff.engine.connection_stats import InspectedConnection
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.model import Summary
from kafkasniff.tcp.connection import TcpConnection

__all__ = ["add_problems", "begin_part", "comparable_connections", "open_numbers", "open_problems"]


def begin_part(state: InspectorState) -> Summary:
    """Count problems and the summary from zero; returns the new summary."""
    state.summary = Summary()
    for _, connection in _connections(state):
        if connection.account is not None:
            connection.account.problems = 0
    return state.summary


def open_numbers(state: InspectorState) -> frozenset[int]:
    """The numbers of open connections."""
    return frozenset(connection.number for _, connection in _connections(state))


def open_problems(state: InspectorState) -> dict[int, int]:
    """Problems so far of open connections, by `connection_id`; without those that have none."""
    return {
        connection.identify(): connection.account.problems
        for tcp, connection in _connections(state)
        # Others stay for a while after their `Connection` was emitted.
        if not tcp.closed and connection.account is not None and connection.account.problems
    }


def add_problems(state: InspectorState, more: Mapping[int, int]) -> None:
    """Add the problems of earlier parts, by `connection_id`."""
    for _, connection in _connections(state):
        if connection.account is not None:
            connection.account.problems += more.get(connection.identify(), 0)


def comparable_connections(state: InspectorState) -> tuple[list[TcpConnection], dict[int, int]]:
    """All connections, in a form that is the same if they decode later packets alike; `state` is used up.

    Also returns the new numbers of open exchanges by the former ones. Connections and exchanges are numbered anew: in
    batches of other sizes, or with flaws in other records, they get other numbers.
    """
    numbers: dict[int, int] = {}
    found: list[TcpConnection] = []
    for tcp, connection in sorted(_connections(state), key=lambda one: (one[0].first_order, one[0].endpoints)):
        connection.identify()
        connection.number = connection.place = len(found)
        connection.held = 0
        if connection.account is not None:
            # It depends on whether exchanges were columns or events; logins have the rest of it.
            connection.account.served = False
        for stream in tcp.streams:
            stream.take_recent()
        for exchange in connection.exchanges.values():
            number = numbers[exchange.number] = len(numbers) + 1
            exchange.number = number
            # Like `held`: it depends on who has decoded the request.
            exchange.weight = 0
            for message in (exchange.request, exchange.response):
                if message is not None:
                    force_setattr(message, "exchange", number)
                    force_setattr(message, "connection", connection.number)
        found.append(tcp)
    return found, numbers


def _connections(state: InspectorState) -> Iterator[tuple[TcpConnection, InspectedConnection]]:
    for tcp in state.reassembler:
        assert isinstance(tcp.owner, InspectedConnection)
        yield tcp, tcp.owner
