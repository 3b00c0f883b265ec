"""Layouts of connections, of their exchanges that are not over, and of their logins for the table `connections`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal

from kafkasniff.engine import connection_stats, followed
from kafkasniff.kafka.connection import opening
from kafkasniff.kafka.connection.events import VerdictEvent
from kafkasniff.kafka.messages import envelope
from kafkasniff.kafka.schema.context import MAX_GROUPS, ConnectionMemory, GroupProtocol
from kafkasniff.model import Endpoint, Message
from kafkasniff.packets import Key
from kafkasniff.tables.checkpoint.graph import Layout
from kafkasniff.tables.checkpoint.layout_types import Side, most
from kafkasniff.tables.rows.logins import MAX_OPEN, Login, Logins, Outcome
from kafkasniff.tls import gate

__all__ = ["CONNECTIONS", "EXCHANGES", "LOGINS"]

Carry = str | GroupProtocol | envelope._Inner | tuple | None  # type: ignore[type-arg]
"""State that requests leave for their responses."""


CONNECTIONS: Final = (
    Layout(
        followed.FollowedConnection,
        {
            "number": int,
            "place": int,
            "endpoints": Key,
            "first_time": int,
            "first_packet": int,
            "account": connection_stats.Account | None,
            "forced": bool,
            "client": Endpoint | None,
            "broker": Endpoint | None,
            "id": int,
            "exchanges": dict[int, connection_stats.OpenExchange],
            "open_until": int | None,
            "stream": bytes,
            "gate": gate.TlsGate | None,
            "index": int,
            "slot": int,
            "verdict": Literal["undecided", "kafka", "not-kafka"],
            "ended": bool,
            "side": Side | None,
            "asked": most(dict[int, followed.Asked], followed.MAX_ASKED),
            "memory": ConnectionMemory,
            "opening": opening.Opening | None,
            "mechanism": str | None,
            "early_problems": list[followed.EarlyProblem],
        },
    ),
    Layout(
        followed.Asked,
        {
            "api_key": int,
            "api_version": int,
            "correlation_id": int,
            "client_id": str | bytes | None,
            "time_ns": int,
            "carry": Carry,
            "hidden": bool,
        },
        made=followed.Asked,
    ),
    Layout(followed.EarlyProblem, made=followed.EarlyProblem),
    Layout(
        connection_stats.Account,
        {
            "unanswered": int,
            "problems": int,
            "client_ids": list[str | bytes],
            "software": tuple[str | None, str | None],
            "software_late": bool,
            "mechanism": str | None,
            "verdict": VerdictEvent | None,
        },
    ),
    Layout(
        connection_stats.OpenExchange,
        {
            "number": int,
            "api": str | None,
            "api_version": int | None,
            "correlation_id": int | None,
            "request": Message | None,
            "response": Message | None,
            "weight": int,
        },
    ),
)

EXCHANGES: Final = (
    Layout(GroupProtocol, made=GroupProtocol),
    Layout(envelope._Inner, {"api_key": int, "api_version": int, "carry": Carry}, made=envelope._Inner),
    # State left by JoinGroup: the group and the protocol type.
    Layout(tuple, {"group": str | bytes | None, "kind": str}, made=lambda *values: values),
    Layout(
        ConnectionMemory,
        {
            "_groups": most(OrderedDict[str | bytes, GroupProtocol], MAX_GROUPS) | None,
            "sasl_mechanism": str | None,
        },
    ),
    Layout(
        opening.Opening,
        {
            "heard": bool,
            "_versions": most(dict[int, tuple[int, int]], opening.MAX_APIS),
            "_refused": bool,
            "_handshake": bool,
            "_authenticated": bool,
            "_token": bool | None,
            "_last_ns": int,
        },
    ),
)

LOGINS: Final = (
    Layout(Logins, {"_found": most(dict[int, Login], MAX_OPEN)}, new=Logins),
    Layout(
        Login,
        {
            "credentials": bool,
            "exchange": int | None,
            "mechanism": str | None,
            "outcome": Outcome,
            "principal": str | None,
            "reason": str | None,
            "served": bool,
            "token": bool,
        },
        new=Login,
    ),
)
