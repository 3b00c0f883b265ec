"""Everything needed to decode a message of a key, version and direction, looked up once; its interpreter, its memory.

Interpreters decode structures embedded in messages. One gets the decoded body, from which fields may be missing if the
message was truncated, and adds its result next to the bytes as `_<field>`; values from the wire are never replaced,
except by `{"redacted": N}` if they contain a secret. Fields of secret bytes are redacted before it is called:
`context.revealed(value)` returns their bytes. Errors inside go to `context.problem`; nothing is raised.

Sets of authorized operations (KIP-430) are decoded here: bit n of an int32 represents the AclOperation of code n. The
definitions determine which fields hold such sets: those with the table `OPERATION_BITS`. Responses have them if the
request asked for them; else they hold -2147483648 and nothing is added.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from sys import getsizeof
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.kafka.apis.dissectors import api, message_of
from kafkasniff.kafka.apis.entities import may_hold_topic, metadata_test, secret_marks
from kafkasniff.kafka.schema.codes import OPERATION_BITS, enum_text
from kafkasniff.kafka.schema.context import DecodeContext, Interpreter, RenderedBody, RenderedRecords
from kafkasniff.kafka.schema.definition import FieldDefinition, MessageDefinition, Struct
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.kafka.schema.secrets import CONNECT_MARKS
from kafkasniff.model import Body, Direction

NOT_ASKED_FOR: Final = -0x80000000
"""`org.apache.kafka.common.requests.MetadataResponse.AUTHORIZED_OPERATIONS_OMITTED` and the other responses' alike."""

Place = tuple[tuple[str, ...], str]
"""The arrays on the path from the body, and the field in their elements."""


@lru_cache(maxsize=1024)
def operation_names(bits: int) -> tuple[str, ...]:
    """Names of the operations in a set, by ascending bit; `bit 20` for an unnamed one."""
    found = []
    for bit in range(32):
        mask = 1 << bit
        if bits & mask:
            # The sign bit alone means "not requested"; in a set it is an unnamed bit.
            found.append((enum_text(OPERATION_BITS, mask) if bit < 31 else None) or f"bit {bit}")
    return tuple(found)


@cache
def operation_places(api_key: int, version: int) -> tuple[Place, ...]:
    """Where a response has sets of operations; () for an unknown version."""
    found = api(api_key)
    if found is None or version not in found.versions:
        return ()
    return tuple(_places(found.response(version).root, ()))


def _places(struct: Struct, arrays: tuple[str, ...]) -> list[Place]:
    found: list[Place] = [(arrays, field.name) for field in struct.fields if field.enum == OPERATION_BITS]
    for field in struct.fields:
        if field.struct is not None and field.array:
            found += _places(field.struct, (*arrays, field.name))
    return found


def add_names(api_key: int, body: Body, version: int, _context: DecodeContext) -> None:
    """Add `_<field>` next to the sets of a response. Hot: a Metadata response can name 100,000 topics."""
    for arrays, name in operation_places(api_key, version):
        structs: Iterable[dict[str, Any]] = (body,)
        for depth, array in enumerate(arrays):
            outer = structs
            structs = body.get(array) or () if depth == 0 else [one for each in outer for one in each.get(array) or ()]
        for struct in structs:
            bits = struct.get(name)
            if bits is not None and bits != NOT_ASKED_FOR:
                struct[f"_{name}"] = list(operation_names(bits))


def names_only(interpret: Interpreter | None) -> bool:
    """Whether an interpreter, if there is one, adds only names of operations."""
    return interpret is None or (isinstance(interpret, partial) and interpret.func is add_names)


_DIRECTIONS: Final[tuple[Direction, ...]] = ("request", "response")


class _Interpreter(msgspec.Struct, frozen=True):
    """The interpreter of one API's messages in one direction."""

    place: str
    """`module:function` within `kafkasniff.kafka`."""
    connection: bool = False
    """It uses facts from earlier messages of the connection, or records facts for later ones."""
    notes: bool = False
    """It records facts, so the body is decoded even if bodies are not wanted."""
    floats: bool = False
    """Its result may contain floats."""


_READERS: Final[dict[tuple[int, Direction], tuple[_Interpreter, ...]]] = {
    (11, "request"): (_Interpreter("embedded.internal_topics:join_group_request", connection=True, notes=True),),
    (11, "response"): (_Interpreter("embedded.internal_topics:join_group_response", connection=True, notes=True),),
    (14, "request"): (_Interpreter("embedded.internal_topics:sync_group_request", connection=True),),
    (14, "response"): (_Interpreter("embedded.internal_topics:sync_group_response", connection=True),),
    (15, "response"): (_Interpreter("embedded.internal_topics:describe_groups_response"),),
    (17, "request"): (_Interpreter("embedded.sasl_messages:handshake_request", connection=True, notes=True),),
    (17, "response"): (_Interpreter("embedded.sasl_messages:handshake_response", connection=True, notes=True),),
    (36, "request"): (_Interpreter("embedded.sasl_messages:authenticate_request", connection=True, notes=True),),
    (36, "response"): (_Interpreter("embedded.sasl_messages:authenticate_response", connection=True, notes=True),),
    (58, "request"): (_Interpreter("messages.envelope:principal"),),
    (72, "request"): (_Interpreter("embedded.telemetry:push_telemetry_request", floats=True),),
}
"""By API key and direction: imported for the first such message, and called in this order, after nested messages are
decoded. Interpreters of operation sets and records follow; definitions say which messages have any."""


def interpreter(api_key: int, direction: Direction, version: int | None = None) -> Interpreter | None:
    """The interpreter for such messages, of one version or of any; None if they have none."""
    message = message_of(api_key, direction)
    found: list[Interpreter] = []
    if message is not None and message.nested is not None:
        found.append(partial(_function(f"messages.envelope:open_{message.nested[1]}"), message.nested[0]))
    found += [_function(one.place) for one in _READERS.get((api_key, direction), ())]
    if direction == "response" and message is not None and _has_operations(message, api_key, version):
        found.append(partial(add_names, api_key))
    if message is not None and message.has_records:
        if may_hold_topic(api_key, direction):
            found.append(partial(_function("embedded.internal_topics:read_topic"), api_key, direction))
        found.append(partial(_function("embedded.internal_topics:read_records"), api_key, direction))
    if len(found) < 2:
        return found[0] if found else None

    def interpret(body: Body, version: int, context: DecodeContext) -> None:
        for one in found:
            one(body, version, context)

    return interpret


def asks_connection(api_key: int) -> bool:
    """Whether decoding messages of an API uses or records facts of their connection."""
    return _is_nesting(api_key) or any(one.connection for one in _readers(api_key))


def notes_for_later(api_key: int) -> bool:
    """Whether later messages of the connection depend on the bodies of an API."""
    return any(one.notes for one in _readers(api_key))


@lru_cache(maxsize=1024)  # keys come from the wire
def may_have_floats(api_key: int) -> bool:
    """Whether bodies of an API may contain floats, in their fields or in embedded structures. Hot."""
    messages = [message for direction in _DIRECTIONS if (message := message_of(api_key, direction)) is not None]
    return any(message.has_floats for message in messages) or any(one.floats for one in _readers(api_key))


def _readers(api_key: int) -> list[_Interpreter]:
    return [one for direction in _DIRECTIONS for one in _READERS.get((api_key, direction), ())]


def _is_nesting(api_key: int) -> bool:
    """Whether such messages contain others: a nested response is decoded by the request nested in the request."""
    return any(
        message is not None and message.nested is not None
        for message in (message_of(api_key, direction) for direction in _DIRECTIONS)
    )


def _has_operations(message: MessageDefinition, api_key: int, version: int | None) -> bool:
    """Whether responses of this version, or of any, have sets of operations."""
    if not message.has_enum(OPERATION_BITS):
        return False
    return version is None or bool(operation_places(api_key, version))


def _function(place: str) -> Callable[..., Any]:
    module, function = place.split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"kafkasniff.kafka.{module}"), function)
    return found


VERSION_MARGIN: Final = 5
"""A request header is plausible with a version up to this far above the last known one."""

HEADER_OF_UNKNOWN: Final = 1
"""The request header version for an unknown API key; newer ones would only add tags."""

INHERITS: Final = 3
"""From this version of the header on, a request without a client id has the first one of its connection (KIP-1313)."""


class MessagePlan(msgspec.Struct, frozen=True, eq=False):
    """Properties of a (key, version, direction)."""

    version: int
    header: int
    api: str | None = None
    known_version: bool = False
    plausible_version: bool = True
    schema: Schema | None = None
    has_secrets: bool = False
    interpret: Interpreter | None = None
    """Decodes embedded structures."""
    secret_marks: tuple[bytes, ...] = ()
    """Undecoded bytes may hold a secret if they contain one of these."""
    holds_metadata: Callable[[Body], bool] | None = None
    """Whether a body's records are those of KRaft's metadata log."""
    has_records: bool = False
    """Some version has `records` fields, which count for its memory (`likely_bytes`)."""
    whole_records: bool = False
    """It has `records` fields that may not end within a batch."""
    asks_connection: bool = False
    """Decoding it uses or records facts of its connection."""
    needed: bool = False
    """Its body is decoded even if bodies are not wanted: later messages need it, or it names the client."""
    alone: bool = False
    """Its decoded body depends only on its own bytes and the options, and no interpreter needs secrets."""
    silences: bool = False
    """A field of some version decides if there is a response."""
    reads_records: bool = False
    """`interpret` only needs decoded records: without them it has nothing to do."""


def _plan(key: int, version: int, direction: Direction) -> MessagePlan:
    """Properties of messages of an API in this direction."""
    found = api(key)
    request = direction == "request"
    if found is None:
        header = HEADER_OF_UNKNOWN if request else 0
        return MessagePlan(version, header, plausible_version=version >= 0)
    known = version in found.versions
    message = found.definition.message(direction)
    schema = (found.request(version) if request else found.response(version)) if known else None
    reads = interpreter(key, direction, version)
    # Records of any topic may hold secrets of Kafka Connect; those that are always secret are the metadata log's.
    reads_records = message.has_records and not message.has_secret_records
    asks = asks_connection(key)
    return MessagePlan(
        version,
        found.request_header(version) if request else found.response_header(version),
        found.name,
        known,
        plausible_version=not request or 0 <= version <= found.max_version + VERSION_MARGIN,
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


@lru_cache(maxsize=1024)  # keys come from the wire
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
@lru_cache(maxsize=4096)
def request_plan(key: int, version: int) -> MessagePlan:
    """The plan of requests of this key and version."""
    return _plan(key, version, "request")


@lru_cache(maxsize=4096)
def response_plan(key: int, version: int) -> MessagePlan:
    """The plan of responses to such requests."""
    return _plan(key, version, "response")


BODY_RATIO: Final = 128
"""Maximum memory per byte of a body without records: a struct of two empty fields takes two bytes on the wire and some
250 in memory."""
RECORD_BYTES: Final = 400
"""Memory of a record, or of a batch, without keys and values."""

SCALAR_BYTES: Final = 64
"""Memory of an element of an array of numbers or strings, without a string's characters."""


class _CountedParts(NamedTuple):
    """The counted parts of a struct, over all versions."""

    each: int
    """Memory of the struct itself."""
    records: tuple[str, ...]
    scalars: tuple[str, ...]
    """Arrays of numbers and strings."""
    inner: tuple[tuple[str, _CountedParts], ...]
    """Arrays of structs, and structs with counted parts."""
    nested: str | None = None
    """Field name of the decoded nested message; only for a whole message."""

    @property
    def counts(self) -> bool:
        """Whether such a struct has counted parts."""
        return bool(self.records or self.scalars or self.inner)


@lru_cache(maxsize=1024)  # keys come from the wire
def _parts_of(api_key: int | None, direction: Direction) -> _CountedParts | None:
    """How messages that may hold records are weighed; None for all others, for which BODY_RATIO suffices."""
    message = None if api_key is None else message_of(api_key, direction)
    if message is None or not (message.has_records or message.nested):
        return None
    parts = _parts_in(message.fields)
    return parts if message.nested is None else parts._replace(nested=f"_{message.nested[1]}")


def _parts_in(fields: tuple[FieldDefinition, ...]) -> _CountedParts:
    records = tuple(field.name for field in fields if field.type == "records")
    scalars = tuple(field.name for field in fields if field.array and field.type not in {"struct", "records"})
    structs = [(field, _parts_in(field.fields)) for field in fields if field.type == "struct"]
    inner = tuple((field.name, parts) for field, parts in structs if field.array or parts.counts)
    return _CountedParts(2 * RECORD_BYTES if records else RECORD_BYTES, records, scalars, inner)


def has_records(api_key: int | None, direction: Direction) -> bool:
    """Whether `likely_bytes` counts the records of such messages, so that it does not use BODY_RATIO."""
    parts = _parts_of(api_key, direction)
    return parts is not None and parts.nested is None


def likely_bytes(api_key: int | None, direction: Direction, size: int, body: Body | RenderedBody | None) -> int:
    """Approximate memory of a message of `size` bytes on the wire, or more. Hot: only counts records."""
    if body is None:
        return size
    if isinstance(body, RenderedBody):
        return size + len(body.json)
    parts = _parts_of(api_key, direction)
    if parts is None:
        return size * BODY_RATIO
    total = _counted(parts, body)
    if parts.nested is None:
        return size + total
    inside = body.get(parts.nested)
    if inside is not None:
        total += likely_bytes(inside["api_key"], direction, 0, inside["body"])
    return size * BODY_RATIO + total


def _counted(parts: _CountedParts, struct: Body) -> int:
    """Memory of the counted parts of a struct. Hot."""
    total = 0
    for name in parts.records:
        value = struct.get(name)
        if value.__class__ is list:
            for one in value:
                total += 0 if one is None else _records(one)
        elif value is not None:
            total += _records(value)
    for name in parts.scalars:
        total += SCALAR_BYTES * len(struct.get(name) or ())
    for name, inner in parts.inner:
        value = struct.get(name)
        if not value:
            continue
        structs = (value,) if value.__class__ is dict else value
        total += inner.each * len(structs)
        if inner.counts:
            for one in structs:
                total += _counted(inner, one)
    return total


def _records(field: Any) -> int:
    """Memory of a `records` field."""
    if field.__class__ is RenderedRecords:
        # Its JSON, and its bytes on the wire.
        return 2 * len(field.json)
    total = 0
    for batch in field["batches"]:
        records = batch.get("records") or ()
        total += RECORD_BYTES + RECORD_BYTES * len(records)
        if batch.get("compression") != "none":
            total += sum([len(record.get("key") or b"") + len(record.get("value") or b"") for record in records])
    return total


def body_bytes(value: Any) -> int:
    """Memory of a body, by all its parts; objects that it holds twice count twice."""
    total = 0
    left = [value]
    while left:
        rendered_records = left.pop()
        if rendered_records is None or rendered_records is True or rendered_records is False:
            continue
        if rendered_records.__class__ is RenderedRecords:
            total += 2 * len(rendered_records.json)
            continue
        total += getsizeof(rendered_records)
        if isinstance(rendered_records, dict):
            left.extend(rendered_records.values())
        elif rendered_records.__class__ is list or rendered_records.__class__ is tuple:
            left.extend(rendered_records)
    return total
