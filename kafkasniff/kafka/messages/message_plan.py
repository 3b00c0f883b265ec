"""Everything needed to decode a message of a key, version and direction, looked up once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import msgspec

from kafkasniff.kafka.apis.cluster_metadata import metadata_test, secret_marks
from kafkasniff.kafka.apis.dissectors import Api, api
from kafkasniff.kafka.embedded.interpreters import asks_connection, interpreter, notes_for_later
from kafkasniff.kafka.schema.context import Interpreter
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.kafka.schema.secrets import CONNECT_MARKS
from kafkasniff.model import Body, Direction

VERSION_MARGIN: Final = 5
"""A request header is plausible with a version up to this far above the last known one."""

HEADER_OF_UNKNOWN: Final = 1
"""The request header version for an unknown API key; newer ones would only add tags."""

INHERITS: Final = 3
"""From this version of the header on, a request without a client id has the first one of its connection (KIP-1313)."""


class MessagePlan(msgspec.Struct, frozen=True, eq=False):
    """Properties of a (key, version, direction)."""

    api: str | None
    version: int
    known_version: bool
    plausible_version: bool
    header: int
    schema: Schema | None
    has_secrets: bool
    interpret: Interpreter | None
    """Decodes embedded structures."""
    secret_marks: tuple[bytes, ...]
    """Undecoded bytes may hold a secret if they contain one of these."""
    holds_metadata: Callable[[Body], bool] | None
    """Whether a body's records are those of KRaft's metadata log."""
    has_records: bool
    """Some version has `records` fields, which count for its memory (`apis.weight`)."""
    whole_records: bool
    """It has `records` fields that may not end within a batch."""
    asks_connection: bool
    """Decoding it uses or records facts of its connection."""
    needed: bool
    """Its body is decoded even if bodies are not wanted: later messages need it, or it names the client."""
    alone: bool
    """Its decoded body depends only on its own bytes and the options, and no interpreter needs secrets."""
    silences: bool
    """A field of some version decides if there is a response."""
    reads_records: bool
    """`interpret` only needs decoded records: without them it has nothing to do."""


def _plan(found: Api | None, key: int, version: int, direction: Direction) -> MessagePlan:
    """Properties of messages of an API in this direction."""
    if found is None:
        header = HEADER_OF_UNKNOWN if direction == "request" else 0
        return MessagePlan(
            api=None,
            version=version,
            known_version=False,
            plausible_version=version >= 0,
            header=header,
            schema=None,
            has_secrets=False,
            interpret=None,
            secret_marks=(),
            holds_metadata=None,
            has_records=False,
            whole_records=False,
            asks_connection=False,
            needed=False,
            alone=False,
            silences=False,
            reads_records=False,
        )
    known = version in found.versions
    request = direction == "request"
    message = found.definition.message(direction)
    schema = (found.request(version) if request else found.response(version)) if known else None
    reads = interpreter(key, direction, version)
    # Records of any topic may hold secrets of Kafka Connect; those that are always secret are the metadata log's.
    reads_records = message.has_records and not message.has_secret_records
    asks = asks_connection(key)
    return MessagePlan(
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
        has_records=message.has_records,
        whole_records=schema is not None and schema.root.whole_records,
        asks_connection=asks,
        needed=notes_for_later(key) or client_software(key) is not None,
        alone=schema is not None and not (reads is not None and (message.has_secrets or asks)),
        silences=message.silences,
        reads_records=reads_records,
    )


@functools.lru_cache(maxsize=1024)  # keys come from the wire
def client_software(api_key: int | None) -> tuple[str, str] | None:
    """Fields of an API's requests with the client's software name and version; None if it has none."""
    found = None if api_key is None else api(api_key)
    if found is None:
        return None
    named = {field.entity: field.name for field in found.definition.request.fields if not field.array}
    if not {"software_name", "software_version"} <= named.keys():
        return None
    return named["software_name"], named["software_version"]


# Keys and versions come from the wire: the caches are bounded, and larger than the number of definitions (369 pairs).
@functools.lru_cache(maxsize=4096)
def request_plan(key: int, version: int) -> MessagePlan:
    """The plan of requests of this key and version."""
    return _plan(api(key), key, version, "request")


@functools.lru_cache(maxsize=4096)
def response_plan(key: int, version: int) -> MessagePlan:
    """The plan of responses to such requests."""
    return _plan(api(key), key, version, "response")
