"""The contents of a state, class by class: attribute and type, including the bounds that a class enforces.

A new attribute of a class is added here, either to its fields or to those that are skipped (`without`), with the way to
recreate it; otherwise loading and dumping a state fails. Values are checked against these types when they are read, and
nothing else of a class comes from a state.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from itertools import accumulate
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from kafkasniff.engine import connection_stats, memory_budget
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich.catalog import MAX_BROKERS, MAX_TOPICS, Broker, Catalog
from kafkasniff.enrich.catalog import MAX_CONNECTIONS as MAX_SOFTWARE
from kafkasniff.enrich.enricher import MAX_UNKNOWN, Enricher
from kafkasniff.enrich.learned_facts import MAX_FACTS, LearnedFacts, Place
from kafkasniff.enrich.sessions import MAX_PENDING, MAX_SESSIONS, FetchSession, FetchSessions
from kafkasniff.kafka.connection import early, exchange, opening, search, trial, waits
from kafkasniff.kafka.connection.boundaries import Boundaries
from kafkasniff.kafka.connection.connection import KafkaConnection
from kafkasniff.kafka.connection.detail import Detail, LeftOut, Level
from kafkasniff.kafka.connection.dialogue import Dialogue
from kafkasniff.kafka.connection.events import EventLog, VerdictEvent
from kafkasniff.kafka.connection.framing import Frame, Framer
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.kafka.connection.sasl import RawSasl
from kafkasniff.kafka.messages import envelope
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.memory import MAX_GROUPS, ConnectionMemory, GroupProtocol
from kafkasniff.model import Endpoint, Message, Summary
from kafkasniff.tables.checkpoint.carried import Carried, ShardState
from kafkasniff.tables.checkpoint.graph import Layout
from kafkasniff.tables.checkpoint.wire import DamagedError
from kafkasniff.tables.rows.sessions import MAX_ANSWERS, Sessions
from kafkasniff.tcp import segments
from kafkasniff.tcp.connection import MAX_HELD_SEGMENTS, TcpConnection
from kafkasniff.tcp.plan import Key
from kafkasniff.tcp.reassembly import Reassembler
from kafkasniff.tcp.stream import MAX_MISSING, RECENT, Held, Packet, Stream
from kafkasniff.tls import clear, gate, keylog, session
from kafkasniff.tls.half import Half, Loss
from kafkasniff.tls.handshake import ClientHello, HandshakeBuffer, ServerHello
from kafkasniff.tls.negotiation import Negotiation
from kafkasniff.tls.protection import Epoch, Negotiated
from kafkasniff.tls.record import Mark, Record, RecordCutter

__all__ = ["layouts"]

Side = Literal[0, 1]
"""Direction of a stream."""
Port = tuple[int, int, int]
"""Both halves of an address, and a port."""
Carry = str | GroupProtocol | envelope._Inner | tuple | None  # type: ignore[type-arg]
"""State that requests leave for their responses."""


def _pair(kind: Any) -> Any:
    """A list with an entry for each stream."""
    return Annotated[list[kind], Meta(min_length=2, max_length=2)]


def _most(kind: Any, bound: int) -> Any:
    return Annotated[kind, Meta(max_length=bound)]


def layouts() -> tuple[Layout, ...]:
    """All layouts; the order is part of the format."""
    return (*_RUNS, *_NAMES, *_TCP, *_ITEMS, *_TLS, *_CONNECTIONS, *_STREAMS, *_EXCHANGES)


# -- what is derived ------------------------------------------------------------------------------------------------


def _set_level(detail: Detail) -> None:
    detail._decodes.clear()
    detail.set(Level(detail.level))


def _due(reassembler: Reassembler) -> list[tuple[int, int, TcpConnection]]:
    """The valid deadlines: those of connections that ended, or were rescheduled since, mean nothing."""
    table = reassembler._table
    return [
        (deadline, number, table[key])
        for deadline, number, key in sorted(reassembler._deadlines)
        if key in table and table[key].deadline == deadline
    ]


def _index(reassembler: Reassembler) -> None:
    """Index connections and deadlines by endpoints, which all of them share."""
    connections: Any = reassembler._table
    deadlines: Any = reassembler._deadlines
    reassembler._table = {tcp.endpoints: tcp for tcp in connections}
    reassembler._deadlines = [(deadline, number, tcp.endpoints) for deadline, number, tcp in deadlines]
    heapq.heapify(reassembler._deadlines)


def _complete(inspector: Inspector) -> None:
    """Count what connections hold towards the memory budget.

    None of them may decode with other options than the inspector: with others, secrets might be shown.
    """
    state = inspector._state
    wanted = state.detail._full
    for tcp in state.reassembler:
        owner = tcp.owner
        assert isinstance(owner, connection_stats.InspectedConnection), "its layout says so"
        kafka = owner.kafka
        used = (kafka._options.detail, kafka._dialogue._detail, state.options.detail)
        if any(detail._full != wanted for detail in used) or kafka._options.max_frame != state.options.max_frame:
            raise DamagedError("a connection has other options than its inspector")
    inspector._memory.recount(state.reassembler)
    inspector.begin_in_step()


def _share_endpoints(tcp: TcpConnection) -> None:
    owner = tcp.owner
    if not isinstance(owner, connection_stats.InspectedConnection) or owner.endpoints != tcp.endpoints:
        raise DamagedError("a connection has other endpoints than its streams")
    owner.endpoints = tcp.endpoints


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


def _bytes_of(run: segments.Run) -> bytes:
    return b"".join(
        run.buffer[run.offset[index] : run.offset[index] + run.length[index]] for index in range(run.first, run.last)
    )


def _column(name: str) -> Any:
    return lambda run: getattr(run, name)[run.first : run.last]


def _run(buffer: bytes, *columns: list[int]) -> segments.Run:
    """A run without a batch, from its bytes and the columns of its segments."""
    length, packet, time, order, released = columns
    if {len(column) for column in columns} != {len(length)} or not length or min(length) < 0:
        raise DamagedError("segments without packets")
    ends = list(accumulate(length))
    if ends[-1] != len(buffer):
        raise DamagedError("segments of another length than their bytes")
    return segments.Run(buffer, [0, *ends[:-1]], length, ends, packet, time, order, released, 0, len(length))


# -- a run ------------------------------------------------------------------------------------------------------------

_RUNS: Final = (
    Layout(ShardState, new=lambda: ShardState(Inspector(), Enricher(), set())),
    Layout(Carried, new=lambda: Carried([], Sessions(), LearnedFacts())),
    Layout(
        Inspector,
        {
            "_ports": frozenset[int],
            "_show_secrets": bool,
            "_detail": Detail,
            "_options": ConnectionOptions,
            "_want_exchanges": bool,
            "_want_connections": bool,
            "_reassembler": Reassembler,
            "_connections": int,
            "_exchanges": int,
            "_captures": tuple[str, ...],
            "_only_capture": str | None,
            "_known_brokers": _most(set[Port], memory_budget.MAX_ENDPOINTS),
            "summary": Summary,
            "names": _most(dict[str, str], memory_budget.MAX_NAMES),
            "keys": keylog.KeyLog,
            "judged": set[Key] | None,
        },
        new=Inspector,
        # The options for shared bodies and memory are set by the code that resumes the state.
        without=frozenset({"_emitter", "_feeder", "_kernel", "_memory", "_windows"}),
        paths={
            **{f"_{name}": f"_state.{name}" for name in ("ports", "show_secrets", "detail", "options", "reassembler")},
            **{f"_{name}": f"_state.{name}" for name in ("want_exchanges", "want_connections", "known_brokers")},
            **{f"_{name}": f"_state.{name}" for name in ("connections", "exchanges", "captures", "only_capture")},
            **{name: f"_state.{name}" for name in ("summary", "names", "keys", "judged")},
        },
        views={"_reassembler": lambda inspector: inspector.reassembler},
        after=_complete,
        alone=True,
    ),
    Layout(Summary, new=Summary),
    Layout(ConnectionOptions, made=ConnectionOptions),
    Layout(
        Detail,
        {"_full": DecodeOptions, "level": Literal[0, 1, 2, 3], "left_out": LeftOut},
        new=lambda: Detail(DecodeOptions()),
        without=frozenset({"_decodes", "_renderer", "ahead", "decode", "hides"}),
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
            "_unknown": _most(set[str], MAX_UNKNOWN),
            "_metadata_log": bool,
        },
        new=Enricher,
        # Where to look in messages is found again; the others belong to one message.
        without=frozenset({"_again", "_begun", "_lost", "_misses", "_problems", "_ways"}),
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
            "_topics": _most(dict[str, str], MAX_TOPICS),
            "_brokers": _most(OrderedDict[Place, Broker], MAX_BROKERS),
            "_software": _most(OrderedDict[int, tuple[str, str]], MAX_SOFTWARE),
        },
        new=Catalog,
        without=frozenset({"_most_brokers", "_most_connections", "_pairs", "most_topics"}),
    ),
    Layout(
        LearnedFacts,
        {
            "topics": _most(dict[str, tuple[int, str]], MAX_FACTS),
            "brokers": _most(dict[Place, dict[int, int]], MAX_FACTS),
            "hosts": dict[str, str],
            "software": _most(dict[int, tuple[str, str | None]], MAX_FACTS),
            "kafka": _most(dict[Place, int], MAX_FACTS),
        },
        new=LearnedFacts,
    ),
    Layout(
        FetchSessions,
        {
            "_sessions": _most(OrderedDict[tuple[Endpoint | None, int], FetchSession], MAX_SESSIONS),
            "_pending": _most(
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
        without=frozenset({"_gone", "_learned", "_names"}),
    ),
    Layout(
        Sessions,
        {
            "_sessions": FetchSessions,
            "_answers": _most(list[tuple[int, int, Endpoint, int | None, int]], MAX_ANSWERS),
            "_number": int,
        },
        new=Sessions,
    ),
)

# -- connections, from below --------------------------------------------------------------------------------------

_TCP: Final = (
    Layout(
        Reassembler,
        {
            "_table": list[TcpConnection],
            "_clock": int,
            "_deadlines": list[tuple[int, int, TcpConnection]],
            "_scheduled": int,
            "_end_order": int,
            "_end_clock": int,
        },
        new=Reassembler,
        # The idle time is the program's; the others belong to one batch.
        without=frozenset({"_idle", "_linger", "_ticks", "elsewhere", "holding", "opened"}),
        views={"_table": lambda reassembler: list(reassembler._table.values()), "_deadlines": _due},
        after=_index,
    ),
    Layout(
        TcpConnection,
        {
            "endpoints": Key,
            "first_order": int,
            "first_packet": int,
            "first_time": int,
            "seen": int,
            "streams": tuple[Stream, Stream],
            "packets": int,
            "clock": int,
            "deadline": int,
            "closed": bool,
            "reset_by": Side | None,
            "ended": tuple[Side | None, int],
            "pending_syn": Packet | None,
            "last_packet": int,
            "last_time": int,
            "_counts": dict[str, int],
            "untold_repeated": int,
            "untold_ignored": int,
            "owner": connection_stats.InspectedConnection,
        },
        new=lambda: TcpConnection(((0, 0, 0), (0, 0, 0)), Packet(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
        without=frozenset({"items", "buffer", "place"}),
        after=_share_endpoints,
    ),
    Layout(
        Stream,
        {
            "next": int | None,
            "begin": int,
            "isn": int | None,
            "fin": int | None,
            "finished": bool,
            "held": _most(list[Held], MAX_HELD_SEGMENTS),
            "held_bytes": int,
            "missing": _most(list[tuple[int, int]], MAX_MISSING),
            "opened_count": int,
            "acked": int,
            "heard": bool,
            "ack": int | None,
            "passed": int,
            "ahead_next": int,
            "ahead_count": int,
            "repeated": int,
            "ignored": int,
            "recent": _most(list[Port], RECENT),
            "bulk": tuple[list[int], list[int], list[int]] | None,
        },
    ),
)

_ITEMS: Final = (
    Layout(
        segments.Run,
        {
            "buffer": bytes,
            "length": list[int],
            "packet": list[int],
            "time": list[int],
            "order": list[int],
            "released": list[int],
        },
        made=_run,
        views={
            "buffer": _bytes_of,
            **{name: _column(name) for name in ("length", "packet", "time", "order", "released")},
        },
    ),
    *(
        Layout(kind, made=kind)
        for kind in (
            segments.Stretch,
            segments.Started,
            segments.Gap,
            segments.Hole,
            segments.Retransmit,
            segments.Late,
            segments.TcpProblem,
            segments.Wrapped,
            segments.Rejected,
            segments.Closed,
        )
    ),
)

_TLS: Final = (
    Layout(
        keylog.KeyLog,
        {
            "_captured": _most(dict[tuple[str, bytes], tuple[int, bytes]], keylog.MAX_SECRETS),
            "_since": int | None,
            "_flaws": _most(list[str], keylog.MAX_FLAWS),
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
            "_aligned": _pair(bool),
            "_heads": _pair(bytes),
            "_held": _most(list[segments.Item], gate.MAX_HELD),
        },
    ),
    Layout(
        session.TlsSession,
        {
            "_halves": tuple[Half, Half],
            "_clear": clear.ClearBytes,
            "_talk": Negotiation,
            "_flowing": bool,
            "_over": bool,
            "_problems_found": int,
            "_order": int,
            "_time": int,
            "_packet": int,
            "_keys": keylog.KeyLog,
        },
        new=lambda: session.TlsSession(keylog.KeyLog(), 0),
        without=frozenset({"_out"}),
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
            "_alpn": str | None,
        },
    ),
    Layout(clear.ClearBytes, {"_pieces": tuple[clear._Pieces, clear._Pieces], "size": _pair(int)}),
    Layout(
        clear._Pieces,
        {"data": list[bytes], "packet": list[int], "time": list[int], "order": list[int], "released": list[int]},
    ),
)

_CONNECTIONS: Final = (
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
            "kafka": KafkaConnection,
            "tls": gate.TlsGate | None,
            "client": Endpoint | None,
            "broker": Endpoint | None,
            "id": int,
            "exchanges": dict[int, connection_stats.OpenExchange],
            "held": int,
            "turns": waits.Turns,
        },
    ),
    Layout(waits.Turns, {"answered": int | None, "muted_until": int | None, "open_until": int | None}, new=waits.Turns),
    Layout(
        connection_stats.Account,
        {
            "requests": int,
            "responses": int,
            "unanswered": int,
            "problems": int,
            "client_ids": _most(dict[str | bytes, None], connection_stats.MAX_CLIENT_IDS),
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
            "_framers": _pair(Framer | None),
            "_trials": _pair(trial.Trial | None),
            "_began": _pair(bool),
            "_holes": _pair(bool),
            "_syn": _pair(bool),
            "_oversized": int,
            "_boundaries": Boundaries,
            "_closed": bool,
            "bytes_seen": int,
            "bytes_of": _pair(int),
            "retransmits": int,
            "framed_of": _pair(int),
            "bytes_lost": int,
            "lost_of": _pair(int),
            "pending_of": _pair(int),
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

_STREAMS: Final = (
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
            "_searchers": _pair(search.Searcher | None),
            "_proxied": _pair(bool),
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
            "_data": _most(bytearray, search.MAX_SEARCH),
            "_clipped": bool,
            "_base": int,
            "_ends": list[int],
            "_packets": list[int],
            "_times": list[int],
            "_orders": list[int],
            "_released": list[int],
            "_requests": list[search._Candidate],
            "_responses": list[search._Candidate],
            "_scanned_requests": int,
            "_scanned_responses": int,
        },
        after=_check_segments,
    ),
    Layout(
        search._Candidate,
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

_EXCHANGES: Final = (
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
            "unread_of": _pair(int),
            "one_sided": bool,
        },
    ),
    Layout(
        exchange.Ledger,
        {
            "_open": _most(OrderedDict[int, exchange.Pending], exchange.MAX_OUTSTANDING),
            "_passed": _most(OrderedDict[int, exchange.Pending], exchange.MAX_OUTSTANDING),
            "_silent": _most(OrderedDict[int, exchange.Pending], exchange.MAX_SILENT),
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
            "_waiting": _most(OrderedDict[int, tuple[int, int, Frame]], early.MAX_EARLY),
            "_refused": _most(set[int], early.MAX_EARLY),
            "_by_id": dict[int, deque[int]],
            "_bytes": int,
            "_clock": int,
            "_next": int,
        },
    ),
    Layout(
        ConnectionMemory,
        {
            "_groups": _most(OrderedDict[str | bytes, GroupProtocol], MAX_GROUPS) | None,
            "sasl_mechanism": str | None,
        },
    ),
    Layout(RawSasl, {"mechanism": str | None, "_client_tokens": int, "_broker_tokens": int, "_over": bool}),
    Layout(
        opening.Opening,
        {
            "heard": bool,
            "_versions": _most(dict[int, tuple[int, int]], opening.MAX_APIS),
            "_refused": bool,
            "_handshake": bool,
            "_authenticated": bool,
            "_token": bool | None,
            "_last_ns": int,
        },
    ),
)
