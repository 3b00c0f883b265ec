"""Messages that the kernel blanks are those that `Blanker` makes, whatever their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import numpy as np
import pytest

from kafkasniff.kafka.connection.framing import MAX_FRAME
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.native import kernel
from kafkasniff.native.feed import KEYS, MESSAGE, REQUEST, VERSIONS
from kafkasniff.redact.message import Blanker
from kafkasniff.redact.stream_reading import StreamReading
from tests.choice import DEEP
from tests.craft import kafka_bytes as kafka
from tests.kafka.records_craft import GZIP, Record, batch_of
from tests.vectors.reader import vectors

MODES = {"all blank": {}, "payload shown": {"payload": True}, "secrets shown": {"secrets": True}}
TIMES = 40 if DEEP else 3


class Case(NamedTuple):
    """A regular message."""

    data: bytes
    key: int
    version: int
    is_request: bool
    body: int


def case_of(data: bytes, key: int, version: int, *, is_request: bool) -> Case | None:
    """The message, if the engine may find it regular."""
    if not (0 <= key < KEYS and 0 <= version < VERSIONS):
        return None
    if not is_request:
        tagged = response_plan(key, version).header > 0
        return None if tagged and data[4:5] != b"\0" else Case(data, key, version, is_request, 5 if tagged else 4)
    header = request_plan(key, version).header
    if not 0 < header < 3 or len(data) < 10:
        return None
    end = 10 + max(int.from_bytes(data[8:10], "big", signed=True), 0)
    if header == 2 and data[end : end + 1] != b"\0":
        return None
    return Case(data, key, version, is_request, end + (header == 2))


def known() -> Iterator[Case]:
    """All vectors, and records of every kind."""
    for vector in vectors():
        if vector.key is not None:
            found = case_of(vector.data, vector.key, vector.version, is_request=vector.kind == "request")
            if found is not None:
                yield found
    plain = [Record(0, 0, b"key", b"value", [("h", b"header"), ("n", None)]), Record(0, 1, None, b"v")]
    connect = [Record(0, 0, b"connector-a", b'{"properties":{"password":"secret"}}')]
    fields = [
        batch_of(plain),
        batch_of(plain, GZIP),
        batch_of(connect),
        batch_of(plain) * 2,
        batch_of(plain, attributes=0x20),
    ]
    fields += [batch_of(connect, codec) for codec in (1, 2, 3, 4)] + [batch_of(plain, 3) + batch_of(connect, 4)]
    fields += [batch_of(plain, 2) + batch_of(plain, 4)]
    fields += [fields[0][:-1], fields[0] + b"\0" * 20, kafka.record_batch([])]
    for topic in ("orders", "__consumer_offsets", "__own"):
        for field in fields:
            produce = kafka.produce_request(7, topic, field)[4:]
            yield case_of(produce, 0, 3, is_request=True) or pytest.fail("no case")
            fetch = kafka.fetch_response(7, topic, field, 9)[4:]
            yield case_of(fetch, 1, 4, is_request=False) or pytest.fail("no case")


def by_kernel(reading: StreamReading, cases: list[Case]) -> list[bytes | None]:
    """The messages as the kernel blanks them; None for those that it leaves to Python."""
    rows, starts = np.zeros(len(cases), MESSAGE), np.zeros(len(cases), np.uint64)
    buffer, size = bytearray(), 0
    for index, case in enumerate(cases):
        row, starts[index] = rows[index], size
        row["start"], row["size"], row["body"] = len(buffer), len(case.data), case.body
        row["code"], row["flags"] = case.key * VERSIONS + case.version, REQUEST * case.is_request
        row["client_id"] = int.from_bytes(case.data[8:10], "big", signed=True) if case.is_request else -1
        buffer += case.data
        size += 4 + len(case.data)
    output = bytearray(size)
    done = reading._blanks.run(rows, bytes(buffer), b"", starts, output)
    ends = [*starts[1:].tolist(), size]
    found = [bytes(output[start:end]) for start, end in zip(starts.tolist(), ends, strict=True)]
    return [one if taken else None for one, taken in zip(found, done.tolist(), strict=True)]


def by_python(blanker: Blanker, case: Case) -> bytes:
    data, end = case.data, len(case.data)
    if case.is_request:
        decoded = decode_request(data, 0, end, blanker.options)
    else:
        decoded = decode_response(data, 0, end, case.key, case.version, blanker.options)
    shown = blanker.message(data, 0, end, decoded, request=case.is_request, cut=False)
    return end.to_bytes(4, "big") + bytes(shown)


def damaged(case: Case, random: Random) -> Case:
    """Some bytes of the body are others, or it has another size."""
    data = bytearray(case.data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if case.body < len(data):
            at = random.randrange(case.body, len(data))
            way = random.randrange(4)
            if way == 0:
                data[at] = random.choice((0, 1, 2, 127, 128, 255))
            elif way == 1:
                data[at] ^= 1 << random.randrange(8)
            elif way == 2:
                data[at:at] = bytes(random.randrange(3))
            else:
                del data[at : at + random.randrange(3)]
    return case._replace(data=bytes(data))


@pytest.mark.parametrize("mode", MODES)
def test_the_kernel_shows_what_python_shows(mode: str) -> None:
    native = kernel()
    assert native is not None
    options = {"secrets": False, "payload": False, **MODES[mode]}
    blanker = Blanker(**options)
    reading = StreamReading(native, blanker, own_topics=[], ports=frozenset(), max_frame=MAX_FRAME)
    random, cases = Random(mode), list(known())
    whole = by_kernel(reading, cases)
    # Configurations, nested messages, and requests that later messages need are left to Python.
    assert sum(one is not None for one in whole) > 0.6 * len(cases)
    for _ in range(TIMES):
        cases += [damaged(case, random) for case in cases[: len(whole)]]
    taken = 0
    for case, found in zip(cases, by_kernel(reading, cases), strict=True):
        if found is not None:
            assert found == by_python(blanker, case), (case.key, case.version, case.is_request, case.data.hex())
            taken += 1
    assert taken > 0.3 * len(cases)


def test_records_of_own_topics_are_left_to_python() -> None:
    """The same by the id of their topic."""
    native = kernel()
    assert native is not None
    blanker = Blanker(secrets=False, payload=False)
    own = bytes(range(16))
    field = kafka.record_batch([kafka.record(0, b"key", b"value")])
    cases = []
    for topic in (own, own[::-1], bytes(15) + b"\1"):
        data = kafka.fetch_response_by_id(7, [(topic, 0, field)])[4:]
        cases.append(case_of(data, 1, 13, is_request=False) or pytest.fail("no case"))
    for topics, expected in (([], [True, True, False]), (["AAECAwQFBgcICQoLDA0ODw"], [False, True, False])):
        reading = StreamReading(native, blanker, own_topics=topics, ports=frozenset(), max_frame=MAX_FRAME)
        assert [one is not None for one in by_kernel(reading, cases)] == expected
