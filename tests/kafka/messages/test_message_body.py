"""Messages with only a body: `decode_body` returns the same as the general decoder, or nothing."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.messages.message_body import decode_body
from kafkasniff.kafka.messages.message_header import request_header
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from tests.craft import kafka_bytes
from tests.kafka.records_craft import Record, batch, batch_of
from tests.vectors.reader import vectors

OPTIONS = [
    DecodeOptions(),
    DecodeOptions(show_secrets=True),
    *(DecodeOptions(records=records) for records in ("metadata", "columns", "batches", "skip")),
    DecodeOptions(records="skip", inside=False),
]
OF_A_CONNECTION = {11, 14, 17, 36, 58}
"""JoinGroup, SyncGroup, SaslHandshake, SaslAuthenticate, Envelope: other messages affect their decoding."""
BEFORE, BEHIND = b"\xff\x00", b"\x01\x02\x03"


def both(
    data: bytes,
    options: DecodeOptions,
    response_to: tuple[int, int] | None = None,
    context: DecodeContext | None = None,
) -> tuple[Decoded, dict[str, Any] | None]:
    """The results of the general decoder for a message surrounded by other bytes, and of `decode_body`."""
    start, end = len(BEFORE), len(BEFORE) + len(data)
    data = BEFORE + data + BEHIND
    context = DecodeContext(options) if context is None else context
    context.base = start
    if response_to is None:
        decoded = decode_request(data, start, end, options)
        header = request_header(data, start, end)
        if header is None:
            return decoded, None
        plan, position = request_plan(header.api_key, header.api_version), start + header.length
    else:
        decoded = decode_response(data, start, end, *response_to, options)
        plan = response_plan(*response_to)
        position = start + 4
        if plan.header:
            assert data[position] == 0
            position += 1
    return decoded, decode_body(plan, data, position, end, context)


def check(decoded: Decoded, body: dict[str, Any] | None, context: DecodeContext, options: DecodeOptions) -> bool:
    """Whether there was a body; in any case, nothing is left in the context."""
    fresh = DecodeContext(options, context.base)
    assert msgspec.structs.asdict(context) == msgspec.structs.asdict(fresh)
    if body is None:
        return False
    # repr, since NaN is not equal to itself, and for the order of fields
    assert repr(body) == repr(decoded.body)
    assert decoded.problems == decoded.errors == ()
    assert (decoded.raw, decoded.raw_redacted, decoded.body_version, decoded.carry) == (None, None, None, None)
    return True


def test_kafkas_messages_are_read_as_by_the_general_decoder() -> None:
    contexts = [(options, DecodeContext(options)) for options in OPTIONS]
    turns = itertools.cycle(contexts)
    found = missed = 0
    for vector in vectors():
        if vector.kind not in {"request", "response"} or "_unknown_tags" in vector.header:
            continue
        options, context = next(turns)
        assert vector.key is not None
        to = (vector.key, vector.version) if vector.kind == "response" else None
        if to is not None and response_plan(*to).header and vector.data[4]:
            continue  # tags in the header
        decoded, body = both(vector.data, options, to, context)
        if vector.kind == "request" and (decoded.header_tags or decoded.header is None):
            continue
        if check(decoded, body, context, options):
            found += 1
        elif vector.key not in OF_A_CONNECTION and not decoded.errors and not decoded.problems:
            # Metadata records are read in a second pass, and secrets are left to the general decoder.
            assert vector.key in {1, 59} or options.records not in {"metadata", "columns"}
            missed += vector.key not in {1, 59}
    assert found > 1000
    assert missed == 0


@pytest.mark.parametrize("records", ["full", "columns", "metadata", "batches"])
def test_records_that_are_not_whole(records: Any) -> None:
    whole = batch_of([Record(0, 0, b"k", b"v")])
    options = DecodeOptions(records=records)
    context = DecodeContext(options)
    for held, of_produce, of_fetch in (
        (whole, True, True),
        (b"", True, True),
        (whole + whole[:-1], False, True),  # a Fetch response may end within a batch
        (whole[:-1] + b"w", False, False),  # its CRC is another
        (batch(b"\x01", 1), records != "full", records != "full"),
    ):
        request = kafka_bytes.produce_request(1, "topic", held)[4:]
        assert check(*both(request, options, None, context), context, options) == of_produce
        response = kafka_bytes.fetch_response(1, "topic", held, 5)[4:]
        assert check(*both(response, options, (1, 4), context), context, options) == of_fetch
