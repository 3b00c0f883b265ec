"""Absences of brokers, inferred from the packets of all connections to one broker.

A refused connect proves that nothing listened at that moment. An unanswered one proves less, since a firewall looks the
same. So an absence requires clients that reached the broker before or afterwards, and it ends with the next connect
that is answered. Connections that the broker closed or reset shortly before belong to it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from kafkasniff.analysis.accumulator import Accumulator, TableReading
from kafkasniff.analysis.columns import broker_endpoint, column
from kafkasniff.analysis.partials import Shape

MAX_LINKS: Final = 1 << 17
"""Maximum number of connections examined, the earliest."""
ROWS_AT_ONCE: Final = 4096
"""Rows that are Python objects at the same time."""

REACH_NS: Final = 10_000_000_000
TOGETHER_NS: Final = 1_000_000_000
AT_LEAST: Final = 3
"""Default thresholds, see `absences`."""
IDLE_NS: Final = 10_000_000_000
"""Clients silent for this long may have been disconnected for it: connections.max.idle.ms, or the limit of a proxy in
between. Such limits are longer, and servers check for idle connections only now and then, so these end up to a tenth
later.
"""

_FOREVER: Final = (1 << 63) - 1

_KEYS: Final = (
    ("connection_id", pa.int64()),
    ("time_ns", pa.int64()),
    ("end_time_ns", pa.int64()),
    ("client_ip", pa.string()),
    ("client_port", pa.int32()),
    ("opening", pa.string()),
    ("syns", pa.int64()),
    ("ended_by", pa.string()),
    ("ended_with", pa.string()),
    ("ended_ns", pa.int64()),
    ("quiet_ns", pa.int64()),
    ("broker_packets", pa.int64()),
    ("broker_data", pa.int64()),
)
TRANSPORT_READING: Final = TableReading((*(name for name, _ in _KEYS), "broker_ip", "broker_port"), optional=True)
"""Columns of the table `transport` that `add_links` needs."""


class TcpLink(msgspec.Struct, frozen=True):
    """One TCP connection, or an attempt at one. Times are ns since the epoch."""

    connection_id: int
    time_ns: int
    end_time_ns: int
    client_ip: str
    client_port: int
    opening: str | None
    """answered, refused or unanswered; None: the capture does not have its beginning."""
    syns: int
    ended_by: str | None
    """client or broker: which side closed or reset it first."""
    ended_with: str | None
    """fin or rst."""
    ended_ns: int | None
    quiet_ns: int | None
    """How long the client had been silent by then."""
    broker_packets: int
    broker_data: int
    """Payload bytes."""

    @property
    def arrives(self) -> bool:
        """The broker accepted the connection. The kernel of a dying broker may still answer a SYN."""
        return self.opening == "answered" and (self.broker_data > 0 or self.ended_by != "broker")

    @property
    def works(self) -> bool:
        """It was answered, or it was open when the capture began and the broker sent data."""
        return self.opening == "answered" or (self.opening is None and self.broker_packets > 0)

    @property
    def over_ns(self) -> int:
        """When it was closed or reset, otherwise its last packet."""
        return self.end_time_ns if self.ended_ns is None else self.ended_ns


class Absence(msgspec.Struct, frozen=True):
    """A time in which a broker accepted no connections, or in which it closed all that it had."""

    first_ns: int
    """The first dropped connection, or the first failed connect."""
    back_ns: int | None
    """The next connect that it answered; None: the capture has none."""
    dropped: tuple[TcpLink, ...]
    """Connections that it closed or reset, by time."""
    failed: tuple[TcpLink, ...]
    """Connects that were refused or unanswered, by time."""

    worked: bool = True
    """The broker had connections before."""

    @property
    def clients(self) -> list[str]:
        """Addresses of the clients that noticed."""
        return sorted({link.client_ip for link in (*self.dropped, *self.failed)})

    @property
    def span(self) -> tuple[int, int]:
        """The times before and after it, for `Spans`: it surrounds everything in between."""
        return self.first_ns - 1, _FOREVER if self.back_ns is None else self.back_ns + 1


class Spans:
    """Time spans that answer in O(log n) whether one of them surrounds another, since there may be many of both."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        pairs = np.array(sorted(spans), np.int64).reshape(-1, 2)
        self._starts = pairs[:, 0]
        self._ends = np.maximum.accumulate(pairs[:, 1])
        """The latest end of all spans that start no later."""

    def surround(self, first_ns: int, last_ns: int) -> bool:
        """Whether a span starts before `first_ns` and ends after `last_ns`."""
        index = int(np.searchsorted(self._starts, first_ns))
        return index > 0 and int(self._ends[index - 1]) > last_ns


def links_shape() -> Shape:
    """For `Detector.shapes`: a row for each connection of the table `transport`."""
    keys = (*_KEYS, ("broker", pa.string()))
    return Shape(keys=keys, order=("time_ns", "connection_id"), keep="earliest", bound=MAX_LINKS)


def add_links(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `transport` to the partial answer `links`."""
    columns = {key: column(batch, key) for key, _ in _KEYS}
    detector.parts["links"].add({**columns, "broker": broker_endpoint(batch)})


def links_by_broker(detector: Accumulator[Any]) -> dict[str, list[TcpLink]]:
    """The connections of the partial answer `links` by broker, `address:port`; each list is sorted by time."""
    found: dict[str, list[TcpLink]] = {}
    for batch in detector.parts["links"].table().to_batches(max_chunksize=ROWS_AT_ONCE):
        for row in batch.to_pylist():
            found.setdefault(row.pop("broker"), []).append(TcpLink(**row))
    for links in found.values():
        links.sort(key=lambda link: (link.time_ns, link.connection_id))
    return found


def absences(links: Sequence[TcpLink], *, reach_ns: int, together_ns: int, at_least: int) -> list[Absence]:
    """Find a broker's absences from all connections to it, sorted by time.

    `reach_ns`: how long before the first failed connect a dropped connection belongs to an absence. Without failed
    connects, at least `at_least` connections of several clients, which are all that the broker had, must be dropped
    within `together_ns`.
    """
    opened = np.array(sorted(link.time_ns for link in links if link.arrives), np.int64)
    dropped = sorted(
        (link for link in links if _is_dropped(link)), key=lambda link: (link.ended_ns, link.connection_id)
    )
    found = list(_failures(links, opened, dropped, reach_ns))
    held = {link.connection_id for absence in found for link in absence.dropped}
    rest = [link for link in dropped if link.connection_id not in held]
    found += _at_once(links, opened, rest, together_ns, at_least)
    return sorted(found, key=lambda one: one.first_ns)


def usual_absences(links: Sequence[TcpLink]) -> list[Absence]:
    """`absences` with the default thresholds of broker-gone."""
    return absences(links, reach_ns=REACH_NS, together_ns=TOGETHER_NS, at_least=AT_LEAST)


def closed_at_once(links: Sequence[TcpLink]) -> Iterator[tuple[int, int]]:
    """When a broker closed all of its connections, one of which had lasted, and did not answer a connect at once.

    Spans for `Spans`. A connection that ended then proves nothing against its client or the way to the broker; nor does
    it prove an absence, since a proxy or firewall may have ended the connections of a single client.
    """
    open_then = Spans((link.time_ns, link.over_ns) for link in links if link.works)
    opened = sorted(link.time_ns for link in links if link.arrives)
    dropped = sorted(
        (link for link in links if _is_dropped(link)), key=lambda link: (link.ended_ns, link.connection_id)
    )
    for group in _runs(dropped, TOGETHER_NS):
        first, last = _at(group[0].ended_ns), _at(group[-1].ended_ns)
        lasted = any(link.over_ns - link.time_ns > TOGETHER_NS for link in group)
        stays = open_then.surround(first, last) or bisect_right(opened, last) < bisect_right(opened, last + TOGETHER_NS)
        if lasted and not stays:
            yield first - 1, last + 1


def _is_dropped(link: TcpLink) -> bool:
    return link.works and link.ended_by == "broker" and link.ended_ns is not None


def _failures(links: Sequence[TcpLink], opened: Any, dropped: Sequence[TcpLink], reach_ns: int) -> Iterator[Absence]:
    """Absences that failed connects prove."""
    reached = {link.client_ip for link in links if link.works}
    worked_from = min((link.time_ns for link in links if link.works), default=_FOREVER)
    ends = [_at(link.ended_ns) for link in dropped]
    groups: dict[int, list[TcpLink]] = {}
    for link in links:
        # A single SYN may have been the capture's last packet.
        if link.opening == "refused" or (link.opening == "unanswered" and link.syns > 1):
            groups.setdefault(int(np.searchsorted(opened, link.time_ns)), []).append(link)
    for index, failed in groups.items():
        back = int(opened[index]) if index < len(opened) else None
        before = int(opened[index - 1]) if index else None
        first = failed[0].time_ns
        since = first - reach_ns if before is None else max(first - reach_ns, before)
        until = len(ends) if back is None else bisect_left(ends, back)
        ended = tuple(dropped[bisect_left(ends, since) : until])
        # A client that never reached the broker may be blocked by a firewall.
        proof = [link for link in failed if link.client_ip in reached]
        refused = any(link.opening == "refused" for link in proof)
        # Unanswered connects prove an absence only if the broker also dropped connections; otherwise it may be
        # unreachable.
        if refused or (proof and ended):
            start = min(first, *(_at(link.ended_ns) for link in ended)) if ended else first
            yield Absence(start, back, ended, tuple(failed), worked_from < start)


def _at_once(
    links: Sequence[TcpLink], opened: Any, dropped: Sequence[TcpLink], together_ns: int, at_least: int
) -> Iterator[Absence]:
    """Absences in which nobody tried to connect: the broker closed all connections within a moment."""
    # When a group is over, so are its connections.
    open_then = Spans((link.time_ns, link.over_ns) for link in links if link.works)
    for group in _runs(dropped, together_ns):
        first, last = _at(group[0].ended_ns), _at(group[-1].ended_ns)
        if len(group) < at_least or len({link.client_ip for link in group}) < 2 or _is_idle(group):
            continue
        stays = open_then.surround(first, last)
        index = int(np.searchsorted(opened, first, side="right"))
        back = int(opened[index]) if index < len(opened) else None
        if not stays and (back is None or back > last):
            yield Absence(first, back, tuple(group), ())


def _is_idle(group: Sequence[TcpLink]) -> bool:
    """Whether an idle limit ended the connections: all clients were silent, for about the same time."""
    quiet = [link.quiet_ns for link in group if link.quiet_ns is not None]
    # The others have sent nothing since the capture began.
    return not quiet or (min(quiet) >= IDLE_NS and max(quiet) - min(quiet) <= min(quiet) // 10)


def _runs(dropped: Iterable[TcpLink], together_ns: int) -> Iterator[list[TcpLink]]:
    """Drops that follow each other without a longer pause."""
    run: list[TcpLink] = []
    for link in dropped:
        if run and _at(link.ended_ns) - _at(run[-1].ended_ns) > together_ns:
            yield run
            run = []
        run.append(link)
    if run:
        yield run


def _at(time: int | None) -> int:
    assert time is not None
    return time
