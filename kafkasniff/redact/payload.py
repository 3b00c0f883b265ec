"""Payload: shown, dropped, or replaced by hashes that can be compared.

Payload is keys and values of records, values of their headers, and the fields that the definitions mark `payload`.
The payload fields of a message are determined from the layout of its version (`_payload_fields`), so a new API needs no
code: `records` fields, marked fields and nested messages are found anywhere, in arrays, structs and tags.

A hash is BLAKE2b (RFC 7693) keyed with a salt: with the same salt, equal bytes have equal hashes, and nobody without
the salt can try out candidates. A dropped value leaves only its length.

Decoded `_key` and `_value` of the brokers' own topics are kept: they are protocol, not application data. Structures
decoded from other records are hidden with them.
"""

from __future__ import annotations

import functools
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.context import LargeBody, RenderedBody, RenderedRecords
from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.kafka.schema.secrets import may_be_misread
from kafkasniff.model import Body, Direction, Message
from kafkasniff.native.library import Hiding

PayloadForm = Literal["shown", "dropped", "hashed"]

HASH_BYTES: Final = 8
"""Size of a hash. Among a hundred million different values two collide with a probability of 1 in 3,700."""
SALT_BYTES: Final = 64
"""Maximum size of a salt: that of a BLAKE2b key."""

_PERSON: Final = b"kafkasniff"
_BESIDE: Final = ("_key", "_value")


class _PayloadFields(msgspec.Struct, frozen=True):
    """The fields of one struct that hold payload, and paths to other such structs."""

    records: tuple[str, ...]
    marked: tuple[str, ...]
    """Strings and bytes."""
    nested: tuple[tuple[str, Direction], ...]
    """Bytes with a whole message, which is also present decoded, as `_request` or `_response`."""
    structs: tuple[tuple[str, _PayloadFields], ...]
    tags: bool
    """It may have tagged fields without a definition: a newer release may have put payload there."""


def _blake2b(value: bytes, size: int, salt: bytes) -> bytes:
    # The import loads OpenSSL, and most runs hash nothing.
    from hashlib import blake2b  # noqa: PLC0415

    return blake2b(value, digest_size=size, key=salt, person=_PERSON).digest()


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """How payload is shown. The default shows all of it."""

    form: PayloadForm = "shown"
    salt_id: str = ""
    """For hashes: identifies the salt without revealing it."""
    salt: bytes = b""

    @classmethod
    def hashed(cls, salt: bytes) -> Payload:
        """Hashes with this salt, of 1 to `SALT_BYTES` bytes."""
        return cls("hashed", _blake2b(b"id", 8, salt).hex(), salt)

    @property
    def public(self) -> Payload:
        """The same without the salt: the part that may be stored."""
        return Payload(self.form, self.salt_id)

    @property
    def hiding(self) -> Hiding:
        """The same for the native kernel, with the salt."""
        return Hiding(self.form, self.salt, _PERSON)

    @property
    def hides(self) -> bool:
        """Whether anything is hidden."""
        return self.form != "shown"

    def digest(self, value: bytes) -> bytes:
        """The hash of a value, `HASH_BYTES` long."""
        return _blake2b(value, HASH_BYTES, self.salt)

    def stand_in(self, value: bytes) -> dict[str, Any]:
        """The replacement of a value in a body: `{"length"}` or `{"hash", "length"}`, the hash in hex."""
        if self.form == "hashed":
            return {"hash": self.digest(value).hex(), "length": len(value)}
        return {"length": len(value)}

    def hide(self, message: Message, *, records: bool = True) -> Message:
        """The message without payload; the same object if it carries none. The given message is not changed.

        Undecoded data is reduced to its length, and numbers that may have been decoded at wrong places are removed:
        both may be payload. `records` False: records are kept, for a caller that hides them later (`body`).
        """
        key = message.api_key
        body: Any = message.body  # it may be a `RenderedBody`
        if not self.hides or key is None or (message.api is not None and not may_carry(key)):
            return message
        if body.__class__ is RenderedBody:
            return message  # the kernel has hidden it
        if body is not None:
            kinds = [problem.kind for problem in message.problems]
            if may_be_misread(kinds, cut="frame-incomplete" in kinds):
                body = {name: value for name, value in body.items() if isinstance(value, int)}
            elif records:
                version = message.api_version if message.body_version is None else message.body_version
                body = self.body(key, version, message.type, body)
        if message.raw is not None:
            return msgspec.structs.replace(message, body=body, raw=None, raw_redacted=len(message.raw))
        return msgspec.structs.replace(message, body=body)

    def body(self, api_key: int, version: int | None, direction: Direction, body: Body) -> Body:
        """A body without payload; a new object where it differs. Bytes may be represented as in the JSON lines.

        `version` is the version with which the body was decoded.
        """
        plan = None if version is None else _payload_fields(api_key, version, direction)
        return body if plan is None else self._struct(body, plan)

    def _struct(self, struct: Body, plan: _PayloadFields) -> Body:
        hidden = LargeBody(struct) if struct.__class__ is LargeBody else dict(struct)
        for name in plan.records:
            hidden = self._replace(hidden, name, self._records)
        for name in plan.marked:
            hidden = self._replace(hidden, name, self._value)
        for name, inner in plan.structs:
            hidden = self._replace(hidden, name, functools.partial(self._inner, plan=inner))
        for name, direction in plan.nested:
            hidden = self._nested(hidden, name, direction)
        if plan.tags and "_unknown_tags" in hidden:
            hidden["_unknown_tags"] = [self._tag(one) for one in hidden["_unknown_tags"]]
        return hidden

    def _tag(self, kept: dict[str, Any]) -> dict[str, Any]:
        """An unknown tagged field without its bytes; redacted ones are kept."""
        if "base64" not in kept:
            return kept
        return {"tag": kept["tag"], **self.stand_in(b64decode(kept["base64"]))}

    @staticmethod
    def _replace(struct: Body, name: str, hide: Callable[[Any], Any]) -> Body:
        """Hide a field, or each of its elements."""
        value = struct.get(name)
        if value is not None:
            struct[name] = [hide(one) for one in value] if isinstance(value, list) else hide(value)
        return struct

    def _inner(self, value: Any, *, plan: _PayloadFields) -> Any:
        return self._struct(value, plan) if isinstance(value, dict) else value

    def _nested(self, struct: Body, name: str, direction: Direction) -> Body:
        """Hide the payload of a nested message, and its bytes, unless it cannot have payload."""
        beside = f"_{direction}"
        inner = struct.get(beside)
        if not isinstance(inner, dict):
            return self._replace(struct, name, self._value)
        key = inner["api_key"]
        if key is None or may_carry(key):
            self._replace(struct, name, self._value)
        if key is not None and inner["body"] is not None:
            version = inner.get("body_version", inner["api_version"])
            struct[beside] = {**inner, "body": self.body(key, version, direction, inner["body"])}
        return struct

    def _records(self, records: dict[str, Any] | RenderedRecords) -> dict[str, Any] | RenderedRecords:
        if isinstance(records, RenderedRecords):
            return records  # as above
        return {**records, "batches": [self._batch(batch) for batch in records["batches"]]}

    def _batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        found = batch.get("records")
        return batch if not found else {**batch, "records": [self.record(record) for record in found]}

    def record(self, record: dict[str, Any]) -> dict[str, Any]:
        """A record without payload."""
        hidden = {**record, "key": self._value(record.get("key")), "value": self._value(record.get("value"))}
        hidden.pop("_trace_ids", None)
        headers = record.get("headers")
        if headers:
            hidden["headers"] = [{**header, "value": self._value(header["value"])} for header in headers]
        for name in _BESIDE:
            value = record.get(name)
            if value is not None and "type" not in value:
                del hidden[name]
        return hidden

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            value = value.encode()
        elif isinstance(value, dict) and "base64" in value:
            value = b64decode(value["base64"])
        # Null, redacted and already hidden values are kept.
        return self.stand_in(value) if isinstance(value, bytes) else value


class BesideRecords(Payload, frozen=True):
    """Hides everything but records, for sinks that render the records of a large body in portions and hide each."""

    @classmethod
    def of(cls, payload: Payload) -> BesideRecords:
        """The same settings otherwise."""
        return cls(payload.form, payload.salt_id, payload.salt)

    def _batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        return dict(batch)


SHOWN: Final = Payload()


def stand_in_text(value: dict[str, Any]) -> str | None:
    """The text for a replaced value: `12 bytes`, `hash 0123456789abcdef (12 bytes)`; None for any other struct."""
    if value.keys() == {"length"}:
        return f"{value['length']} bytes"
    if value.keys() == {"hash", "length"}:
        return f"hash {value['hash']} ({value['length']} bytes)"
    return None


@functools.lru_cache(maxsize=1024)  # keys come from the wire
def may_carry(api_key: int) -> bool:
    """Whether messages of an API may hold payload, whatever their direction and version; True if unknown."""
    api = dissectors.api(api_key)
    return api is None or api.definition.carries_payload


@functools.lru_cache(maxsize=4096)  # keys and versions come from the wire
def _payload_fields(api_key: int, version: int, direction: Direction) -> _PayloadFields | None:
    """Where a message of this kind holds payload; None if nowhere, or if its layout is unknown."""
    api = dissectors.api(api_key)
    if api is None or version not in api.versions:
        return None
    schema = api.request(version) if direction == "request" else api.response(version)
    return _fields_of(schema.root) if schema.root.payload else None


def _fields_of(struct: Struct) -> _PayloadFields:
    fields = (*struct.fields, *struct.tagged)
    return _PayloadFields(
        records=tuple(field.name for field in fields if field.type == "records"),
        marked=tuple(field.name for field in fields if field.payload and field.type != "records"),
        nested=tuple((field.name, field.nests) for field in fields if field.nests is not None),
        structs=tuple(
            (field.name, _fields_of(field.struct))
            for field in fields
            if field.struct is not None and (field.struct.payload or field.struct.flexible)
        ),
        tags=struct.flexible,
    )
