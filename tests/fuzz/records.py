"""Fields of records: every byte is accounted for, whenever and in whatever form records are read. The first byte of an
input has the form, and whether the rest (the highest bit) are records, around which a batch is made."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson

from kafkasniff.kafka.record_facts import add_schema_ids
from kafkasniff.kafka.records.batches import HEADER_SIZE, Batch
from kafkasniff.kafka.records.record_list import VALUE_SCHEMAS
from kafkasniff.kafka.records.record_sets import decode_held, decode_records, decode_unaligned, find_batches
from kafkasniff.kafka.schema.context import MAX_RECORDS, DecodeContext, DecodeOptions
from kafkasniff.sinks.jsonl import body_json
from tests.fuzz.corpus import vectors_of
from tests.fuzz.intake import Intake
from tests.kafka import records_craft as craft
from tests.native.kernel_columns import Given, expected, read
from tests.native.test_records import value, versions

MAX_LENGTH = 4000
MEGABYTES = 256
WORDS = (
    *map(bytes.fromhex, ("02", "00000031", "0020", "0001", "0002", "0003", "0004", "ffffffff0f", "00000003")),
    *(b"\x1e__key_schema_id", craft.XERIAL_HEADER),
)

MADE, _UNALIGNED, _BATCHES, _CODEC = 128, 1, 2, 112
"""Bits of the first byte: a batch around the bytes; …"""

MOST: Final = 1 << 20
"""Largest decompressed size of the records."""

_TRACES: Final = (
    *(("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"), ("b3", b"0123456789abcdef-0123456789abcdef-d")),
    *(("uber-trace-id", b"5:1:1:1"), ("x-datadog-trace-id", b"18446744073709551615")),
    ("X-Amzn-Trace-Id", b"Parent=1; Root=1-67891233-abcdef012345678912345678;x"),
    ("X-Cloud-Trace-Context", b"0123456789abcdef0123456789abcdef/1;o=1"),
)

_VECTORS: Final = Path(__file__).resolve().parents[1] / "kafka" / "vectors" / "records.json"


def _context(records: Any) -> DecodeContext:
    return DecodeContext(DecodeOptions(records=records, max_decompressed=MOST, show_secrets=True))


def one_input(data: bytes) -> None:
    intake = Intake(data)
    how = intake.number()
    field = intake.rest()
    if how & MADE:
        # A codec without a compressor: the bytes stay uncompressed, but the batch claims that they are compressed.
        codec = (how & _CODEC) >> 4
        count = field[0] if field else 0
        compress = craft.COMPRESSORS.get(codec, bytes)
        field = craft.batch(compress(field[1:]), count, attributes=codec)
    if how & _UNALIGNED:
        context = _context("batches" if how & _BATCHES else "full")
        sliced = decode_unaligned(field, 0, len(field), context)
        sizes = sum(12 + batch["batch_length"] for batch in sliced["batches"])
        assert sliced["leading_bytes"] + sizes + sliced["truncated_bytes"] == len(field)
        return
    context = _context("full")
    found = decode_records(field, 0, len(field), context)
    assert sum(12 + batch["batch_length"] for batch in found["batches"]) + found["truncated_bytes"] == len(field)
    around = _context("full")
    assert decode_records(b"\0\0" + field + b"\2\2", 2, 2 + len(field), around) == found
    _check_held(field, found)
    _check_columns(field)
    add_schema_ids(found)
    orjson.loads(body_json(found))


def _check_held(field: bytes, found: dict[str, Any]) -> None:
    """Batches whose records are read later have the same records, as long as no bound is reached."""
    kept = decode_records(field, 0, len(field), _context("columns"))
    assert kept["truncated_bytes"] == found["truncated_bytes"]
    later, budget = _context("full"), MAX_RECORDS
    for batch, whole in zip(kept["batches"], found["batches"], strict=True):
        assert isinstance(batch, Batch)
        records, budget = decode_held(batch, later, budget)
        assert records == whole["records"]
        assert {**batch, "records": records} == whole


def _check_columns(field: bytes) -> None:
    """Records that the kernel reads as columns equal those that are read one by one."""
    spans, _ = find_batches(field, 0, len(field), _context("full"))
    for position, end, magic in spans:
        attributes = field[position + 22] if magic == 2 else field[position + 17]
        if attributes & 7:
            continue
        context = _context("full")
        (whole,) = decode_records(field, position, end, context)["batches"]
        if magic == 2:
            append = whole["max_timestamp"] if attributes & 8 else None
            data = field[position + HEADER_SIZE : end]
            one = Given(data, 2, whole["base_offset"], whole["base_timestamp"], append, whole["base_sequence"])
        else:
            one = Given(field[position:end], magic)
        (rows,), _ = read([one])
        # A wrong CRC or wrong attributes of a message are reported, too, but do not make it unreadable.
        kinds = {problem.kind for problem in context.problems}
        flawed = kinds & {"record-malformed", "message-malformed", "string-not-utf8"}
        if rows is None:
            assert flawed or _overlong(data if magic == 2 else b"") or "crc-mismatch" in kinds, (
                "the kernel accepts less"
            )
            continue
        assert not flawed, "the kernel accepts more"
        for row in rows:
            del row["sequence"]
        names = ("offset", "timestamp", "key", "value", "headers")
        found = [{name: record.get(name) for name in names if name in record} for record in whole["records"]]
        assert rows == [expected(record) for record in found]


def _overlong(data: bytes) -> bool:
    """Whether a varint may have more bits than its type; Kafka drops them and the kernel does not read them."""
    return any(data[at] > 127 and data[at + 4] > 15 for at in range(len(data) - 4))


def seeds() -> list[bytes]:
    fields = [bytes.fromhex(one["data"]) for one in json.loads(_VECTORS.read_text())]
    fields += [vector.data for vector in vectors_of("records")]
    found = [bytes((0,)) + field[: MAX_LENGTH - 1] for field in fields]
    found += [bytes((1,)) + field[: MAX_LENGTH - 1] for field in fields[::3]]
    records = [
        craft.Record(0, 0, b"key", b"value", (("h", b"v"), ("n", None))),
        craft.Record(1, 5, None, b"\0\0\0\0\x07value", (("__value_schema_id", b"\0\0\0\0\7"),)),
        craft.Record(300, -70_000, b"", None),
    ]
    listed = b"".join(map(craft.record, records))
    found += [bytes((MADE | codec << 4, 3)) + listed for codec in range(8)]
    found += [b"\0" + craft.batch_of([craft.Record(0, 0, b"k", b"v", (header,))]) for header in _TRACES]
    for codec in range(5):
        found.append(b"\0" + craft.batch_of(records, codec))
        inner = [craft.message(0, b"k", b"v"), craft.message(1, None, None)]
        found.append(b"\0" + craft.wrapper(7, [craft.wrapper(1, inner, codec or 1)], codec or 2))
    for kind in VALUE_SCHEMAS:
        for version in versions(kind):
            marker = craft.Record(0, 0, struct.pack(">hh", version % 2, kind), value(Random(version), kind, version))
            found.append(b"\0" + craft.batch_of([marker] * 2, version % 5, attributes=0x30))
    return [one for one in found if len(one) <= MAX_LENGTH]
