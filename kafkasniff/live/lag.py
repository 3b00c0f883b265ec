"""The lag of groups, as far as exchanges show it: committed offsets and high watermarks.

The question `analyze lag` also knows what was produced and fetched, from tables.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkasniff.kafka.apis.dissectors import COMMITS, FETCH
from kafkasniff.kafka.apis.entities import mentions, text
from kafkasniff.model import Body, Exchange

__all__ = ["MAX_COMMITS", "MAX_ENDS", "GroupLag", "GroupLags"]

MAX_COMMITS: Final = 1 << 12
"""Partitions of groups whose committed offsets are kept; each is a row or a time series."""
MAX_ENDS: Final = 1 << 14
"""Partitions whose ends are kept."""

_Partition = tuple[str, int]


class GroupLag(NamedTuple):
    """One partition of a group. Names are as on the wire."""

    group: str
    topic: str
    partition: int
    committed: int
    """The last offset that the group committed, or that a broker said it had."""
    end: int
    """The high watermark of the last Fetch response."""

    @property
    def lag(self) -> int:
        """Records from the one to the other; 0 if the end is older than the commit."""
        return max(self.end - self.committed, 0)


class GroupLags:
    """Takes exchanges as they end. Above its bounds, it forgets what was committed longest ago, or first seen."""

    def __init__(self) -> None:
        self._commits: OrderedDict[tuple[str, _Partition], int] = OrderedDict()
        self._ends: dict[_Partition, int] = {}

    def feed(self, exchange: Exchange) -> None:
        """Take an exchange."""
        response = exchange.response
        if response is None:
            return
        if response.api_key == FETCH:
            self._fetched(response.body)
        elif response.api_key in COMMITS:
            named = mentions(exchange.request, response)
            # An OffsetFetch of several groups (v8) does not say here which partition belongs to which.
            if len(named.groups) == 1:
                (group,) = named.groups
                for facts in named.partitions.values():
                    # An id without a name cannot be matched with commits by name.
                    offset = -1 if facts.offset is None else facts.offset
                    if offset >= 0 and facts.topic is not None and facts.error_code == 0:
                        self._commit((group, (facts.topic, facts.partition)), offset)

    def _commit(self, key: tuple[str, _Partition], offset: int) -> None:
        self._commits[key] = offset
        self._commits.move_to_end(key)
        if len(self._commits) > MAX_COMMITS:
            self._commits.popitem(last=False)

    def _fetched(self, body: Body | None) -> None:
        """Take the watermarks of a Fetch response. Hot: `mentions` would take more than twice as long.

        A truncated body lacks fields.
        """
        ends = self._ends
        for topic in () if body is None else body.get("responses") or ():
            name = text(topic.get("topic", topic.get("_topic_name")))
            if name is None:
                continue
            for one in topic.get("partitions") or ():
                watermark = one.get("high_watermark", -1)
                if watermark >= 0 and one["error_code"] == 0:
                    partition = (name, one["partition_index"])
                    if partition not in ends and len(ends) >= MAX_ENDS:
                        # If somebody still fetches it, it soon comes back.
                        del ends[next(iter(ends))]
                    ends[partition] = watermark

    def rows(self) -> Iterator[GroupLag]:
        """The partitions of which both a commit and an end are known."""
        for (group, partition), committed in self._commits.items():
            end = self._ends.get(partition)
            if end is not None:
                yield GroupLag(group, *partition, committed, end)
