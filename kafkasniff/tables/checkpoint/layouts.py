"""The contents of a state, class by class: attribute and type, including the bounds that a class enforces.

A new attribute of a class is added here, either to its fields or to those that are skipped (`without`), with the way to
recreate it; otherwise loading and dumping a state fails. Values are checked against these types when they are read, and
nothing else of a class comes from a state.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from kafkasniff.engine import connection_stats, inspector_state
from kafkasniff.engine.connection_stats import FollowedConnection
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich.catalog import MAX_BROKERS, MAX_FACTS, MAX_TOPICS, Broker, Catalog, LearnedFacts, Place
from kafkasniff.enrich.catalog import MAX_CONNECTIONS as MAX_SOFTWARE
from kafkasniff.enrich.enricher import MAX_UNKNOWN, Enricher
from kafkasniff.enrich.sessions import MAX_PENDING, MAX_SESSIONS, FetchSession, FetchSessions
from kafkasniff.kafka.connection.events import Detail, LeftOut, Level, VerdictEvent
from kafkasniff.kafka.messages import envelope, plausibility
from kafkasniff.kafka.schema.context import MAX_GROUPS, ConnectionMemory, DecodeOptions, GroupProtocol
from kafkasniff.model import Endpoint, Message, Summary
from kafkasniff.packets import Key, end_index, index_of, indexed_end, indexed_key
from kafkasniff.tables.checkpoint import Carried, ShardState
from kafkasniff.tables.checkpoint.graph import Layout
from kafkasniff.tables.checkpoint.wire import DamagedError
from kafkasniff.tables.rows.connections import MAX_OPEN, Login, Logins, Outcome
from kafkasniff.tables.rows.sessions import MAX_ANSWERS, Sessions
from kafkasniff.tls import gate, items, keylog, session
from kafkasniff.tls.half import Epoch, Half, Loss, Negotiated
from kafkasniff.tls.negotiation import Negotiation
from kafkasniff.tls.record import ClientHello, HandshakeBuffer, Mark, Record, RecordCutter, ServerHello

Side = Literal[0, 1]
"""Direction of a stream."""
Port = tuple[int, int, int]
"""Both halves of an address, and a port."""


def pair(kind: Any) -> Any:
    """A list with an entry for each stream."""
    return Annotated[list[kind], Meta(min_length=2, max_length=2)]


def most(kind: Any, bound: int) -> Any:
    """A collection of at most `bound` entries."""
    return Annotated[kind, Meta(max_length=bound)]


# -- TLS ---------------------------------------------------------------------------------------------------------------

ITEMS: Final = tuple(
    Layout(kind, made=kind)
    for kind in (
        items.Segment,
        items.Started,
        items.Gap,
        items.Hole,
        items.Retransmit,
        items.Late,
        items.TcpProblem,
        items.Wrapped,
        items.Rejected,
        items.Closed,
    )
)

TLS: Final = (
    Layout(
        keylog.KeyLog,
        {
            "_captured": most(dict[tuple[str, bytes], tuple[int, bytes]], keylog.MAX_SECRETS),
            "_since": int | None,
            "_flaws": most(list[str], keylog.MAX_FLAWS),
            "_flaw_count": int,
            "_counted": int,
        },
        new=keylog.KeyLog,
        # The file's content is not stored: a resumed run names the file again.
        without=frozenset({"_file", "_lines", "_more", "grows", "reports"}),
    ),
    Layout(
        gate.TlsGate,
        {
            "plain": bool,
            "_session": session.TlsSession | None,
            "_aligned": pair(bool),
            "_heads": pair(bytes),
            "_held": most(list[items.Item], gate.MAX_HELD),
        },
    ),
    Layout(
        session.TlsSession,
        {
            "_halves": tuple[Half, Half],
            "_talk": Negotiation,
            "_turns": session.Turns,
            "_flowing": bool,
            "_over": bool,
            "_problems_found": int,
            "_order": int,
            "_time": int,
            "_packet": int,
            "_keys": keylog.KeyLog,
        },
        new=lambda: session.TlsSession(keylog.KeyLog(), 0),
        without=frozenset({"_out", "_passed"}),
    ),
    Layout(
        Half,
        {
            "direction": Side,
            "cutter": RecordCutter,
            "handshake": HandshakeBuffer,
            "queue": deque[Record | Loss],
            "held": int,
            "negotiated": Negotiated | None,
            "epoch": Epoch,
            "seq": int,
            "slack": int,
            "opened": bool,
            "failed": int,
            "skippable": int,
            "whole": bool,
            "started": bool,
            "dead": bool,
            "_budget": int,
            "_refused": str | None,
        },
        new=lambda: Half(0),
        # The opener of records and its secret are made again from the key log.
        without=frozenset({"_opener", "_secret"}),
    ),
    Layout(Record, made=Record),
    Layout(Loss, made=Loss),
    Layout(
        RecordCutter,
        {
            "_data": bytearray,
            "_start": int,
            "_base": int,
            "_marks": deque[Mark],
            "_skip": int,
            "lost": bool,
            "passed": int,
            "searched": int,
        },
    ),
    Layout(HandshakeBuffer, {"_data": bytearray}),
    Layout(
        session.Turns,
        {
            "_first": int,
            "_settled": int,
            "_sealed": int,
            "_lossy": bool,
            "_skips": bool,
            "_speaker": int,
            "_since": int,
            "_size": int,
            "_longest": pair(int),
            "_counts": most(dict[int, int], session.MAX_BUCKETS),
        },
    ),
    Layout(
        Negotiation,
        {
            "_halves": tuple[Half, Half],
            "client": Side | None,
            "hello": ClientHello | None,
            "server": ServerHello | None,
            "retried": bool,
            "agreed": Negotiated | None,
            "lacks_certificate": bool,
            "_certificate": bytes | None,
            "_hidden": most(dict[int, bytes], 2),
            "_alpn": str | None,
        },
        new=lambda: Negotiation((Half(0), Half(1))),
        without=frozenset({"counts"}),
    ),
)


# -- connections -------------------------------------------------------------------------------------------------------

Carry = str | GroupProtocol | envelope._Inner | tuple | None  # type: ignore[type-arg]
"""State that requests leave for their responses."""


CONNECTIONS: Final = (
    Layout(
        connection_stats.FollowedConnection,
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
            "asked": most(dict[int, connection_stats.Asked], connection_stats.MAX_ASKED),
            "memory": ConnectionMemory,
            "opening": plausibility.Opening | None,
            "mechanism": str | None,
            "early_problems": list[connection_stats.EarlyProblem],
        },
    ),
    Layout(
        connection_stats.Asked,
        {
            "api_key": int,
            "api_version": int,
            "correlation_id": int,
            "client_id": str | bytes | None,
            "time_ns": int,
            "carry": Carry,
            "hidden": bool,
        },
        made=connection_stats.Asked,
    ),
    Layout(connection_stats.EarlyProblem, made=connection_stats.EarlyProblem),
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
        plausibility.Opening,
        {
            "heard": bool,
            "_versions": most(dict[int, tuple[int, int]], plausibility.MAX_APIS),
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


# -- everything --------------------------------------------------------------------------------------------------------


def layouts() -> tuple[Layout, ...]:
    """All layouts; the order is part of the format."""
    return (*_RUNS, *_NAMES, *ITEMS, *TLS, *CONNECTIONS, *EXCHANGES, *LOGINS)


def _set_level(detail: Detail) -> None:
    detail._decodes.clear()
    detail.set(Level(detail.level))


def _complete(inspector: Inspector) -> None:
    """Follow its connections. Their states have no options of their own."""
    state = inspector._state
    brokers: Any = state.known_brokers
    state.known_brokers = set(map(end_index, brokers))
    if state.judged is not None:
        judged: Any = state.judged
        state.judged = set(map(index_of, judged))
    try:
        inspector.begin_following()
    except ValueError as error:
        raise DamagedError(str(error)) from None


_RUNS: Final = (
    Layout(ShardState, new=lambda: ShardState(Inspector(), Enricher(), set())),
    Layout(Carried, new=Carried),
    Layout(
        Inspector,
        {
            "_ports": frozenset[int],
            "_show_secrets": bool,
            "_detail": Detail,
            "_max_frame": int,
            "_want_exchanges": bool,
            "_want_connections": bool,
            "_follows": Literal[0, 1, 2],
            "_followed": list[FollowedConnection],
            "_clocks": tuple[int, int, int],
            "_connections": int,
            "_exchanges": int,
            "_captures": tuple[str, ...],
            "_only_capture": str | None,
            "_known_brokers": most(set[Port], inspector_state.MAX_ENDPOINTS),
            "summary": Summary,
            "names": most(dict[str, str], inspector_state.MAX_NAMES),
            "keys": keylog.KeyLog,
            "judged": set[Key] | None,
        },
        new=Inspector,
        # The options for shared bodies and memory are set by the code that resumes the state.
        without=frozenset({"_emitter", "_feeder", "_memory", "_windows"}),
        paths={
            **{f"_{name}": f"_state.{name}" for name in ("ports", "show_secrets", "detail", "max_frame")},
            **{f"_{name}": f"_state.{name}" for name in ("followed", "clocks", "follows")},
            **{f"_{name}": f"_state.{name}" for name in ("want_exchanges", "want_connections", "known_brokers")},
            **{f"_{name}": f"_state.{name}" for name in ("connections", "exchanges", "captures", "only_capture")},
            **{name: f"_state.{name}" for name in ("summary", "names", "keys", "judged")},
        },
        views={
            "_followed": lambda inspector: inspector.followed,
            "_follows": lambda inspector: int(inspector._state.follows),
            "_clocks": lambda inspector: inspector.clocks,
            "_known_brokers": lambda inspector: list(map(indexed_end, inspector._state.known_brokers)),
            "judged": lambda inspector: inspector.judged and list(map(indexed_key, inspector.judged)),
        },
        after=_complete,
        alone=True,
    ),
    Layout(Summary, new=Summary),
    Layout(
        Detail,
        {"_full": DecodeOptions, "level": Literal[0, 1, 2, 3], "left_out": LeftOut},
        new=lambda: Detail(DecodeOptions()),
        without=frozenset({"_decodes", "_renderer", "decode", "hides"}),
        views={"level": lambda detail: int(detail.level)},
        after=_set_level,
    ),
)

_NAMES: Final = (
    Layout(
        Enricher,
        {
            "catalog": Catalog,
            "_summary": Summary,
            "_adds": bool,
            "_sessions": FetchSessions | None,
            "missed": set[int],
            "notes_missed": bool,
            "_unknown": most(set[str], MAX_UNKNOWN),
            "_metadata_log": bool,
        },
        new=Enricher,
        # Where to look in messages is found again; the others belong to one message.
        without=frozenset({"_lost", "_misses", "_plans", "_problems", "applied"}),
    ),
    Layout(
        Catalog,
        {
            "retroactive": bool,
            "learned_facts": LearnedFacts | None,
            "now": int | None,
            "hosts": dict[str, str],
            "topics_learned": int,
            "_given": dict[str, str],
            "_topics": most(dict[str, str], MAX_TOPICS),
            "_brokers": most(OrderedDict[Place, Broker], MAX_BROKERS),
            "_software": most(OrderedDict[int, tuple[str, str]], MAX_SOFTWARE),
        },
        new=Catalog,
        without=frozenset({"_most_brokers", "_most_connections", "_pairs", "most_topics"}),
    ),
    Layout(
        LearnedFacts,
        {
            "topics": most(dict[str, tuple[int, str]], MAX_FACTS),
            "brokers": most(dict[Place, dict[int, int]], MAX_FACTS),
            "hosts": dict[str, str],
            "software": most(dict[int, tuple[str, str | None]], MAX_FACTS),
            "kafka": most(dict[Place, int], MAX_FACTS),
        },
        new=LearnedFacts,
    ),
    Layout(
        FetchSessions,
        {
            "_sessions": most(OrderedDict[tuple[Endpoint | None, int], FetchSession], MAX_SESSIONS),
            "_pending": most(
                OrderedDict[int, tuple[tuple[Endpoint | None, int] | None, FetchSession | None]], MAX_PENDING
            ),
            "_partitions": int,
            "_waiting": int,
        },
        new=FetchSessions,
        # The memory limits are set by the code that resumes the state.
        without=frozenset({"_most_partitions", "_most_sessions", "let_go"}),
    ),
    Layout(
        FetchSession,
        {"topics": dict[str, set[int]], "by_id": bool, "partitions": int},
        new=FetchSession,
        without=frozenset({"_content", "_gone"}),
    ),
    Layout(
        Sessions,
        {
            "_sessions": FetchSessions,
            "_answers": most(list[tuple[int, int, Endpoint, int | None, int]], MAX_ANSWERS),
            "_number": int,
        },
        new=Sessions,
    ),
)
