"""The contents of a state, class by class: attribute and type, including the bounds that a class enforces.

A new attribute of a class is added here, either to its fields or to those that are skipped (`without`), with the way to
recreate it; otherwise loading and dumping a state fails. Values are checked against these types when they are read, and
nothing else of a class comes from a state.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, Literal

from kafkasniff.engine import memory_budget
from kafkasniff.engine.followed import FollowedConnection
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich.catalog import MAX_BROKERS, MAX_FACTS, MAX_TOPICS, Broker, Catalog, LearnedFacts, Place
from kafkasniff.enrich.catalog import MAX_CONNECTIONS as MAX_SOFTWARE
from kafkasniff.enrich.enricher import MAX_UNKNOWN, Enricher
from kafkasniff.enrich.sessions import MAX_PENDING, MAX_SESSIONS, FetchSession, FetchSessions
from kafkasniff.kafka.connection.events import Detail, LeftOut, Level
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Endpoint, Summary
from kafkasniff.packets import Key, end_index, index_of, indexed_end, indexed_key
from kafkasniff.tables.checkpoint.carried import Carried, ShardState
from kafkasniff.tables.checkpoint.connection_layouts import CONNECTIONS, EXCHANGES, LOGINS
from kafkasniff.tables.checkpoint.graph import Layout
from kafkasniff.tables.checkpoint.layout_types import Port, most
from kafkasniff.tables.checkpoint.tls_layouts import ITEMS, TLS
from kafkasniff.tables.checkpoint.wire import DamagedError
from kafkasniff.tables.rows.sessions import MAX_ANSWERS, Sessions
from kafkasniff.tls import keylog

__all__ = ["layouts"]


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
    Layout(Carried, new=lambda: Carried([], Sessions(), LearnedFacts())),
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
            "_known_brokers": most(set[Port], memory_budget.MAX_ENDPOINTS),
            "summary": Summary,
            "names": most(dict[str, str], memory_budget.MAX_NAMES),
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
        without=frozenset({"_begun", "_lost", "_misses", "_plans", "_problems"}),
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
        # The memory limits are set by the code that resumes the state. Only lines follow sessions, never exports.
        without=frozenset({"_most_partitions", "_most_sessions", "changes", "followed", "let_go", "stale"}),
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
            "_answers": most(list[tuple[int, int, Endpoint, int | None, int]], MAX_ANSWERS),
            "_number": int,
        },
        new=Sessions,
    ),
)
