"""Messages blanked for written captures: their length stays, and bytes are kept only if the decoders show them."""

from __future__ import annotations

import pytest

from kafkasniff import decode_request as decode_request_of
from kafkasniff.kafka.messages.message import Decoded, decode_request
from kafkasniff.redact.message import Blanker
from tests.craft import kafka_bytes as kafka
from tests.redact.test_payload import tagged_produce


@pytest.mark.parametrize("shown", [True, False])
def test_tagged_fields_without_a_definition_are_blanked_on_the_wire(shown: bool) -> None:
    data = tagged_produce()
    blanker = Blanker(secrets=False, payload=shown)
    decoded = decode_request(data, 0, len(data), blanker.options)
    blanked = blanker.message(data, 0, len(data), decoded, request=True, cut=False)
    assert len(blanked) == len(data)
    assert (b"secret" in blanked, b"hidden" in blanked) == (shown, shown)


def blanked(data: bytes, *, secrets: bool = False, payload: bool = False, cut: bool = False) -> bytes:
    """A request without its length."""
    blanker = Blanker(secrets=secrets, payload=payload)
    decoded = decode_request(data, 0, len(data), blanker.options, cut=cut)
    return bytes(blanker.message(data, 0, len(data), decoded, request=True, cut=cut))


PRODUCE = kafka.produce_request(7, "orders", kafka.record_batch([kafka.record(0, b"a-key", b"a-value")]))[4:]
HEARTBEAT = kafka.request(12, 0, 7, kafka.string("group") + kafka.int32(3) + kafka.string("member"))[4:]
HEADER = 8 + 2 + len("crafted")


def test_messages_without_payload_or_secrets_stay() -> None:
    assert blanked(HEARTBEAT) == HEARTBEAT


def test_keys_and_values_are_blank() -> None:
    data = blanked(PRODUCE)
    assert len(data) == len(PRODUCE)
    assert b"orders" in data
    assert b"a-key" not in data
    assert b"a-value" not in data
    assert blanked(PRODUCE, payload=True) == PRODUCE


def test_tokens_are_blank_unless_secrets_are_shown() -> None:
    token = b"\0user\0password"
    data = kafka.request(36, 0, 7, kafka.int32(len(token)) + token)[4:]
    assert blanked(data, payload=True) == data[: -len(token)] + b"\xff" * len(token)
    assert blanked(data, secrets=True) == data


@pytest.mark.parametrize("size", range(len(PRODUCE)))
def test_a_message_cut_anywhere_shows_no_payload(size: int) -> None:
    data = blanked(PRODUCE[:size], cut=True)
    assert len(data) == size
    assert b"a-key" not in data
    assert b"a-value" not in data
    # The API, the version and the correlation id, as far as they are there.
    assert data[:8] == PRODUCE[: min(size, 8)]


def test_an_undecoded_body_is_blank_after_its_header() -> None:
    unknown = PRODUCE[:2] + kafka.int16(99) + PRODUCE[4:]
    data = blanked(unknown)
    assert data.strip(b"\xff") == unknown[: len(data.rstrip(b"\xff"))]
    assert len(data.rstrip(b"\xff")) <= HEADER + 1


def test_a_body_that_may_be_misread_is_blank() -> None:
    """Surplus bytes of a Produce request could be anything, and so could all bytes before them."""
    data = blanked(PRODUCE + b"surplus")
    assert b"surplus" not in data
    assert b"orders" not in data
    assert data[:HEADER] == PRODUCE[:HEADER]


def test_an_orphan_shows_its_correlation_id() -> None:
    data = kafka.int32(77) + b"whatever it is"
    blanker = Blanker(secrets=False, payload=False)
    orphan = Decoded(correlation_id=77)
    found = blanker.message(data, 0, len(data), orphan, request=False, cut=False)
    assert found == data[:4] + b"\xff" * (len(data) - 4)


def test_visible_bytes_are_those_that_are_kept() -> None:
    """For hexdumps: 1 exactly where a written capture has the byte."""
    message = decode_request_of(PRODUCE)
    shown, one_by_one = Blanker(secrets=False, payload=False).visible(PRODUCE, message)
    assert one_by_one
    assert shown is not None
    written = blanked(PRODUCE)
    for place, (flag, byte) in enumerate(zip(shown, written, strict=True)):
        assert flag in {0, 1}
        if flag:
            assert byte == PRODUCE[place]
    assert {shown[place] for place in range(PRODUCE.index(b"a-key"), PRODUCE.index(b"a-key") + 5)} == {0}
    assert Blanker(secrets=True, payload=True).visible(PRODUCE, message) == (None, True)
