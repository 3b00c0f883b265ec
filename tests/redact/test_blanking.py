"""Messages and records blanked for written captures: lengths stay, bytes are kept only if the decoders show them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kafkasniff import decode_request as decode_request_of
from kafkasniff.kafka.messages.message import decode_request
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.redact.message import Blanker, Copied, keep_records
from tests.craft import kafka_bytes as kafka
from tests.kafka.records_craft import GZIP, Record, batch_of, message, wrapper


def blanked(data: bytes, *, secrets: bool = False, payload: bool = False, cut: bool = False) -> bytes:
    """A request without its length."""
    blanker = Blanker(secrets=secrets, payload=payload)
    decoded = decode_request(data, 0, len(data), blanker.options, cut=cut)
    return bytes(blanker.message(data, 0, len(data), decoded, request=True, cut=cut))


PRODUCE = kafka.produce_request(7, "orders", kafka.record_batch([kafka.record(0, b"a-key", b"a-value")]))[4:]
HEADER = 8 + 2 + len("crafted")


def test_a_message_cut_anywhere_shows_no_payload() -> None:
    for size in range(len(PRODUCE)):
        data = blanked(PRODUCE[:size], cut=True)
        assert len(data) == size
        assert b"a-key" not in data, size
        assert b"a-value" not in data, size
        # The API, the version and the correlation id, as far as they are there.
        assert data[:8] == PRODUCE[: min(size, 8)], size


def test_a_body_that_may_be_misread_is_blank() -> None:
    """Surplus bytes of a Produce request could be anything, and so could all bytes before them."""
    data = blanked(PRODUCE + b"surplus")
    assert b"surplus" not in data
    assert b"orders" not in data
    assert data[:HEADER] == PRODUCE[:HEADER]


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
    whole, _ = Blanker(secrets=False, payload=True).visible(PRODUCE, message)
    assert whole is not None
    assert set(whole) == {1}, "the checksum is shown where nothing is hidden"


def records_of(field: bytes) -> tuple[dict[str, Any], list[str]]:
    context = DecodeContext(DecodeOptions())
    return decode_records(field, 0, len(field), context), [problem.kind for problem in context.problems]


def blank_records(field: bytes, *, payload: bool = False) -> bytes:
    copied = Copied(field, 0, len(field))
    keep_records(copied, 0, len(field), records_of(field)[0], payload=payload, sure=True)
    return bytes(copied.bytes)


BATCH = batch_of(
    [Record(0, 0, b"key-of-it", b"value-of-it", (("name", b"header-of-it"), ("null", None))), Record(1, 5, None, None)]
)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_old_messages(magic: int, codec: int) -> None:
    inner = message(0, b"key-of-it", b"value-of-it", magic=magic)
    field = wrapper(0, [inner], codec, magic=magic) if codec else inner
    blank = blank_records(field)
    assert len(blank) == len(field)
    assert b"of-it" not in blank
    assert blank_records(field, payload=True) == field
    reported, flaws = records_of(blank)
    assert reported["batches"][0]["crc_ok"]
    assert flaws == (["decompression-failed"] if codec else [])


def test_a_cut_batch_shows_only_its_header() -> None:
    for size in range(len(BATCH)):
        field = BATCH + BATCH[:size]
        blank = blank_records(field)
        assert b"of-it" not in blank, size
        found, flaws = records_of(blank)
        assert (found["truncated_bytes"], flaws) == (size, records_of(field)[1]), size


def test_garbage_shows_nothing() -> None:
    rng = Random(9)
    for _ in range(300):
        field = bytearray(BATCH + BATCH)
        for _ in range(rng.randrange(1, 4)):
            field[rng.randrange(len(field))] = rng.randrange(256)
        for damaged in (bytes(field), bytes(field[: rng.randrange(len(field))])):
            blank = blank_records(damaged)
            assert len(blank) == len(damaged)
            for secret in (b"key-of-i", b"alue-of-i", b"eader-of-i"):
                assert secret not in blank
            blank_records(damaged, payload=True)
