"""What it takes to decode a message of a key, version and direction, looked up once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, NamedTuple

from kafkasniff.kafka.cluster_metadata import metadata_test, secret_marks
from kafkasniff.kafka.dissectors import api
from kafkasniff.kafka.embedded import Interpreter, interpreter
from kafkasniff.kafka.schema import Schema
from kafkasniff.kafka.secrets import CONNECT_MARKS
from kafkasniff.model import Body, Direction

__all__ = ["Plan", "request_plan", "response_plan"]

VERSION_MARGIN: Final = 5
"""A request header is plausible with a version up to this far above the last known one."""

HEADER_OF_UNKNOWN: Final = 1
"""The request header that an unknown API key is read with; what a newer one has more are tags behind it."""

_WITH_RECORDS: Final = frozenset({(0, "request"), (1, "response"), (78, "response")})
"""Produce requests, Fetch and ShareFetch responses; FetchSnapshot's records are no application's."""


class Plan(NamedTuple):
    """What a (key, version, direction) needs."""

    api: str | None
    version: int
    known_version: bool
    plausible_version: bool
    header: int
    schema: Schema | None
    has_secrets: bool
    interpret: Interpreter | None
    """Reads what lies inside bytes."""
    secret_marks: tuple[bytes, ...]
    """Where bytes that were not decoded hold one of these, they may hold a secret."""
    holds_metadata: Callable[[Body], bool] | None
    """Whether a body's records are those of KRaft's metadata log."""


def _record_marks(key: int, direction: Direction) -> tuple[bytes, ...]:
    """Those of records that hold secrets, whatever topic they are of."""
    return CONNECT_MARKS if (key, direction) in _WITH_RECORDS else ()


# Keys and versions come from the wire: the caches are bounded, and larger than what is defined (369 pairs).
@functools.lru_cache(maxsize=4096)
def request_plan(key: int, version: int) -> Plan:
    """What requests of this key and version need."""
    found = api(key)
    if found is None:
        return Plan(None, version, False, version >= 0, HEADER_OF_UNKNOWN, None, False, None, (), None)
    known = version in found.versions
    return Plan(
        found.name,
        version,
        known,
        0 <= version <= found.max_version + VERSION_MARGIN,
        found.request_header(version),
        found.request(version) if known else None,
        found.definition.request.has_secrets,
        interpreter(key, "request"),
        (*secret_marks(key, "request", version), *_record_marks(key, "request")),
        metadata_test(key, "request"),
    )


@functools.lru_cache(maxsize=4096)
def response_plan(key: int, version: int) -> Plan:
    """What responses to such requests need."""
    found = api(key)
    if found is None:
        return Plan(None, version, False, version >= 0, 0, None, False, None, (), None)
    known = version in found.versions
    return Plan(
        found.name,
        version,
        known,
        True,
        found.response_header(version),
        found.response(version) if known else None,
        found.definition.response.has_secrets,
        interpreter(key, "response"),
        (*secret_marks(key, "response", version), *_record_marks(key, "response")),
        metadata_test(key, "response"),
    )
