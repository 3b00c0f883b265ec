"""What it takes to decode a message of a key, version and direction, looked up once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import msgspec

from kafkasniff.kafka.cluster_metadata import metadata_test, secret_marks
from kafkasniff.kafka.dissectors import Api, api
from kafkasniff.kafka.embedded import Interpreter, interpreter
from kafkasniff.kafka.schema import Schema
from kafkasniff.kafka.secrets import CONNECT_MARKS
from kafkasniff.model import Body, Direction

__all__ = ["OF_A_CONNECTION", "Plan", "request_plan", "response_plan"]

VERSION_MARGIN: Final = 5
"""A request header is plausible with a version up to this far above the last known one."""

HEADER_OF_UNKNOWN: Final = 1
"""The request header that an unknown API key is read with; what a newer one has more are tags behind it."""

OF_A_CONNECTION: Final = frozenset({11, 14, 17, 36, 58})
"""Keys whose interpreters ask what else was said: JoinGroup, SyncGroup, SaslHandshake, SaslAuthenticate, Envelope."""


class Plan(msgspec.Struct, frozen=True, eq=False):
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
    whole_records: bool
    """No `records` field of it may end within a batch."""
    alone: bool
    """What its body is read as depends on its own bytes and the options only, and no interpreter asks for secrets."""
    reads_records: bool
    """`interpret` reads nothing but decoded records: without them there is nothing to do for it."""


def _plan(found: Api | None, key: int, version: int, direction: Direction) -> Plan:
    """What messages of an API in this direction need."""
    if found is None:
        header = HEADER_OF_UNKNOWN if direction == "request" else 0
        return Plan(None, version, False, version >= 0, header, None, False, None, (), None, False, False, False)
    known = version in found.versions
    request = direction == "request"
    message = found.definition.request if request else found.definition.response
    schema = (found.request(version) if request else found.response(version)) if known else None
    reads = interpreter(key, direction, version)
    # Records of any topic may hold secrets of Kafka Connect; those that are secret anyway are the metadata log's.
    reads_records = message.has_records and not message.has_secret_records
    return Plan(
        api=found.name,
        version=version,
        known_version=known,
        plausible_version=not request or 0 <= version <= found.max_version + VERSION_MARGIN,
        header=found.request_header(version) if request else found.response_header(version),
        schema=schema,
        has_secrets=message.has_secrets,
        interpret=reads,
        secret_marks=(*secret_marks(key, direction, version), *(CONNECT_MARKS if reads_records else ())),
        holds_metadata=metadata_test(key, direction),
        whole_records=(key, direction) == (0, "request"),
        alone=schema is not None and not (reads is not None and (message.has_secrets or key in OF_A_CONNECTION)),
        reads_records=reads_records,
    )


# Keys and versions come from the wire: the caches are bounded, and larger than what is defined (369 pairs).
@functools.lru_cache(maxsize=4096)
def request_plan(key: int, version: int) -> Plan:
    """What requests of this key and version need."""
    return _plan(api(key), key, version, "request")


@functools.lru_cache(maxsize=4096)
def response_plan(key: int, version: int) -> Plan:
    """What responses to such requests need."""
    return _plan(api(key), key, version, "response")
