"""Layouts of Kafka connections: their streams, and the exchanges that are not over."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from typing import Final, Literal

from kafkasniff.engine import connection_stats, followed
from kafkasniff.kafka.connection import candidates, early, exchange, opening, search, segmented_bytes, trial, waits
from kafkasniff.kafka.connection.boundaries import Boundaries
from kafkasniff.kafka.connection.connection import KafkaConnection
from kafkasniff.kafka.connection.detail import Detail
from kafkasniff.kafka.connection.dialogue import Dialogue
from kafkasniff.kafka.connection.events import EventLog, VerdictEvent
from kafkasniff.kafka.connection.framing import Frame, Framer
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.kafka.connection.sasl import RawSasl
from kafkasniff.kafka.messages import envelope
from kafkasniff.kafka.schema.memory import MAX_GROUPS, ConnectionMemory, GroupProtocol
from kafkasniff.model import Endpoint, Message
from kafkasniff.tables.checkpoint.graph import Layout
from kafkasniff.tables.checkpoint.layout_types import Side, most, pair
from kafkasniff.tables.checkpoint.wire import DamagedError
from kafkasniff.tcp import segments
from kafkasniff.tcp.plan import Key
from kafkasniff.tls import gate

__all__ = ["CONNECTIONS", "EXCHANGES", "STREAMS"]

Carry = str | GroupProtocol | envelope._Inner | tuple | None  # type: ignore[type-arg]
"""State that requests leave for their responses."""


def _check_segments(searcher: search.Searcher) -> None:
    columns = (searcher._packets, searcher._times, searcher._orders, searcher._released)
    ends = searcher._ends
    if {len(column) for column in columns} != {len(ends)}:
        raise DamagedError("segments without packets")
    places = [searcher._base, *ends]
    if places != sorted(places) or places[-1] != searcher._base + len(searcher._data):
        raise DamagedError("segments of another length than their bytes")


def _index_requests(ledger: exchange.Ledger) -> None:
    """Index outstanding requests by correlation id, and those whose response may be lost."""
    for requests in (ledger._passed, ledger._open):
        for ordinal, pending in requests.items():
            if pending.ordinal != ordinal:
                raise DamagedError("a request has another ordinal than its place")
            ledger._by_id.setdefault(pending.correlation_id, OrderedDict())[ordinal] = pending
            if pending.lost:
                ledger.note_lost(pending)
    heapq.heapify(ledger._later)


CONNECTIONS: Final = (
    Layout(
        connection_stats.InspectedConnection,
        {
            "number": int,
            "place": int,
            "endpoints": Key,
            "first_time": int,
            "first_packet": int,
            "account": connection_stats.Account | None,
            "forced": bool,
            "_counts": bool,
            "_forced": Side | None,
            "_kafka": KafkaConnection | None,
            "_options": ConnectionOptions,
            "_syns": tuple[tuple[Side, bool], ...],
            "tls": gate.TlsGate | None,
            "client": Endpoint | None,
            "broker": Endpoint | None,
            "id": int,
            "exchanges": dict[int, connection_stats.OpenExchange],
            "held": int,
            "_turns": waits.Turns | None,
        },
    ),
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
            "_turns": waits.Turns | None,
            "stream": bytes,
            "gate": gate.TlsGate | None,
            "index": int,
            "slot": int,
            "verdict": Literal["undecided", "kafka", "not-kafka"],
            "ended": bool,
            "side": Side | None,
            "asked": most(dict[int, followed.Asked], exchange.MAX_OUTSTANDING + exchange.MAX_SILENT),
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
    Layout(waits.Turns, {"answered": int | None, "muted_until": int | None, "open_until": int | None}, new=waits.Turns),
    Layout(
        connection_stats.Account,
        {
            "requests": int,
            "responses": int,
            "served": bool,
            "unanswered": int,
            "problems": int,
            "client_ids": most(dict[str | bytes, None], connection_stats.MAX_CLIENT_IDS),
            "software": tuple[str | None, str | None],
            "before_software": bool,
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
    Layout(
        KafkaConnection,
        {
            "_options": ConnectionOptions,
            "_forced": bool,
            "_log": EventLog,
            "_dialogue": Dialogue,
            "verdict": Literal["undecided", "kafka", "not-kafka"],
            "_framers": pair(Framer | None),
            "_trials": pair(trial.Trial | None),
            "_began": pair(bool),
            "_holes": pair(bool),
            "_syn": pair(bool),
            "_oversized": int,
            "_boundaries": Boundaries,
            "_closed": bool,
            "bytes_seen": int,
            "bytes_of": pair(int),
            "retransmits": int,
            "framed_of": pair(int),
            "bytes_lost": int,
            "lost_of": pair(int),
            "pending_of": pair(int),
        },
        new=KafkaConnection.empty,
        without=frozenset({"_streams"}),
        properties=frozenset(
            {"_began", "_framers", "_holes", "_syn", "_trials", "bytes_of", "framed_of", "lost_of", "pending_of"}
        ),
    ),
    Layout(
        EventLog,
        {"client": Side | None, "held": list[segments.TcpProblem], "order": int, "time_ns": int, "packet": int},
        new=lambda: EventLog(None),
        # They are taken after each batch.
        without=frozenset({"events"}),
    ),
)

STREAMS: Final = (
    Layout(
        Framer,
        {
            "direction": Side,
            "max_size": int,
            "lost_at": int | None,
            "lost_size": int,
            "_parts": list[bytes],
            "_have": int,
            "_need": int,
            "_sized": bool,
            "_skip": int,
            "_first_packet": int,
            "_last_packet": int,
            "_first_time": int,
            "_last_time": int,
        },
    ),
    Layout(trial.Trial, {"framer": Framer, "frames": list[Frame], "size": int}),
    Layout(
        Boundaries,
        {
            "_log": EventLog,
            "_dialogue": Dialogue,
            "_forced": bool,
            "_max_frame": int,
            "_searchers": pair(search.Searcher | None),
            "_proxied": pair(bool),
        },
    ),
    Layout(
        search.Searcher,
        {
            "aligned": bool,
            "_forced": bool,
            "accepted_requests": bool,
            "dropped": int,
            "_max_size": int,
            "_data": most(bytearray, segmented_bytes.MAX_SEARCH),
            "_clipped": bool,
            "_base": int,
            "_ends": list[int],
            "_packets": list[int],
            "_times": list[int],
            "_orders": list[int],
            "_released": list[int],
            "_requests": list[candidates.FrameCandidate],
            "_responses": list[candidates.FrameCandidate],
            "_scanned_requests": int,
            "_scanned_responses": int,
        },
        after=_check_segments,
    ),
    Layout(
        candidates.FrameCandidate,
        {
            "start": int,
            "at": int,
            "frames": int,
            "correlation_id": int,
            "expected": int | None,
            "needed": int,
            "refuted": bool,
        },
    ),
)

EXCHANGES: Final = (
    Layout(
        Dialogue,
        {
            "_every_end": bool,
            "_log": EventLog,
            "_detail": Detail,
            "_sasl": RawSasl | None,
            "_offered": str | None,
            "_early": early.EarlyResponses,
            "_last_id": int | None,
            "_ids_vary": bool,
            "_ids_rise": bool,
            "last_answer": int | None,
            "_ordinal": int,
            "_requests_lost_before": int,
            "_responses_lost": bool,
            "memory": ConnectionMemory,
            "ledger": exchange.Ledger,
            "opening": opening.Opening | None,
            "gapped": bool,
            "requests": Literal["none", "behind", "here"],
            "retransmits": int,
            "unread_of": pair(int),
            "one_sided": bool,
        },
    ),
    Layout(
        exchange.Ledger,
        {
            "_open": most(OrderedDict[int, exchange.Pending], exchange.MAX_OUTSTANDING),
            "_passed": most(OrderedDict[int, exchange.Pending], exchange.MAX_OUTSTANDING),
            "_silent": most(OrderedDict[int, exchange.Pending], exchange.MAX_SILENT),
            "_judged": int,
            "_later": list[tuple[int, int]],
            "_most": int,
            "responses_behind": bool,
        },
        new=exchange.Ledger,
        without=frozenset({"_by_id", "_lost", "_lost_by_id", "_lost_ordinals"}),
        after=_index_requests,
    ),
    Layout(
        exchange.Pending,
        {
            "ordinal": int,
            "api_key": int,
            "api_version": int,
            "correlation_id": int,
            "client_id": str | bytes | None,
            "first_time": int,
            "time_ns": int,
            "silent": bool,
            "mechanism": str | None,
            "carry": Carry,
            "hidden": bool,
            "lost": bool,
            "passed": bool,
        },
    ),
    Layout(GroupProtocol, made=GroupProtocol),
    Layout(envelope._Inner, {"api_key": int, "api_version": int, "carry": Carry}, made=envelope._Inner),
    # State left by JoinGroup: the group and the protocol type.
    Layout(tuple, {"group": str | bytes | None, "kind": str}, made=lambda *values: values),
    Layout(
        early.EarlyResponses,
        {
            "_waiting": most(OrderedDict[int, tuple[int, int, Frame]], early.MAX_EARLY),
            "_refused": most(set[int], early.MAX_EARLY),
            "_by_id": dict[int, deque[int]],
            "_bytes": int,
            "_clock": int,
            "_next": int,
        },
    ),
    Layout(
        ConnectionMemory,
        {
            "_groups": most(OrderedDict[str | bytes, GroupProtocol], MAX_GROUPS) | None,
            "sasl_mechanism": str | None,
        },
    ),
    Layout(RawSasl, {"mechanism": str | None, "_client_tokens": int, "_broker_tokens": int, "_over": bool}),
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
