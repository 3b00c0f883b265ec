"""Payload: shown, dropped, or replaced by hashes that can be compared.

Payload is keys and values of records, values of their headers, and the fields that the definitions mark `payload`.
Which fields of a message these are is read off the layout of its version (`_way_to_payload`), so that a new API needs
no code: `records` fields, marked fields and nested messages are found wherever they are, in arrays, structs and tags.

A hash is BLAKE2b (RFC 7693) keyed with a salt: within one salt equal bytes have equal hashes, and nobody without it can
try out what the bytes were. What is left of a dropped value is its length.

What `_key` and `_value` say of the brokers' own topics stays: it is the protocol, no application's bytes. What was read
inside of other records goes with them.
"""

from __future__ import annotations

import functools
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kafkasniff.kafka import dissectors
from kafkasniff.kafka.layout import Struct
from kafkasniff.kafka.secrets import may_be_misread
from kafkasniff.model import Body, Direction, LargeBody, Message, RenderedBody, RenderedRecords
from kafkasniff.native.calls import Hiding

__all__ = ["HASH_BYTES", "SALT_BYTES", "SHOWN", "BesideRecords", "Payload", "PayloadForm", "stand_in_text"]

PayloadForm = Literal["shown", "dropped", "hashed"]

HASH_BYTES: Final = 8
"""Of a hash. Among a hundred million different values two are likely (1 in 3,700) to share none."""
SALT_BYTES: Final = 64
"""Of a salt at most: what BLAKE2b takes as a key."""

_PERSON: Final = b"kafkasniff"
_BESIDE: Final = ("_key", "_value")


class _Way(NamedTuple):
    """The fields of one struct that hold payload, and the ways to further ones."""

    records: tuple[str, ...]
    marked: tuple[str, ...]
    """Strings and bytes."""
    nested: tuple[tuple[str, Direction], ...]
    """Bytes with a whole message, which stands decoded beside them as `_request` or `_response`."""
    structs: tuple[tuple[str, _Way], ...]
    tags: bool
    """It may hold tagged fields without a definition: a newer release may have put payload there."""


def _blake2b(value: bytes, size: int, salt: bytes) -> bytes:
    # It takes OpenSSL along, and most runs hash nothing.
    from hashlib import blake2b  # noqa: PLC0415

    return blake2b(value, digest_size=size, key=salt, person=_PERSON).digest()


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """What becomes of payload. The default shows all of it."""

    form: PayloadForm = "shown"
    salt_id: str = ""
    """Of hashes: tells one salt from another, and nothing else of it."""
    salt: bytes = b""

    @classmethod
    def hashed(cls, salt: bytes) -> Payload:
        """Hashes with this salt, of 1 to `SALT_BYTES` bytes."""
        return cls("hashed", _blake2b(b"id", 8, salt).hex(), salt)

    @property
    def public(self) -> Payload:
        """The same without the salt: what may be written down."""
        return Payload(self.form, self.salt_id)

    @property
    def hiding(self) -> Hiding:
        """The same for the native kernel, with the salt."""
        return Hiding(self.form, self.salt, _PERSON)

    @property
    def hides(self) -> bool:
        """Whether there is anything to do."""
        return self.form != "shown"

    def digest(self, value: bytes) -> bytes:
        """The hash of a value, `HASH_BYTES` long."""
        return _blake2b(value, HASH_BYTES, self.salt)

    def stand_in(self, value: bytes) -> dict[str, Any]:
        """What stands for a value in a body: `{"length"}` or `{"hash", "length"}`, the hash in hex."""
        if self.form == "hashed":
            return {"hash": self.digest(value).hex(), "length": len(value)}
        return {"length": len(value)}

    def hide(self, message: Message, *, records: bool = True) -> Message:
        """The message without payload; the same one where it carries none. The message that is given is not changed.

        Of what could not be read the length is left, and the numbers of what may have been read in the wrong places:
        both may hold payload. `records` False: its records stay, for who hides them later (`body`).
        """
        key = message.api_key
        body: Any = message.body  # it may be a `RenderedBody`
        if not self.hides or key is None or (message.api is not None and not _may_carry(key)):
            return message
        if body.__class__ is RenderedBody:
            return message  # the kernel hid it
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
        """A body without payload; a new one as far as it differs. Bytes may stand as in the JSON lines.

        `version` is that of the body, which was decoded by it.
        """
        way = None if version is None else _way_to_payload(api_key, version, direction)
        return body if way is None else self._struct(body, way)

    def _struct(self, struct: Body, way: _Way) -> Body:
        hidden = LargeBody(struct) if struct.__class__ is LargeBody else dict(struct)
        for name in way.records:
            hidden = self._replace(hidden, name, self._records)
        for name in way.marked:
            hidden = self._replace(hidden, name, self._value)
        for name, inner in way.structs:
            hidden = self._replace(hidden, name, functools.partial(self._inner, way=inner))
        for name, direction in way.nested:
            hidden = self._nested(hidden, name, direction)
        if way.tags and "_unknown_tags" in hidden:
            hidden["_unknown_tags"] = [self._tag(one) for one in hidden["_unknown_tags"]]
        return hidden

    def _tag(self, kept: dict[str, Any]) -> dict[str, Any]:
        """An unknown tagged field without its bytes; redacted ones stay."""
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

    def _inner(self, value: Any, *, way: _Way) -> Any:
        return self._struct(value, way) if isinstance(value, dict) else value

    def _nested(self, struct: Body, name: str, direction: Direction) -> Body:
        """Hide what a message inside has of payload, and its bytes, unless it can have none."""
        beside = f"_{direction}"
        told = struct.get(beside)
        if not isinstance(told, dict):
            return self._replace(struct, name, self._value)
        key = told["api_key"]
        if key is None or _may_carry(key):
            self._replace(struct, name, self._value)
        if key is not None and told["body"] is not None:
            version = told.get("body_version", told["api_version"])
            struct[beside] = {**told, "body": self.body(key, version, direction, told["body"])}
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
            told = record.get(name)
            if told is not None and "type" not in told:
                del hidden[name]
        return hidden

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            value = value.encode()
        elif isinstance(value, dict) and "base64" in value:
            value = b64decode(value["base64"])
        # Null, what is redacted, and what is hidden already stay.
        return self.stand_in(value) if isinstance(value, bytes) else value


class BesideRecords(Payload, frozen=True):
    """Hides all but records, for sinks that render a large body's a few at a time, and hide each of them then."""

    @classmethod
    def of(cls, payload: Payload) -> BesideRecords:
        """The same otherwise."""
        return cls(payload.form, payload.salt_id, payload.salt)

    def _batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        return dict(batch)


SHOWN: Final = Payload()


def stand_in_text(value: dict[str, Any]) -> str | None:
    """What stands for payload in text: `12 bytes`, `hash 0123456789abcdef (12 bytes)`; None for any other struct."""
    if value.keys() == {"length"}:
        return f"{value['length']} bytes"
    if value.keys() == {"hash", "length"}:
        return f"hash {value['hash']} ({value['length']} bytes)"
    return None


@functools.lru_cache(maxsize=1024)  # keys come from the wire
def _may_carry(api_key: int) -> bool:
    """Whether messages of an API may hold payload, whatever their direction and version; True where it is not known."""
    api = dissectors.api(api_key)
    return api is None or api.definition.carries_payload


@functools.lru_cache(maxsize=4096)  # keys and versions come from the wire
def _way_to_payload(api_key: int, version: int, direction: Direction) -> _Way | None:
    """Where a message of this kind holds payload; None where nowhere, or its layout is not known."""
    api = dissectors.api(api_key)
    if api is None or version not in api.versions:
        return None
    schema = api.request(version) if direction == "request" else api.response(version)
    return _way(schema.root) if schema.root.payload else None


def _way(struct: Struct) -> _Way:
    fields = (*struct.fields, *struct.tagged)
    return _Way(
        records=tuple(field.name for field in fields if field.type == "records"),
        marked=tuple(field.name for field in fields if field.payload and field.type != "records"),
        nested=tuple((field.name, field.nests) for field in fields if field.nests is not None),
        structs=tuple(
            (field.name, _way(field.struct))
            for field in fields
            if field.struct is not None and (field.struct.payload or field.struct.flexible)
        ),
        tags=struct.flexible,
    )
