"""Keys and values of records, and values of their headers: shown, dropped, or replaced by hashes that can be compared.

A hash is BLAKE2b (RFC 7693) keyed with a salt: within one salt equal bytes have equal hashes, and nobody without it can
try out what the bytes were. What is left of a dropped value is its length.

What `_key` and `_value` say of the brokers' own topics stays: it is the protocol, no application's bytes. What was read
inside of other records goes with them.
"""

from __future__ import annotations

import functools
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from kafkasniff.kafka import dissectors
from kafkasniff.kafka.definition import FieldDefinition
from kafkasniff.kafka.secrets import may_be_misread
from kafkasniff.model import Body, Direction, Message

__all__ = ["HASH_BYTES", "SALT_BYTES", "SHOWN", "Payload", "PayloadForm", "stand_in_text"]

PayloadForm = Literal["shown", "dropped", "hashed"]

HASH_BYTES: Final = 8
"""Of a hash. Among a hundred million different values two are likely (1 in 3,700) to share none."""
SALT_BYTES: Final = 64
"""Of a salt at most: what BLAKE2b takes as a key."""

_PERSON: Final = b"kafkasniff"
_ENVELOPE: Final = 58
_INNER: Final = ("_request", "_response")
_BESIDE: Final = ("_key", "_value")
_WITH_RECORDS: Final = frozenset({0, 1, 59, 78})
"""Keys of the APIs that carry records: Produce, Fetch, FetchSnapshot, ShareFetch."""


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
        key, body = message.api_key, message.body
        if not self.hides or key is None or (message.api is not None and not _may_carry(key)):
            return message
        if body is not None:
            kinds = [problem.kind for problem in message.problems]
            if may_be_misread(kinds, cut="frame-incomplete" in kinds):
                body = {name: value for name, value in body.items() if isinstance(value, int)}
            elif records:
                body = self.body(key, message.type, body)
        if message.raw is not None:
            return msgspec.structs.replace(message, body=body, raw=None, raw_redacted=len(message.raw))
        return msgspec.structs.replace(message, body=body)

    def body(self, api_key: int, direction: Direction, body: Body) -> Body:
        """A body without payload; a new one as far as it differs. Bytes may stand as in the JSON lines."""
        if api_key == _ENVELOPE:
            for name in _INNER:
                inner = body.get(name)
                if isinstance(inner, dict) and inner["body"] is not None and inner["api_key"] is not None:
                    hidden = {**inner, "body": self.body(inner["api_key"], direction, inner["body"])}
                    return {**body, name: hidden}
            return body
        for path in _paths(api_key, direction):
            body = self._at(body, path)
        return body

    def _at(self, struct: Body, path: tuple[str, ...]) -> Body:
        field, *rest = path
        value = struct.get(field)
        if not rest:
            return struct if not isinstance(value, dict) else {**struct, field: self._records(value)}
        if not isinstance(value, list):
            return struct
        return {**struct, field: [self._at(one, tuple(rest)) for one in value]}

    def _records(self, records: dict[str, Any]) -> dict[str, Any]:
        return {**records, "batches": [self._batch(batch) for batch in records["batches"]]}

    def _batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        found = batch.get("records")
        return batch if not found else {**batch, "records": [self._record(record) for record in found]}

    def _record(self, record: dict[str, Any]) -> dict[str, Any]:
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


SHOWN: Final = Payload()


def stand_in_text(value: dict[str, Any]) -> str | None:
    """What stands for payload, for a reader: `12 bytes`, `#0123456789abcdef (12 bytes)`; None for any other struct."""
    if value.keys() == {"length"}:
        return f"{value['length']} bytes"
    if value.keys() == {"hash", "length"}:
        return f"#{value['hash']} ({value['length']} bytes)"
    return None


def _may_carry(api_key: int) -> bool:
    return api_key in _WITH_RECORDS or api_key == _ENVELOPE


@functools.lru_cache(maxsize=1024)  # keys come from the wire
def _paths(api_key: int, direction: Direction) -> tuple[tuple[str, ...], ...]:
    """Ways through arrays to the `records` fields of a message, of all its versions."""
    api = dissectors.api(api_key) if api_key in _WITH_RECORDS else None
    if api is None:
        return ()
    return tuple(_ways((api.definition.request if direction == "request" else api.definition.response).fields))


def _ways(fields: tuple[FieldDefinition, ...]) -> Iterator[tuple[str, ...]]:
    for field in fields:
        if field.type == "records":
            yield (field.name,)
        for rest in _ways(field.fields):
            yield (field.name, *rest)
