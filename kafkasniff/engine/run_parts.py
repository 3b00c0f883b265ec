"""Parts of a run that are decoded separately: each counts from zero, and the counts of all parts are added up.

What depends on how a part was decoded rather than on its packets is known afterwards, and no row has it: the numbers of
exchanges, and the problems of a connection so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import force_setattr

from kafkasniff.engine.connection_stats import InspectedConnection, MessageOwner
from kafkasniff.engine.followed import FollowedConnection
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Summary
from kafkasniff.tcp.connection import TcpConnection

__all__ = ["add_problems", "begin_part", "comparable_connections", "open_problems"]


def begin_part(inspector: Inspector) -> Summary:
    """Count problems and the summary from zero; returns the new summary."""
    summary = inspector.state.summary = Summary()
    for connection, _ in _connections(inspector):
        if connection.account is not None:
            connection.account.problems = 0
    return summary


def open_problems(inspector: Inspector) -> dict[int, int]:
    """Problems so far of open connections, by `connection_id`; without those that have none."""
    return {
        connection.identify(): connection.account.problems
        for connection, ended in _connections(inspector)
        # Others stay for a while after their `Connection` was emitted.
        if not ended and connection.account is not None and connection.account.problems
    }


def add_problems(inspector: Inspector, more: Mapping[int, int]) -> None:
    """Add the problems of earlier parts, by `connection_id`."""
    for connection, _ in _connections(inspector):
        if connection.account is not None:
            connection.account.problems += more.get(connection.identify(), 0)


def comparable_connections(inspector: Inspector) -> tuple[list[TcpConnection | FollowedConnection], dict[int, int]]:
    """All connections, in a form that is the same if they decode later packets alike; the inspector is used up.

    Also returns the new numbers of open exchanges by the former ones. Connections and exchanges are numbered anew: in
    batches of other sizes, or with flaws in other records, they get other numbers.
    """
    numbers: dict[int, int] = {}
    found: list[TcpConnection | FollowedConnection] = []
    state = inspector.state
    python = [tcp for tcp in state.reassembler if isinstance(tcp.owner, InspectedConnection)]
    for tcp in sorted(python, key=lambda one: (one.first_order, one.endpoints)):
        assert isinstance(tcp.owner, InspectedConnection)
        tcp.owner.held = 0
        for stream in tcp.streams:
            stream.take_recent()
        _number_anew(tcp.owner, len(found), numbers)
        found.append(tcp)
    for connection in inspector.followed:
        connection.index = connection.slot = 0
        _number_anew(connection, len(found), numbers)
        found.append(connection)
    return found, numbers


def _number_anew(connection: MessageOwner, number: int, numbers: dict[int, int]) -> None:
    """Give a connection this number, and its exchanges the next ones of `numbers`."""
    connection.identify()
    connection.number = connection.place = number
    for exchange in connection.exchanges.values():
        anew = numbers[exchange.number] = len(numbers) + 1
        exchange.number = anew
        # It depends on who has decoded the request.
        exchange.weight = 0
        for message in (exchange.request, exchange.response):
            if message is not None:
                force_setattr(message, "exchange", anew)
                force_setattr(message, "connection", number)


def _connections(inspector: Inspector) -> Iterator[tuple[MessageOwner, bool]]:
    """All connections, and whether they are over."""
    for tcp in inspector.state.reassembler:
        assert isinstance(tcp.owner, InspectedConnection)
        yield tcp.owner, tcp.closed
    for connection in inspector.followed:
        yield connection, connection.ended
