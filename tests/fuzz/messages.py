"""Messages of any API: the kernel, Python's decoder and what writes bodies agree, whatever is around the message. The
first byte of an input has direction and options; then a request, or key, version and response."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import orjson

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.apis.kafka_json import encode
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response, request_header
from kafkasniff.kafka.schema.codes import uuid_bytes
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import Field, Struct
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.sinks.jsonl import body_json
from tests.fuzz.corpus import spread, vectors_of
from tests.fuzz.intake import Intake
from tests.redact.native_blanks import Case, by_kernel, by_python, case_of, reading

MAX_LENGTH = 4000
MEGABYTES = 128
WORDS = (
    *map(bytes.fromhex, ("ffffffff", "ffff", "7fffffff", "ffffffff0f", "808080808001", "0100026162", "0023")),
    *(b"\x02" + bytes(16), b"ssl.keystore.password", b"connect-configs"),
)

RESPONSE, _SHOWN, _CUT, _RECORDS, _PAYLOAD = 1, 2, 4, 56, 64
"""Bits of the first byte: a response; …"""
_FORMS: Final = ("full", "columns", "metadata", "batches", "skip", "full", "full", "full")

MOST: Final = 4 << 20
"""Largest decompressed size of a message's records."""

_BEFORE: Final = b"\x01\x00\x00\x00\x00\x03ab"
_BEHIND: Final = b"\x00\x00\x00\x01\xfe\x02\x00"


def one_input(data: bytes) -> None:
    intake = Intake(data)
    how = intake.number()
    is_request = not how & RESPONSE
    key, version = (0, 0) if is_request else (intake.number(2, signed=True), intake.number(2, signed=True))
    message = intake.rest()
    options = DecodeOptions(
        records=_FORMS[(how & _RECORDS) >> 3],  # type: ignore[arg-type]  # each of them is one
        show_secrets=bool(how & _SHOWN),
        max_decompressed=MOST,
    )
    cut = bool(how & _CUT)

    def decoded(data: bytes, start: int, end: int) -> Decoded:
        if is_request:
            return decode_request(data, start, end, options, cut=cut)
        return decode_response(data, start, end, key, version, options, cut=cut)

    alone = decoded(message, 0, len(message))
    around = decoded(_BEFORE + message + _BEHIND, len(_BEFORE), len(_BEFORE) + len(message))
    # As text: NaN is not equal to itself.
    assert repr(around) == repr(alone), "the result depends on bytes around the message"
    if alone.body is not None:
        orjson.loads(body_json(alone.body))
    if not cut and alone.api_key is not None and alone.api_version is not None:
        _check_blanks(case_of(message, alone.api_key, alone.api_version, is_request=is_request), how)
    if is_request:
        header = request_header(message, 0, len(message))
        if header is not None:
            assert (header.api_key, header.client_id) == (alone.api_key, alone.client_id)
            _check_body(header.api_key, header.api_version, message[header.length :], request=True)
    elif len(message) >= 4:
        _check_body(key, version, message[4:], request=False)


def _check_blanks(case: Case | None, how: int) -> None:
    if case is None:
        return
    blanker, blanks = reading(secrets=bool(how & _SHOWN), payload=bool(how & _PAYLOAD))
    (found,) = by_kernel(blanks, [case])
    assert found in (None, by_python(blanker, case)), "the kernel and Python blank different bytes"


def _check_body(key: int, version: int, data: bytes, *, request: bool) -> None:
    found = api(key)
    if found is not None and version in found.versions:
        check_schema(found.request(version) if request else found.response(version), data)


def check_schema(schema: Schema, data: bytes) -> None:
    """Compare both decoders of a schema, and a correct body with the bytes written from it."""
    options = DecodeOptions(records="batches", show_secrets=True, max_decompressed=MOST, inside=False)
    context, walked, placed = (DecodeContext(options) for _ in range(3))
    read = schema.read(data, 0, len(data), context)
    result = schema.walk(data, 0, len(data), walked)
    assert repr(read) == repr(result), "the kernel and the walker differ"
    assert context.errors == walked.errors
    assert context.problems == walked.problems
    again, spans = schema.spans(data, 0, len(data), placed)
    assert repr(again) == repr(result)
    assert 0 <= result.position <= len(data)
    if not result.complete:
        assert walked.problems, "no problem says why it ended"
        return
    assert [span.start for span in spans] + [result.position] == [0] + [span.end for span in spans]
    if schema.root.records or walked.problems or "_unknown_tags" in repr(result.body):
        return
    written = encode(schema.root, _values(schema.root, result.body))
    reread = schema.read(written, 0, len(written), DecodeContext(options))
    assert reread.position == len(written)
    assert repr(reread.body) == repr(result.body), "a body that was written again is different"


def _values(layout: Struct, body: Mapping[str, Any]) -> dict[str, Any]:
    """A body with its uuids and floats as bytes."""

    def one(field: Field, value: Any) -> Any:
        if value is None:
            return None
        if field.array:
            return [single(field, item) for item in value]
        return single(field, value)

    def single(field: Field, value: Any) -> Any:
        if field.struct is not None:
            return _values(field.struct, value)
        if field.type == "uuid":
            return uuid_bytes(value)
        return struct.pack(">d", value) if field.type == "float64" else value

    known = (field for field in (*layout.fields, *layout.tagged) if field.name in body)
    return {field.name: one(field, body[field.name]) for field in known}


def seeds() -> list[bytes]:
    found = []
    for number, vector in enumerate(spread(vectors_of("request"), 300)):
        found.append(bytes(((number * 8) & 0xFA,)) + vector.data)
    for number, vector in enumerate(spread(vectors_of("response"), 300)):
        head = bytes((RESPONSE | (number * 8) & 0xFA,)) + vector.key.to_bytes(2) + vector.version.to_bytes(2)
        found.append(head + vector.data)
    return found
