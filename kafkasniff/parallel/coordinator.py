"""The coordinator: puts in order what the shards found in a window, and answers what only the whole tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np

from kafkasniff.enrich.apart import Learnt, SessionAnswer, SessionStep, TopicTold, is_internal
from kafkasniff.enrich.catalog import Catalog
from kafkasniff.memory_limits import DEFAULT_MEMORY, MAX_ENDPOINTS
from kafkasniff.parallel.window import NOWHERE, BrokerEndpoint, Found, Given, Integers, Told

__all__ = ["AHEAD", "Coordinator", "Settled"]

AHEAD: Final = 2
"""Windows that shards may decode before the one that is settled: enough that they never wait for an answer, and each
takes memory."""

_Item = TypeVar("_Item")

Retell = Callable[[list[Told], bool], list[Told]]
"""Ask all shards again what the window's messages tell of topics, when others tell this; and everything, or only what
was not known before."""


class Settled(msgspec.Struct):
    """A window whose numbers and names are known."""

    given: list[Given]
    """By shard."""
    ranks: list[Integers]
    """By shard: the place of each event among those of all shards."""


class _Places:
    """The numbers of a shard's connections, by their places."""

    def __init__(self) -> None:
        # Place 0 stands for NOWHERE, too: before all connections.
        self._numbers = np.full(1024, NOWHERE, np.int64)
        self._count = 1

    def add(self, numbers: Integers) -> None:
        """These connections come next."""
        end = self._count + len(numbers)
        if end > len(self._numbers):
            grown = np.full(max(2 * len(self._numbers), end), NOWHERE, np.int64)
            grown[: self._count] = self._numbers[: self._count]
            self._numbers = grown
        self._numbers[self._count : end] = numbers
        self._count = end

    def numbers(self, places: Integers) -> Integers:
        """By their places."""
        return self._numbers[np.maximum(places, 0)]


class Coordinator:
    """Settles windows, in their order. `catalog`: what is known from the beginning, a copy of its own.

    `names`: whether the names of the topics of fetch sessions are wanted; `memory`: the budget of all shards, in bytes.
    """

    def __init__(self, shards: int, catalog: Catalog, *, names: bool, memory: int = DEFAULT_MEMORY) -> None:
        self._learnt = Learnt(catalog, names=names)
        self._learnt.limit_memory(memory)
        self._places = [_Places() for _ in range(shards)]
        self._connections = 0
        self._exchanges = 0
        self._brokers: set[BrokerEndpoint] = set()
        self._internal = 0
        """Windows that may still hold messages that were gone through before a topic of the brokers' own was told."""

    def asks(self, found: Sequence[Found]) -> bool:
        """Whether settling the next window takes asking the shards again."""
        return bool(self._internal) or _internal(found) or self._is_full(found)

    def settle(self, found: Sequence[Found], retell: Retell) -> Settled:
        """Settle the next window; `found` by shard."""
        connections = self._number_connections(found)
        ranks = self._rank(found)
        exchanges = self._number_exchanges(found, ranks)
        told = [one.told for one in found]
        if self.asks(found):
            told = self._ask(told, ranks, retell, everything=self._is_full(found))
        sessions = self._sessions(told, found, ranks)
        foreign = _to_others(told, ranks)
        brokers = _to_others([self._new_brokers(one.brokers) for one in found], ranks)
        for one in found:
            self._brokers.update(broker for _, broker in one.brokers[: MAX_ENDPOINTS - len(self._brokers)])
        given = [Given(*parts) for parts in zip(connections, exchanges, foreign, brokers, sessions, strict=True)]
        return Settled(given, ranks)

    def _number_connections(self, found: Sequence[Found]) -> list[Integers]:
        numbers = [self._connections + 1 + place for place in _places_among([one.opened for one in found])]
        self._connections += sum(map(len, numbers))
        for places, added in zip(self._places, numbers, strict=True):
            places.add(added)
        return numbers

    def _rank(self, found: Sequence[Found]) -> list[Integers]:
        """By the order of the packet, then by the number of the connection; events of one are in order already."""
        orders = np.concatenate([one.orders for one in found])
        numbers = np.concatenate([places.numbers(one.places) for places, one in zip(self._places, found, strict=True)])
        sorted_rows = np.lexsort((numbers, orders))  # stable
        ranks = np.empty(len(orders), np.int64)
        ranks[sorted_rows] = np.arange(len(orders))
        return np.split(ranks, np.cumsum([len(one.orders) for one in found])[:-1])

    def _number_exchanges(self, found: Sequence[Found], ranks: list[Integers]) -> list[Integers]:
        begun = [rank[one.begun] for rank, one in zip(ranks, found, strict=True)]
        numbers = [self._exchanges + 1 + place for place in _places_among(begun)]
        self._exchanges += sum(map(len, numbers))
        return numbers

    def _is_full(self, found: Sequence[Found]) -> bool:
        return self._learnt.is_full(sum(len(one.told) for one in found))

    def _ask(self, told: list[Told], ranks: list[Integers], retell: Retell, *, everything: bool) -> list[Told]:
        """What the window's messages tell of topics, the whole truth.

        Records of the brokers' own topics tell of topics, too, but have to be read for it, and which topic they are of
        may be told by another shard's message. So where such a topic was told lately shards are asked again, knowing
        what others tell, until nothing changes: each time what is told up to one more such message is true.
        """
        self._internal = max(self._internal - 1, 0)
        while True:
            if any(is_internal(topic for _, topic in one) for one in told):
                # So many windows were gone through without it by now.
                self._internal = AHEAD
            again = retell(_to_others(told, ranks), everything)
            if again == told:
                return told
            told = again

    def _sessions(
        self, told: list[Told], found: Sequence[Found], ranks: list[Integers]
    ) -> list[dict[int, SessionAnswer]]:
        """Go through fetch sessions, and learn on the way, since their topics' names are what is known by then."""
        items: list[tuple[int, int, int, int, TopicTold | SessionStep]] = []
        for shard, (rank, one) in enumerate(zip(ranks, found, strict=True)):
            items.extend((int(rank[index]), 0, shard, index, topic) for index, topic in told[shard])
            for index, step in one.steps:
                # An exchange's number is its shard's own: made one that no other shard has.
                whole = msgspec.structs.replace(step, exchange=step.exchange * len(found) + shard)
                items.append((int(rank[index]), 1, shard, index, whole))
        items.sort(key=lambda item: item[:2])
        answers: list[dict[int, SessionAnswer]] = [{} for _ in found]
        for _, _, shard, index, item in items:
            answer = self._learnt.take(item)
            if answer is not None:
                answers[shard][index] = answer
        return answers

    def _new_brokers(self, brokers: list[tuple[int, BrokerEndpoint]]) -> list[tuple[int, BrokerEndpoint]]:
        return [one for one in brokers if one[1] not in self._brokers]


def _internal(found: Sequence[Found]) -> bool:
    return any(is_internal(topic for _, topic in one.told) for one in found)


def _places_among(parts: list[Integers]) -> list[Integers]:
    """Of each number, its place among those of all parts, from 0. No number comes twice in different parts."""
    every = np.concatenate(parts)
    places = np.empty(len(every), np.int64)
    places[np.argsort(every, kind="stable")] = np.arange(len(every))
    return np.split(places, np.cumsum([len(part) for part in parts])[:-1])


def _to_others(items: list[list[tuple[int, _Item]]], ranks: list[Integers]) -> list[list[tuple[int, _Item]]]:
    """What each shard has to be told of what the others tell, with the index of its first event behind it."""
    if not any(items):
        return [[] for _ in items]
    placed = [(int(ranks[shard][index]), shard, one) for shard, part in enumerate(items) for index, one in part]
    placed.sort(key=lambda item: item[0])
    return [
        [(int(np.searchsorted(rank, place)), one) for place, shard, one in placed if shard != mine]
        for mine, rank in enumerate(ranks)
    ]
