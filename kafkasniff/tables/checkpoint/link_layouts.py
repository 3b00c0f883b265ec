"""Layouts of what tables need besides events: logins for `connections`, packets for `transport`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kafkasniff.tables.checkpoint.graph import Layout
from kafkasniff.tables.checkpoint.layout_types import Port, most
from kafkasniff.tables.checkpoint.wire import DamagedError
from kafkasniff.tables.rows.logins import MAX_OPEN, Login, Logins, Outcome
from kafkasniff.timing.link import MAX_FLYING, MAX_RECORDS, RECENT, Link, LinkHalf
from kafkasniff.timing.stalls import MAX_HOLES, MAX_STALLS, MissingData, Stall, StallKind
from kafkasniff.timing.trouble import Budget
from kafkasniff.timing.trouble_log import TroubleLog
from kafkasniff.timing.watch import LinkWatch

__all__ = ["LINKS"]

_LOW: Final = (1 << 32) - 1


def _new_link() -> Link:
    return Link(((0, 0, 0), (0, 0, 0)), 0, Budget.none(), asks=False)


def _index(watch: LinkWatch) -> None:
    links: Any = watch._halves
    ports: Any = watch._ports
    try:
        watch._ports = np.array(ports, dtype=np.uint16)
    except OverflowError:
        raise DamagedError("an invalid port") from None
    watch.index(links)


def _check_halves(link: Link) -> None:
    first, other = link.halves
    if first is other or any(half.link is not link or half.peer not in link.halves for half in link.halves):
        raise DamagedError("a connection with halves of another one")
    if first.peer is not other or other.peer is not first:
        raise DamagedError("a connection whose halves do not belong together")
    if any(half is not None and half not in link.halves for half in (link.client, link.ended_by, link.reset_by)):
        raise DamagedError("a connection that another one has ended")


def _parts(half: LinkHalf) -> list[tuple[int, int, int]]:
    """The remembered packets, whose numbers have up to 97 bits."""
    return [(one >> 64, one >> 32 & _LOW, one & _LOW) for one in half._recent]


def _join(half: LinkHalf) -> None:
    recent: Any = half._recent
    counts: Any = half._trouble
    half._holes = tuple(MissingData(*one) for one in half._holes)
    half.stalls = tuple(Stall(*one) for one in half.stalls)
    half._recent = [wire << 64 | seq << 32 | ident for wire, seq, ident in recent]
    half._trouble = None if counts is None else TroubleLog(Budget.none())
    if half._trouble is not None:
        if len(counts) != len(half._trouble.counts):
            raise DamagedError("other numbers of problems")
        half._trouble.counts = counts


LINKS: Final = (
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
    Layout(
        LinkWatch,
        {"_ports": list[int], "_halves": list[Link], "_clock": int},
        new=lambda: LinkWatch(looks_up=False),
        # The memory limit is set by the code that resumes the state. States have no connections to look up.
        without=frozenset({"_budget", "_looks_up", "_most", "_replaced", "_swept", "forgotten", "over"}),
        views={"_ports": lambda watch: watch._ports.tolist(), "_halves": LinkWatch.open_links},
        after=_index,
        alone=True,
    ),
    Layout(
        Link,
        {
            "acknowledged": int | None,
            "answered": int | None,
            "asked": int | None,
            "asked_last": int | None,
            "client": LinkHalf,
            "closed": bool,
            "ended": int | None,
            "ended_by": LinkHalf | None,
            "ends": tuple[Port, Port],
            "first_time": int,
            "halves": tuple[LinkHalf, LinkHalf],
            "last_clock": int,
            "last_time": int,
            "refused": int | None,
            "reset": bool,
            "reset_by": LinkHalf | None,
            "syns": int,
        },
        new=_new_link,
        without=frozenset({"before", "budget"}),
        after=_check_halves,
    ),
    Layout(
        LinkHalf,
        {
            "_acked": int | None,
            "_closed_since": int | None,
            "_flying": most(list[tuple[int, int, int]], MAX_FLYING),
            "_heard": int,
            "_holes": most(tuple[tuple[int, int, int, int, int], ...], MAX_HOLES),
            "_next": int | None,
            "_owed_since": int | None,
            "_recent": most(list[tuple[int, int, int]], RECENT),
            "_retried_at": int,
            "_retries": int,
            "_retry_size": int,
            "_timed_end": int | None,
            "_timed_since": int,
            "data": int,
            "fin": bool,
            "isn": int | None,
            "largest": int,
            "link": Link,
            "lost": int,
            "lost_longest_ns": int,
            "packets": int,
            "passed": int,
            "peer": LinkHalf,
            "records": most(tuple[tuple[int, int], ...], MAX_RECORDS),
            "samples": int,
            "spoke": int | None,
            "stalls": most(tuple[tuple[int, int, StallKind, int, int, int, int, bool], ...], MAX_STALLS),
            "total_ns": int,
            "_trouble": list[int] | None,
        },
        new=lambda: LinkHalf(_new_link()),
        views={
            "_holes": lambda half: tuple(map(tuple, half._holes)),
            "_recent": _parts,
            "_trouble": lambda half: half._trouble and half._trouble.counts,
            "stalls": lambda half: tuple(map(tuple, half.stalls)),
        },
        after=_join,
    ),
)
