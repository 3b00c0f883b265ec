"""What entries of messages say of fetch sessions (KIP-227), read where it stands, without the rest.

The numbers of a session stand near the beginning of a Fetch request and of its response, behind fields of fixed size
only. Most requests in a session name no partitions, and a response may hold megabytes of records: to read them for
these numbers would take many times as long.
"""

from __future__ import annotations

import functools
from struct import Struct, calcsize
from typing import Final, NamedTuple

from kafkasniff.enrich.sessions import FINAL_EPOCH, goes_by_sessions
from kafkasniff.in_step import HEADER
from kafkasniff.kafka import dissectors
from kafkasniff.kafka.definition import ApiDefinition, MessageDefinition
from kafkasniff.kafka.named_apis import FETCH
from kafkasniff.model import Body
from kafkasniff.paired import PairedEntry
from kafkasniff.versions import Version

__all__ = ["has_sessions", "requested_session", "responded_session"]

_FORMS: Final = {"bool": "?", "int8": "b", "int16": "h", "error": "h", "int32": "i", "int64": "q", "uuid": "16s"}
"""Types of fixed size, as `struct` has them."""
_NO_TOPICS: Final = (bytes(8), b"\1\1")
"""Two arrays without elements, `topics` and `forgotten_topics_data`; in flexible versions the second."""


class _Head(NamedTuple):
    """Where fields are that stand in front of all those without a fixed size."""

    fields: Struct
    names: tuple[str, ...]


def has_sessions(version: Version) -> bool:
    """Whether messages of this version may go by a session."""
    return goes_by_sessions(version.key, version.version)


def requested_session(entry: PairedEntry, version: Version) -> Body | None:
    """The fields of a Fetch request that sessions are about.

    None where the request has to be read for them: it names topics that matter, or is not as it should be.
    """
    data, start, size, length = entry[4].buffer, entry[7], entry[8], entry[9]
    end = start + size
    position = start + HEADER + max(length, 0) + version.flexible
    head = _request_head(version.version)
    behind = position + head.fields.size
    if behind > end:
        return None
    found = dict(zip(head.names, head.fields.unpack_from(data, position), strict=True))
    nothing = _NO_TOPICS[version.flexible]
    if found["session_epoch"] == FINAL_EPOCH or (
        data.startswith(nothing, behind) and behind + len(nothing) <= end  # what follows the message is not its own
    ):
        return found
    return None


def responded_session(entry: PairedEntry, version: Version) -> Body | None:
    """The same of a Fetch response."""
    data, start, size = entry[4].buffer, entry[7], entry[8]
    end, position = start + size, start + 4
    if version.flexible_response:
        if position >= end or data[position]:
            return None  # tagged fields in its header: none is defined
        position += 1
    head = _response_head(version.version)
    if position + head.fields.size > end:
        return None
    return dict(zip(head.names, head.fields.unpack_from(data, position), strict=True))


@functools.cache  # as many as there are versions
def _request_head(version: int) -> _Head:
    return _head(_fetch().request, version, ("session_id", "session_epoch"))


@functools.cache
def _response_head(version: int) -> _Head:
    return _head(_fetch().response, version, ("error_code", "session_id"))


def _fetch() -> ApiDefinition:
    api = dissectors.api(FETCH)
    assert api is not None
    return api.definition


def _head(message: MessageDefinition, version: int, names: tuple[str, ...]) -> _Head:
    """Fields of these names, in their order."""
    form, found = ">", 0
    for field in message.fields:
        if version not in field.versions or field.tag is not None:
            continue
        assert not field.array
        form += _FORMS[field.type] if field.name in names else f"{calcsize('>' + _FORMS[field.type])}x"
        found += field.name in names
        if found == len(names):
            break
    return _Head(Struct(form), names)
