"""Exchanges as columns by the native kernel, on millions of changed requests and responses of all pairs.
`tests/tables/exports/test_columns.py` compares the rows of changed exchanges with those of Python."""

from __future__ import annotations

import argparse
import ctypes
import random
from typing import Final, NamedTuple

import numpy as np

from kafkasniff.engine.roles import ExchangeKinds
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.messages.rendered import wordings
from kafkasniff.kafka.schema.definition import Field
from kafkasniff.native import kernel
from kafkasniff.native.columns import Columns, ExchangeReader
from kafkasniff.native.feed import ARENA, KEYS, MESSAGE, REQUEST, VERSIONS
from tests.craft.kafka_bytes import unsigned_varint
from tests.fuzz.compiled import Room, compiled, rounds
from tests.kafka import records_craft as craft
from tests.tables.exports import test_columns as exported

ROOM: Final = 16 << 10
MARKS: Final = b"\x05task-"
HEADERS: Final = b"\x0btraceparent"


class _Side(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
        ("batches", ctypes.c_uint64 * 2),
        ("sizes", ctypes.c_uint64 * 2),
        ("message", ctypes.c_uint8 * MESSAGE.itemsize),
    )


class _Seed(ctypes.Structure):
    _fields_ = (("request", _Side), ("response", _Side))


class _Room(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("size", ctypes.c_uint64))


class _Run(ctypes.Structure):
    _fields_ = (
        ("call", ctypes.c_void_p),
        ("columns", ctypes.POINTER(Columns)),
        ("seeds", ctypes.POINTER(_Seed)),
        ("seeds_count", ctypes.c_uint64),
        ("requests", _Room),
        ("responses", _Room),
        *((name, ctypes.c_uint64) for name in ("executions", "random", "seed", "asked", "answered")),
        *((name, ctypes.c_uint64) for name in ("rows", "left", "ended", "batches", "taken", "records", "named")),
    )


class Exchange(NamedTuple):
    """A request and its response, without their lengths."""

    key: int
    version: int
    request: bytes
    response: bytes


class _WithRecords(exported.Repeating):
    """An encoder whose `records` fields are not empty."""

    batches: tuple[bytes, ...] = ()

    def scalar(self, field: Field, nullable: bool) -> bytes:
        if field.type != "records" or self.rng.random() < 0.2:
            return super().scalar(field, nullable)
        raw = b"".join(self.rng.choices(self.batches, k=self.rng.choice([1, 1, 2])))
        return (unsigned_varint(len(raw) + 1) if field.compact else len(raw).to_bytes(4, "big")) + raw


def _batches(rng: random.Random) -> tuple[bytes, ...]:
    """Batches in all codecs, most of them short, and sets of messages."""
    found = []
    texts: list[bytes | None] = [None, b"", b"key", b"task-1", "größe".encode() * 5]
    headers = (("traceparent", b"x"), ("h", None))
    for codec in range(5):
        for count in (1, 2, 5):
            records = [
                craft.Record(at, at, rng.choice(texts), rng.choice(texts), headers[: at % 3]) for at in range(count)
            ]
            found += [craft.batch_of(records, codec), craft.batch_of(records, codec, attributes=rng.choice([8, 16]))]
    return (*found, craft.message(0, b"k", b"v", magic=1))


def _exchanges(rng: random.Random, batches: tuple[bytes, ...]) -> list[Exchange]:
    """Seeds: some of each pair, and more of Produce and Fetch."""
    made = type("_Made", (_WithRecords,), {"batches": batches})
    found = []
    for key, version in exported.supported():
        for _ in range(20 if key in {0, 1} else 4):
            request, response = exported.any_exchange(key, version, 0, rng, made)
            if max(len(request), len(response)) <= ROOM // 4:
                found.append(Exchange(key, version, request[4:], response[4:]))
    return found


def _side(one: Exchange, *, is_request: bool, batches: tuple[bytes, ...] = ()) -> _Side:
    """A message as the feed has it."""
    data = one.request if is_request else one.response
    row = np.zeros((), MESSAGE)
    row["first_packet"] = row["last_packet"] = row["packet"] = 3
    row["time"] = row["first_time"] = 1_781_000_000_000_000_000
    row["code"], row["size"] = one.key * VERSIONS + one.version, len(data)
    if is_request:
        row["body"], row["client_id"] = 12 + (request_plan(one.key, one.version).header > 1), 2
        row["flags"] = REQUEST
    else:
        row["body"], row["client_id"] = 4 + (response_plan(one.key, one.version).header > 0), -1
        row["flags"], row["latency"], row["duration"] = ARENA, 1_000_000, 1_000_000
    side = _Side(data, len(data))
    side.message = type(side.message).from_buffer_copy(row.tobytes())
    places = sorted((at, len(batch)) for batch in batches if (at := data.find(batch)) >= 0)[:2]
    for number, (at, size) in enumerate(places):
        side.batches[number], side.sizes[number] = at, size
    return side


def fuzz(options: argparse.Namespace) -> None:
    rng = random.Random(options.seed)
    batches = _batches(rng)
    exchanges = _exchanges(rng, batches)
    seeds = (_Seed * len(exchanges))(
        *[_Seed(*(_side(one, is_request=side, batches=batches) for side in (True, False))) for one in exchanges]
    )
    kinds = ExchangeKinds(kernel(), show_secrets=True, names=True)
    kinds.are_known(np.arange(KEYS * VERSIONS))
    reader = ExchangeReader(
        kernel(),
        kinds.programs,
        headers=False,
        records=True,
        show_secrets=True,
        most=ROOM,
        max_records=1000,
        problems=(wordings(), kinds.careful),
    )
    columns = Columns()
    columns.marks, columns.marks_size, columns.headers, columns.headers_size = MARKS, len(MARKS), HEADERS, len(HEADERS)
    library = compiled()
    requests, responses = Room(ROOM), Room(ROOM)
    state = _Run(ctypes.addressof(reader.call), ctypes.pointer(columns), seeds, len(exchanges))
    state.requests, state.responses = _Room(requests.address, ROOM), _Room(responses.address, ROOM)
    for _ in rounds(options, state):
        library.kafkasniff_fuzz_exchanges(ctypes.byref(state))
    print(f"{len(exchanges):,} exchanges of {len(kinds.known):,} pairs:")
    print(f"{state.rows:,} exchanges as columns, {state.left:,} left to Python; {state.ended:,} calls ended early;")
    print(f"{state.batches:,} batches, of which {state.taken:,} taken, with {state.records:,} records written;")
    print(f"{state.named:,} names of topics")
