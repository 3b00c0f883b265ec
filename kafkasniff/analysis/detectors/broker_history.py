"""The facts of `broker_facts`, indexed by broker and time, since many absences may look them up."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from operator import itemgetter
from typing import Any, Final

import numpy as np

from kafkasniff.analysis.detectors.detector import Detector

MAX_LOOKUPS: Final = 1 << 21
"""Maximum number of partitions searched for a new leader in one run: those that a broker led, once per absence."""

SHUTDOWN_NS: Final = 10_000_000_000
"""How long before a broker closes its connections a controlled shutdown may have moved its leaders."""

_Node = tuple[str | None, int]
"""A cluster as in `Clusters.group`, and a broker number."""


class BrokerHistory:
    """A detector's partial answers at one moment. Times are ns since the epoch."""

    def __init__(self, detector: Detector[Any]) -> None:
        self._nodes = _nodes(detector)
        self.epochs = _epochs(detector)
        """Rows of the partial answer `epochs` by cluster and node, with ascending epochs."""
        self._starts = {node: sorted(rows[1:], key=itemgetter("first", "epoch")) for node, rows in self.epochs.items()}
        self._listed = _listed(detector)
        self.controllers = {row["broker"] for row in detector.parts["controllers"].table().to_pylist()}
        """Endpoints of active controllers."""
        self._led, self._leaders = _leaders(detector)
        self._lookups = MAX_LOOKUPS

    def node_at(self, broker: str) -> int | None:
        """The number of the broker at an endpoint, `address:port`; None if it is unknown or ambiguous."""
        own = self._nodes.get(broker, set())
        return next(iter(own)) if len(own) == 1 else None

    def new_epoch(self, node: _Node, since_ns: int, until_ns: int | None) -> dict[str, Any] | None:
        """The first row of an epoch that began within a time, except the lowest epoch; `until_ns` None: open-ended."""
        rows = self._starts.get(node, [])
        place = bisect_left(rows, since_ns, key=itemgetter("first"))
        if place == len(rows) or (until_ns is not None and rows[place]["first"] > until_ns):
            return None
        return rows[place]

    def listed_again(self, node: _Node, since_ns: int) -> int | None:
        """When a broker's Metadata listed another one again after omitting it, from a given time on.

        None if none ever did both. Brokers that learn late who is gone, or never (without a controller), do not count.
        """
        times = (one.listed_again(node[1], since_ns) for one in self._listed.get(node[0], ()))
        return min((time for time in times if time is not None), default=None)

    def last_listed(self, node: _Node) -> int | None:
        """When Metadata of any broker last listed one."""
        times = (one.last_listed(node[1]) for one in self._listed.get(node[0], ()))
        return max((time for time in times if time is not None), default=None)

    def moved_before(self, node: _Node, at_ns: int) -> int:
        """Partitions that metadata gave to another leader just before a time: a controlled shutdown.

        0 if the searches would exceed `MAX_LOOKUPS`.
        """
        led = self._led.get(node, [])
        count = bisect_left(led, at_ns, key=itemgetter(0))
        if count > self._lookups:
            return 0
        self._lookups -= count
        found = 0
        for place in {place for _, place in led[:count]}:
            leaders = self._leaders[place]
            named_ns, leader = leaders[bisect_left(leaders, (at_ns, -1)) - 1]
            found += leader != node[1] and named_ns > at_ns - SHUTDOWN_NS
        return found

    def new_leaders(self, node: _Node, since_ns: int, until_ns: int | None) -> dict[int, int] | None:
        """The new leaders of partitions that a broker led before a given time, with partition counts.

        The first leader that metadata names within the time counts; `until_ns` None: open-ended. None if the searches
        of all absences together would exceed `MAX_LOOKUPS`.
        """
        led = self._led.get(node, [])
        count = bisect_left(led, since_ns, key=itemgetter(0))
        if count > self._lookups:
            return None
        self._lookups -= count
        found: dict[int, int] = {}
        for place in {place for _, place in led[:count]}:
            leaders = self._leaders[place]
            after = bisect_left(leaders, (since_ns, -1))
            if after == len(leaders):
                continue
            first, leader = leaders[after]
            if leader != node[1] and (until_ns is None or first <= until_ns):
                found[leader] = found.get(leader, 0) + 1
        return found


def _nodes(detector: Detector[Any]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for row in detector.parts["nodes"].table().to_pylist():
        found.setdefault(row["broker"], set()).add(row["node"])
    return found


def _epochs(detector: Detector[Any]) -> dict[_Node, list[dict[str, Any]]]:
    found: dict[_Node, list[dict[str, Any]]] = {}
    for row in detector.resolved("epochs").to_pylist():
        if row["first"] is not None:
            found.setdefault((row["cluster"], row["node"]), []).append(row)
    for rows in found.values():
        rows.sort(key=itemgetter("epoch"))
    return found


_Place = tuple[str | None, str | None, int]
"""Cluster, topic and partition."""


def _leaders(
    detector: Detector[Any],
) -> tuple[dict[_Node, list[tuple[int, _Place]]], dict[_Place, list[tuple[int, int]]]]:
    """Partitions by leader and leaders by partition, both ordered by when metadata first named the leader.

    A leader that leads again is there again.
    """
    leaders: dict[_Place, list[tuple[int, int]]] = {}
    for row in detector.resolved("leaders").to_pylist():
        if row["leader"] >= 0 and row["first"] is not None:
            place = (row["cluster"], row["topic"], row["partition"])
            leaders.setdefault(place, []).append((row["first"], row["leader"]))
    led: dict[_Node, list[tuple[int, _Place]]] = {}
    for place, changes in leaders.items():
        changes.sort()
        # Epochs also begin for other reasons, such as a smaller ISR.
        changes[:] = [next(same) for _, same in itertools.groupby(changes, key=itemgetter(1))]
        for first, leader in changes:
            led.setdefault((place[0], leader), []).append((first, place))
    for places in led.values():
        places.sort(key=itemgetter(0))
    return led, leaders


def _listed(detector: Detector[Any]) -> dict[str | None, list[_Lists]]:
    """What each broker listed, by cluster."""
    seen: dict[tuple[str | None, str | None], set[tuple[int, str]]] = {}
    for row in detector.resolved("listed").to_pylist():
        if row["first"] is not None:
            times = seen.setdefault((row["cluster"], row["broker"]), set())
            times.update({(row["first"], row["nodes"]), (row["last"], row["nodes"])})
    found: dict[str | None, list[_Lists]] = {}
    for (cluster, _), lists in seen.items():
        found.setdefault(cluster, []).append(_Lists(sorted(lists)))
    return found


class _Lists:
    """The brokers that Metadata of one broker listed, and when."""

    def __init__(self, seen: list[tuple[int, str]]) -> None:
        """`seen`: times and lists, as in the partial answer `listed`, ordered by time."""
        self._times = np.array([time for time, _ in seen], np.int64)
        by_list: dict[str, list[int]] = {}
        for place, (_, nodes) in enumerate(seen):
            by_list.setdefault(nodes, []).append(place)
        self._places: dict[int, list[list[int]]] = {}
        """By broker, the positions of the lists that contain it, grouped by equal lists."""
        for nodes, places in by_list.items():
            for node in map(int, nodes.split(",")):
                self._places.setdefault(node, []).append(places)
        self._latest: tuple[int, Any, Any] | None = None

    def listed_again(self, node: int, since_ns: int) -> int | None:
        there, before = self._of(node)
        start = int(np.searchsorted(self._times, since_ns))
        # This many of the lists before `start` lack the broker. The first list with it that is preceded by more such
        # lists follows one without it.
        without = start - int(np.searchsorted(there, start))
        index = int(np.searchsorted(before, without, side="right"))
        return int(self._times[there[index]]) if index < len(there) else None

    def last_listed(self, node: int) -> int | None:
        """Time of the last list with a broker."""
        there = self._of(node)[0]
        return int(self._times[there[-1]]) if len(there) else None

    def _of(self, node: int) -> tuple[Any, Any]:
        """The positions of lists with a broker, and how many lists without it precede each."""
        # All absences of one broker are looked up consecutively.
        if self._latest is None or self._latest[0] != node:
            there = np.sort(np.array([place for places in self._places.get(node, []) for place in places], np.int64))
            self._latest = (node, there, there - np.arange(len(there)))
        return self._latest[1:]
