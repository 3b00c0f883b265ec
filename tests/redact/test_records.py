"""Records in a written capture: framing stays, keys, values and header values are blank."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.redact.copied import Copied
from kafkasniff.redact.records import keep_records
from tests.kafka.records_craft import GZIP, Record, batch_of, message, wrapper


def records_of(field: bytes) -> tuple[dict[str, Any], list[str]]:
    context = DecodeContext(DecodeOptions())
    return decode_records(field, 0, len(field), context), [problem.kind for problem in context.problems]


def blank_records(field: bytes, *, payload: bool = False) -> bytes:
    copied = Copied(field, 0, len(field))
    keep_records(copied, 0, len(field), records_of(field)[0], payload=payload, sure=True)
    return bytes(copied.bytes)


BATCH = batch_of(
    [
        Record(0, 0, b"key-of-it", b"value-of-it", (("name", b"header-of-it"), ("null", None))),
        Record(1, 5, None, None),
    ]
)


def test_records_keep_their_framing() -> None:
    blank = blank_records(BATCH)
    (before, _), (after, flaws) = records_of(BATCH), records_of(blank)
    assert flaws == []
    assert after["batches"][0]["crc_ok"]
    first, second = after["batches"][0]["records"]
    assert (first["key"], first["value"]) == (b"\xff" * 9, b"\xff" * 11)
    assert first["headers"] == [{"key": "name", "value": b"\xff" * 12}, {"key": "null", "value": None}]
    assert second == before["batches"][0]["records"][1]
    assert blank_records(BATCH, payload=True) == BATCH


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


def test_a_wrong_checksum_stays_wrong() -> None:
    broken = BATCH[:17] + b"\1\2\3\4" + BATCH[21:]
    reported, flaws = records_of(blank_records(broken))
    assert flaws == ["crc-mismatch"]
    assert reported["batches"][0]["crc"] in {0, 1}


@pytest.mark.parametrize("size", range(len(BATCH)))
def test_a_cut_batch_shows_only_its_header(size: int) -> None:
    blank = blank_records(BATCH + BATCH[:size])
    assert b"of-it" not in blank
    assert records_of(blank)[0]["truncated_bytes"] == size
    assert records_of(blank)[1] == records_of(BATCH + BATCH[:size])[1]


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
