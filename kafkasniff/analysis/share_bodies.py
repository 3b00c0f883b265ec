"""What bodies of share groups say about ranges of offsets (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

SHARE_APIS: Final = ("ShareFetch", "ShareAcknowledge")
ACCEPT: Final = 1
"""Type of an acknowledgement (AcknowledgeType). 0 is a gap: no record."""
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
"""KIP-1222."""
MAX_RANGE: Final = 1 << 31
"""Maximum number of records in a range that counts; brokers acquire far fewer at a time."""


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets that a member acquired or acknowledges."""

    first_offset: int = 0
    last_offset: int = -1
    delivery_count: int | None = None
    acknowledge_types: list[int] = []
    """The type of each, or of all."""

    @property
    def size(self) -> int:
        """Number of offsets."""
        return min(max(self.last_offset - self.first_offset + 1, 0), MAX_RANGE)

    def __contains__(self, offset: int) -> bool:
        return self.first_offset <= offset <= self.last_offset

    def type_of(self, offset: int) -> int | None:
        """How an offset in the range is acknowledged; None if that is not given."""
        index = 0 if len(self.acknowledge_types) == 1 else offset - self.first_offset
        return self.acknowledge_types[index] if index < len(self.acknowledge_types) else None

    def count_of(self, kind: int) -> int:
        """Number of offsets that are acknowledged with a type."""
        return (self.size if len(self.acknowledge_types) == 1 else 1) * self.acknowledge_types.count(kind)


class SharePart(msgspec.Struct):
    """A partition in a request or response."""

    partition_index: int | None = None
    error_code: int = 0
    acknowledge_error_code: int = 0
    acquired_records: list[OffsetRange] = []
    acknowledgement_batches: list[OffsetRange] = []


class _Topic(msgspec.Struct):
    topic_id: str | None = None
    partitions: list[SharePart] = []


class ShareBody(msgspec.Struct):
    """What requests and responses have in common."""

    topics: list[_Topic] = []
    responses: list[_Topic] = []

    @classmethod
    def decode(cls, text: str | None) -> ShareBody:
        """A body as in the table `exchanges`; an empty one if there is none, or another program has written it."""
        if text is None:
            return cls()
        try:
            return _DECODER.decode(text)
        except msgspec.DecodeError:
            return cls()

    def parts(self, names: Mapping[str | None, str | None]) -> list[tuple[str | None, SharePart]]:
        """The partitions with the names of their topics, or the ids if `names` lacks them."""
        return [
            (names.get(topic.topic_id, topic.topic_id), part)
            for topic in (*self.topics, *self.responses)
            for part in topic.partitions
        ]


_DECODER: Final = msgspec.json.Decoder(ShareBody)


def topic_names(partitions: Iterable[Mapping[str, Any]] | None) -> dict[str | None, str | None]:
    """The names of topic ids, by the column `partitions` of an exchange."""
    return {
        partition["topic_id"]: partition["topic"] for partition in partitions or () if partition["topic"] is not None
    }
