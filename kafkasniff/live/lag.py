"""How far groups are behind, as far as exchanges show it: committed offsets and the ends of partitions.

The question `analyze lag` answers the same from tables, with the offsets that clients have fetched.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, NamedTuple, TypeVar

from kafkasniff.kafka.apis.entities import COMMITTED_BY, PartitionFacts, mentions
from kafkasniff.model import Exchange

__all__ = ["MAX_COMMITS", "MAX_ENDS", "GroupLag", "GroupLags"]

MAX_COMMITS: Final = 1 << 12
"""Partitions of groups whose committed offsets are kept; each is a row or a time series."""
MAX_ENDS: Final = 1 << 14
"""Partitions whose ends are kept."""

_Partition = tuple[str, int]
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class GroupLag(NamedTuple):
    """One partition of a group. Names are as on the wire."""

    group: str
    topic: str
    partition: int
    committed: int
    """The last offset that the group committed, or that a broker said it had."""
    end: int
    """The last known high watermark, or one past the last record produced, if that is higher."""

    @property
    def lag(self) -> int:
        """Records from the one to the other; 0 if the end is older than the commit."""
        return max(self.end - self.committed, 0)


class GroupLags:
    """Takes exchanges as they end. Above its bounds, it forgets what was longest without news."""

    def __init__(self) -> None:
        self._commits: OrderedDict[tuple[str, _Partition], int] = OrderedDict()
        self._watermarks: OrderedDict[_Partition, int] = OrderedDict()
        self._produced: OrderedDict[_Partition, int] = OrderedDict()

    def feed(self, exchange: Exchange) -> None:
        """Take an exchange. Hot for Produce and Fetch."""
        response = exchange.response
        if response is None or response.api not in _TAKE:
            return
        named = mentions(exchange.request, response)
        # An OffsetFetch of several groups (v8) does not say here which partition belongs to which.
        group = next(iter(named.groups)) if len(named.groups) == 1 else None
        take = _TAKE[response.api]
        for facts in named.partitions.values():
            # A topic id without a name cannot be matched with commits by name.
            if facts.topic is not None and facts.error_code == 0:
                take(self, (facts.topic, facts.partition), facts, group)

    def _commit(self, partition: _Partition, facts: PartitionFacts, group: str | None) -> None:
        if group is not None and facts.offset is not None and facts.offset >= 0:
            _put(self._commits, (group, partition), facts.offset, MAX_COMMITS)

    def _fetch(self, partition: _Partition, facts: PartitionFacts, _group: str | None) -> None:
        watermark = facts.high_watermark
        if watermark is not None and watermark >= 0:
            if watermark < self._watermarks.get(partition, 0):
                # The topic was made anew, or its leader lost records: what was produced before no longer counts.
                self._produced.pop(partition, None)
            _put(self._watermarks, partition, watermark, MAX_ENDS)

    def _produce(self, partition: _Partition, facts: PartitionFacts, _group: str | None) -> None:
        if facts.offset is not None and facts.offset >= 0 and facts.record_count is not None:
            end = max(facts.offset + facts.record_count, self._produced.get(partition, 0))
            _put(self._produced, partition, end, MAX_ENDS)

    def rows(self) -> Iterator[GroupLag]:
        """The partitions of which both a commit and an end are known."""
        for (group, partition), committed in self._commits.items():
            ends = [end for known in (self._watermarks, self._produced) if (end := known.get(partition)) is not None]
            if ends:
                yield GroupLag(group, *partition, committed, max(ends))


def _put(into: OrderedDict[_Key, _Value], key: _Key, value: _Value, bound: int) -> None:
    into[key] = value
    into.move_to_end(key)
    if len(into) > bound:
        into.popitem(last=False)


_TAKE: Final = {
    "Fetch": GroupLags._fetch,
    "Produce": GroupLags._produce,
    **dict.fromkeys(COMMITTED_BY, GroupLags._commit),
}
