"""The protocol by the files in `dissectors/`: definitions, their layouts, and the native kernel's programs.

A definition has all versions of a message. A layout (`Struct`) is one of them: the tree of structs and fields that
programs and the walker are based on. A program is a flat table of ops in wire order (a struct before its fields, those
of its tag section last), after a head and before a pool of the fields' names in JSON notation (`"name":`). All numbers
are in native byte order: a program never leaves its process. `kernel/program.zig` has the same structures; it has no
other knowledge of the protocol.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from struct import Struct as Packing
from typing import Final, Literal

import msgspec

from kafkasniff.kafka.schema.codes import OPERATION_BITS
from kafkasniff.model import Direction

SCALARS: Final = frozenset(
    {
        *("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64"),
        *("uuid", "string", "bytes", "records", "error"),
    }
)
"""Scalar types; `[]` in front makes an array; `[]` alone is an array of structs, `{}` a struct."""

MAX_DEPTH: Final = 24
"""Nesting of structs; Kafka's have 5 levels. Parsing, compiling and walking them recurse for each level."""

CAN_BE_NULL: Final = frozenset({"string", "bytes", "records"})
"""Scalars whose encoding has a null, as has any array and any struct."""

Secret = Literal["no", "value", "config"]
"""`value`: always secret; `config`: a configuration value, secret by the name next to it."""

Nested = Literal["request", "response"]
"""Bytes that contain a whole message, header and body."""

HIDDEN_TYPES: Final = frozenset({"string", "bytes"})
"""Types of secrets and of payload: such a field is hidden as a whole, and only its length remains."""


class Versions(msgspec.Struct, frozen=True):
    """A range of versions, both ends included; empty if `low > high`."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __str__(self) -> str:
        if self.low > self.high:
            return "none"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def within(self, other: Versions) -> bool:
        """True if every version of this range is in the other."""
        return self.low > self.high or (other.low <= self.low and self.high <= other.high)


NONE: Final = Versions(0, -1)
WAIT_REASONS: Final = ("data", "members", "leader", "replicas", "operation")
"""What a request may ask a broker to wait for (`connection.waits`)."""


class EntityChoice(msgspec.Struct, frozen=True):
    """Entities of a name whose meaning depends on another field of its struct (FindCoordinator)."""

    field: str
    """The other field, an int8; 0 in versions without it."""
    entities: tuple[tuple[int, str], ...]
    """Its values, each with an entity. With any other value the name has no entity."""


class FieldDefinition(msgspec.Struct, frozen=True):
    """A field over all versions of its message."""

    name: str
    """Kafka's name in snake_case."""
    type: str
    """One of `SCALARS`, or "struct"."""
    array: bool
    versions: Versions
    nullable: Versions
    """The versions in which Kafka allows null."""
    tag: int | None = None
    """Number in the tag section of its struct; None for a field of the body."""
    entity: str | None = None
    """Entity of an id or name: topic_name, broker_id, group_id, producer_id, transactional_id, software_name,
    software_version."""
    entity_by: EntityChoice | None = None
    enum: str | None = None
    """Name in `enums.txt`."""
    default: str | None = None
    secret: Secret = "no"
    classic: bool = False
    """True if the field keeps the encoding of older versions in flexible ones (RequestHeader.ClientId)."""
    unaligned: bool = False
    """For records: a slice of a log, which may start within a batch (FetchSnapshot)."""
    whole: bool = False
    """For records: they must end with a whole batch (Produce requests). Others may be truncated at a byte limit."""
    payload: bool = False
    """An application's bytes or text. Records are payload even without this mark."""
    nests: Nested | None = None
    """Bytes that contain a whole message (Envelope); None for all others."""
    silences: bool = False
    """A number of a request. If it is 0, there is no response (Produce's acks)."""
    tokens: Versions = NONE
    """The versions in which it names the mechanism of raw SASL tokens that follow the response."""
    fields: tuple[FieldDefinition, ...] = ()
    """For a struct."""


class MessageDefinition(msgspec.Struct, frozen=True):
    """A request, a response or a `data` block over all its versions."""

    name: str
    versions: Versions
    flexible: Versions
    """The versions with compact encodings and tag sections (KIP-482)."""
    fields: tuple[FieldDefinition, ...]
    headers: tuple[tuple[Versions, int], ...] = ()
    """The header version of each version, in ranges that follow each other; empty for a `data` block."""

    def header(self, version: int) -> int:
        """The header version of a version; unknown versions have that of the nearest known one."""
        return next((header for versions, header in self.headers if version <= versions.high), self.headers[-1][1])

    @property
    def has_secrets(self) -> bool:
        """Whether a field of any version is, or may be, a secret."""
        return any(field.secret != "no" for field in with_inner(self.fields))

    @property
    def carries_payload(self) -> bool:
        """Whether a field of any version is, or may hold, payload."""
        return any(
            field.type == "records" or field.payload or field.nests is not None for field in with_inner(self.fields)
        )

    @property
    def has_records(self) -> bool:
        """Whether any version has a `records` field."""
        return any(field.type == "records" for field in with_inner(self.fields))

    @property
    def has_floats(self) -> bool:
        """Whether a field of any version is a float64, or may contain one in a nested message."""
        return any(field.type == "float64" or field.nests is not None for field in with_inner(self.fields))

    @property
    def silences(self) -> bool:
        """Whether a field of any version decides if there is a response."""
        return any(field.silences for field in self.fields)

    def has_enum(self, name: str) -> bool:
        """Whether values of a field of any version are named in this table."""
        return any(field.enum == name for field in with_inner(self.fields))

    @property
    def nested(self) -> tuple[str, Nested] | None:
        """The field that contains a whole message, and its kind; None if there is none."""
        return next(((field.name, field.nests) for field in self.fields if field.nests is not None), None)

    @property
    def has_secret_records(self) -> bool:
        """Whether records of any version are those of the metadata log, which are decoded before they are shown."""
        return any(field.type == "records" and field.secret != "no" for field in with_inner(self.fields))


def with_inner(fields: tuple[FieldDefinition, ...]) -> Iterator[FieldDefinition]:
    """The fields, each followed by the fields of its struct."""
    for field in fields:
        yield field
        yield from with_inner(field.fields)


class ApiDefinition(msgspec.Struct, frozen=True):
    """One file `NNN_name.txt`."""

    key: int
    name: str
    summary: str
    versions: Versions
    flexible: Versions
    listeners: tuple[str, ...]
    former_names: tuple[str, ...]
    request: MessageDefinition
    response: MessageDefinition
    mutes: Versions = NONE
    """Versions whose throttled response every broker sends immediately; it reads nothing more from the connection for
    the throttle time (KIP-219)."""
    waits: tuple[str, tuple[str, ...]] | None = None
    """Why a broker may wait before it answers (`connection.waits`), and the fields of the request that limit the wait
    in milliseconds: the first one above 0 counts."""
    reports: bool = False
    """Its request reports the sender's knowledge of topics and nodes, as responses do; other requests ask."""
    from_brokers: bool = False
    """Only brokers and controllers send it, whatever listener serves it."""
    administers: bool = False
    """It inspects or changes the cluster, and moves no records, offsets or members of groups."""

    def message(self, direction: Direction) -> MessageDefinition:
        """The definition of its requests or responses."""
        return self.request if direction == "request" else self.response

    @property
    def carries_payload(self) -> bool:
        """Whether a request or a response of any version may hold payload."""
        return self.request.carries_payload or self.response.carries_payload


class DataDefinition(msgspec.Struct, frozen=True):
    """A `data` block: fields of a structure that is not a request or response."""

    message: MessageDefinition
    summary: str
    kind: str
    """header, metadata, remote-log, coordinator-key, coordinator-value, control, embedded or file."""
    id: int | None
    """Record type within its kind and topic."""
    file: str
    """Name of its file, without `.txt`; for coordinator records this determines the topic."""
    releases: tuple[str, str]
    """First and last release with it; "" if unknown or not ended."""


FORMATS: Final = {
    "bool": ("B", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "error": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Types of fixed size: format of the `struct` module (big-endian) and size in bytes."""


class Field(msgspec.Struct, frozen=True):
    """A field as it is on the wire in one version."""

    name: str
    type: str
    """A scalar of the grammar, or "struct"."""
    array: bool
    nullable: bool
    compact: bool
    """Lengths are unsigned varints of length + 1 (KIP-482), not int16 or int32."""
    struct: Struct | None
    """Present exactly when the type is "struct"."""
    tag: int | None
    secret: Secret
    entity: str | None
    entity_by: EntityChoice | None
    enum: str | None
    default: str | None
    unaligned: bool = False
    """For records: a slice that may start within a batch."""
    whole: bool = False
    """For records: they must end with a whole batch."""
    payload: bool = False
    """An application's bytes or text; `records` fields are marked, too."""
    nests: Nested | None = None
    """Bytes with a whole message, which may contain payload and secrets."""
    silences: bool = False
    """If it is 0, there is no response."""
    tokens: bool = False
    """It names the mechanism of raw SASL tokens that follow the response."""


class Struct(msgspec.Struct, frozen=True):
    """The fields of a struct in one version."""

    fields: tuple[Field, ...]
    """In wire order."""
    tagged: tuple[Field, ...]
    """Those of the tag section, in ascending order of tags."""
    flexible: bool
    """A tag section ends it."""
    size: int
    """Its minimum size in bytes."""
    errors: bool
    """It contains an error code, at any depth."""
    secrets: bool
    """It contains a secret, at any depth."""
    records: bool
    """It contains a `records` field, at any depth."""
    whole_records: bool
    """It contains records that must end with a whole batch, at any depth."""
    payload: bool
    """It contains payload, or may contain some in a nested message, at any depth."""


TOPIC_FIELDS: Final = frozenset({"name", "topic", "topic_name"})
"""Names of the field with the topic's name, in a struct with a `topic_id`."""


def topic_fields(fields: Iterable[Field | FieldDefinition]) -> tuple[str | None, str | None]:
    """The fields of a struct, in one version, with the name and the id of a topic."""
    scalars = [field for field in fields if not field.array]
    topic_id = next((scalar.name for scalar in scalars if scalar.name == "topic_id" and scalar.type == "uuid"), None)
    topic = next((scalar.name for scalar in scalars if scalar.entity == "topic_name"), None)
    if topic is None and topic_id is not None:
        topic = next(
            (scalar.name for scalar in scalars if scalar.name in TOPIC_FIELDS and scalar.type == "string"), None
        )
    return topic, topic_id


def cut(message: MessageDefinition, version: int) -> Struct:
    """The layout of one version; `version` is one of the message's."""
    return _struct(message.fields, version, version in message.flexible)


def _struct(definitions: tuple[FieldDefinition, ...], version: int, flexible: bool) -> Struct:
    present = [_field(definition, version, flexible) for definition in definitions if version in definition.versions]
    inner = [field.struct for field in present if field.struct is not None]
    fields = tuple(field for field in present if field.tag is None)
    return Struct(
        fields=fields,
        tagged=tuple(sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)),
        flexible=flexible,
        size=sum(_field_size(field) for field in fields) + flexible,
        errors=any(field.type == "error" for field in present) or any(struct.errors for struct in inner),
        secrets=any(field.secret != "no" for field in present) or any(struct.secrets for struct in inner),
        records=any(field.type == "records" for field in present) or any(struct.records for struct in inner),
        whole_records=any(field.whole for field in present) or any(struct.whole_records for struct in inner),
        payload=any(field.payload or field.nests is not None for field in present)
        or any(struct.payload for struct in inner),
    )


def _field(definition: FieldDefinition, version: int, flexible: bool) -> Field:
    return Field(
        name=definition.name,
        type=definition.type,
        array=definition.array,
        nullable=version in definition.nullable,
        compact=flexible and not definition.classic,
        struct=_struct(definition.fields, version, flexible) if definition.type == "struct" else None,
        tag=definition.tag,
        secret=definition.secret,
        entity=definition.entity,
        entity_by=definition.entity_by,
        enum=definition.enum,
        default=definition.default,
        unaligned=definition.unaligned,
        whole=definition.whole,
        payload=definition.payload or definition.type == "records",
        nests=definition.nests,
        silences=definition.silences,
        tokens=version in definition.tokens,
    )


def element_size(field: Field) -> int:
    """Minimum size of a value in bytes: for an array, of each of its elements."""
    if field.struct is not None:
        # A nullable struct begins with a mark, and is only that if null; elements are never null.
        return 1 if field.nullable and not field.array else field.struct.size
    if field.type in FORMATS:
        return FORMATS[field.type][1]
    if field.compact:
        return 1
    return 2 if field.type == "string" else 4


def _field_size(field: Field) -> int:
    if field.array:
        return 1 if field.compact else 4
    return element_size(field)


KINDS: Final = (
    *("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64"),
    *("uuid", "string", "bytes", "records", "error", "struct"),
)
"""Types by their numbers."""

FLAGS: Final = (
    *("array", "nullable", "compact", "flexible", "tagged", "secret", "watched", "config"),
    *("unaligned", "payload", "nests", "topic_id", "topic_name", "session", "set"),
)
"""Flags of an op, from the lowest bit. watched: a string or a topic id next to records, which are decoded if it names
one of the brokers' own topics. topic_name: next to a topic id. session: facts about a fetch session. set: authorized
operations, whose names are added."""

SESSION_FIELDS: Final = frozenset({"error_code", "session_id", "session_epoch"})
"""Flags in a body with a `session_id`, which lead to the added fields."""

PAIRING: Final = ("none", "silences", "mechanism", "code", "throttle")
"""Roles in the programs of pairing (`kernel/stream_roles.zig`), by number."""

SECRETS: Final = 1
WHOLE_RECORDS: Final = 2
PAYLOAD: Final = 4
"""Traits of a program: all or some of its fields are secret; its records must not end within a batch; all or some of
its fields are payload."""

_HEAD: Final = Packing("=IIIII")
_MAGIC: Final = int.from_bytes(b"KSP1", "little")
_OP: Final = Packing("=BBHHHIIIII")


class Op(msgspec.Struct, frozen=True):
    """A field, or the root."""

    name: str
    """Empty for the root."""
    kind: str
    """One of `KINDS`."""
    flags: tuple[str, ...]
    """A subset of `FLAGS`, in their order."""
    depth: int
    fields: int = 0
    """For a struct: number of fields in its body, and in its tag section."""
    tagged: int = 0
    tag: int = 0
    size: int = 0
    """Minimum size of a value, or of an array's element, in bytes."""
    next: int = 0
    """Index of the op after this one and everything nested in it."""


def ops_of(root: Struct) -> tuple[Op, ...]:
    """The ops of a layout; the first is the root."""
    ops = list(_struct_ops(root, Op("", "struct", ("flexible",) if root.flexible else (), 0, size=root.size)))
    following = _following(ops)
    return tuple(msgspec.structs.replace(op, next=after) for op, after in zip(ops, following, strict=True))


def _following(ops: list[Op]) -> list[int]:
    """For each op, the index of the next one that is not deeper."""
    following = [len(ops)] * len(ops)
    waiting: list[int] = []
    for index, op in enumerate(ops):
        while waiting and ops[waiting[-1]].depth >= op.depth:
            following[waiting.pop()] = index
        waiting.append(index)
    return following


def _struct_ops(struct: Struct, op: Op) -> Iterator[Op]:
    yield msgspec.structs.replace(op, fields=len(struct.fields), tagged=len(struct.tagged))
    topic, topic_id = topic_fields((*struct.fields, *struct.tagged))
    by_session = not op.depth and any(field.name == "session_id" for field in struct.fields)
    for field in (*struct.fields, *struct.tagged):
        roles = {
            "topic_id": topic_id is not None and field.name == topic_id,
            "topic_name": topic_id is not None and field.name == topic,
            "session": by_session and field.name in SESSION_FIELDS,
        }
        yield from _field_ops(field, struct, op.depth + 1, roles)


def _field_ops(field: Field, parent: Struct, depth: int, roles: dict[str, bool]) -> Iterator[Op]:
    inner = field.struct
    holds = {
        "array": field.array,
        "nullable": field.nullable,
        "compact": field.compact and (field.array or field.type in {"string", "bytes", "records"}),
        "flexible": inner is not None and inner.flexible,
        "tagged": field.tag is not None,
        "secret": field.secret == "value",
        "watched": parent.records and (field.type == "string" or roles["topic_id"]),
        "config": field.secret == "config",
        "unaligned": field.unaligned,
        "payload": field.payload,
        "nests": field.nests is not None,
        "set": field.enum == OPERATION_BITS,
        **roles,
    }
    flags = tuple(name for name in FLAGS if holds[name])
    op = Op(field.name, field.type, flags, depth, tag=field.tag or 0, size=element_size(field))
    if inner is None:
        yield op
    else:
        yield from _struct_ops(inner, op)


def program_of(root: Struct, *, whole_records: bool = False, roles: Sequence[int] | None = None) -> bytes:
    """The program of a layout; `whole_records`: its records must not end within a batch; `roles`: of its ops."""
    ops = ops_of(root)
    pool = bytearray()
    places: dict[str, tuple[int, int]] = {"": (0, 0)}
    for op in ops:
        if op.name not in places:
            literal = f'"{op.name}":'.encode()
            places[op.name] = len(pool), len(literal)
            pool += literal
    start = _HEAD.size + _OP.size * len(ops)
    traits = root.secrets * SECRETS | whole_records * WHOLE_RECORDS | root.payload * PAYLOAD
    parts = [_HEAD.pack(_MAGIC, start + len(pool), len(ops), start, traits)]
    for op, role in zip(ops, repeat(0) if roles is None else roles, strict=roles is not None):
        flags = sum(1 << FLAGS.index(name) for name in op.flags)
        numbers = op.fields, op.tagged, *places[op.name], op.tag, op.size, op.next
        parts.append(_OP.pack(KINDS.index(op.kind), role, flags, *numbers))
    return b"".join([*parts, bytes(pool)])


def pairing_program(root: Struct, *, reads_code: bool = False) -> bytes | None:
    """The program of the beginning of a body, up to the last field that pairing reads, with their roles; None without.

    `reads_code`: pairing reads the error code, too.
    """
    names = [_pairing_role(field, reads_code=reads_code) for field in root.fields]
    most = max((index for index, name in enumerate(names, 1) if name), default=0)
    if not most:
        return None
    beginning = msgspec.structs.replace(root, fields=root.fields[:most], tagged=())
    roles = {field.name: PAIRING.index(name) for field, name in zip(beginning.fields, names, strict=False) if name}
    return program_of(beginning, roles=[roles.get(op.name, 0) * (op.depth == 1) for op in ops_of(beginning)])


def _pairing_role(field: Field, *, reads_code: bool) -> str:
    if field.silences:
        return "silences"
    if field.tokens:
        return "mechanism"
    if field.name == "throttle_time_ms":
        return "throttle"
    return "code" if reads_code and (field.type, field.array) == ("error", False) else ""


def listing(root: Struct, title: str) -> str:
    """A readable program: one op per line, with its index, what it reads, and its flags."""
    ops = ops_of(root)
    lines = [f"# {title}: {len(ops)} ops, {len(program_of(root))} bytes, {sys.byteorder}-endian"]
    for index, op in enumerate(ops):
        words = [f"{index:4}  {'  ' * op.depth}{op.name or '(body)'}", op.kind]
        if op.kind == "struct":
            words.append(f"fields={op.fields}")
            if op.tagged:
                words.append(f"tagged={op.tagged}")
            words.append(f"next={op.next}")
        if "tagged" in op.flags:
            words.append(f"tag={op.tag}")
        words += [f"least={op.size}", *op.flags]
        lines.append(" ".join(words))
    return "\n".join([*lines, ""])
