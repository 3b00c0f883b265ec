"""Bodies decoded several at a time, in bounded memory; any bytes of records are covered, field by field."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.messages import rendered
from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.kafka.messages.message_spans import Inside, Piece, record_spans
from kafkasniff.kafka.messages.rendered import MEMORY_RATIO, PackedBodies, Programs
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import program_of
from kafkasniff.kafka.schema.walker import Span
from kafkasniff.native import kernel
from kafkasniff.native.caller import ITEM
from tests.craft import kafka_bytes as kafka
from tests.kafka.records_craft import Record, batch_of

Kind = tuple[int, int, str]


def produced(topic: str, *sizes: int, compressed: bool = False) -> bytes:
    records = [kafka.record(index, b"k", b"v" * size) for index, size in enumerate(sizes)]
    return kafka.produce_request(1, topic, kafka.record_batch(records, compressed=compressed))


def bodies() -> list[tuple[Kind, bytes]]:
    """Bodies of all kinds, some of them odd."""
    produce, heartbeat = (0, 3, "request"), (12, 0, "request")
    beat = kafka.string("group") + kafka.int32(3) + kafka.string("member")
    found = [
        (produce, _body(produced("orders", 3, 5))),
        (produce, _body(produced("orders", 30, compressed=True))),
        (produce, _body(produced("__cluster_metadata", 3))),
        (produce, _body(produced("__consumer_offsets", 3))),
        (produce, _body(produced("orders", 20_000))),
        (produce, _body(produced("orders", 3))[:-2]),
        (heartbeat, beat),
        (heartbeat, beat[:-3]),
        (heartbeat, beat + b"more"),
        (heartbeat, b""),
        ((12, 0, "response"), kafka.int16(0)),
        ((12, 0, "response"), kafka.int16(27)),
        # Such a response may have another version.
        ((12, 0, "response"), kafka.int16(35)),
    ]
    # None of these has a program.
    return [*found, ((17, 0, "request"), kafka.string("PLAIN")), ((36, 0, "request"), kafka.int32(3) + b"\0ab")]


def _body(message: bytes) -> bytes:
    (size,) = np.frombuffer(message[12:14], ">i2").tolist()
    return message[14 + max(size, 0) :]


def _plan(kind: Kind) -> MessagePlan:
    key, version, direction = kind
    return request_plan(key, version) if direction == "request" else response_plan(key, version)


def made(chosen: list[tuple[Kind, bytes]], options: DecodeOptions) -> tuple[list[object], PackedBodies]:
    maker = PackedBodies(kernel())  # type: ignore[arg-type]  # it is there
    assert maker.use(options)
    data, items = bytearray(b"\xee"), np.zeros(len(chosen), ITEM)
    bases = []
    for item, (kind, body) in zip(items, chosen, strict=True):
        program = maker.program(*kind)  # type: ignore[arg-type]
        bases.append(len(data))
        item["program"], item["start"] = 0 if program is None else program.address, len(data)
        data += body
        item["end"] = len(data)
        data += b"\xee"
    found: list[object] = []
    while len(found) < len(items):
        found += maker.bodies(bytes(data), np.ascontiguousarray(items[len(found) :]), bases[len(found) :])
    return found, maker


def test_memory_stays_bounded() -> None:
    """Bodies that do not fit into one call come with the next; a body that does not fit at all is read alone."""
    large = (0, 3, "request"), _body(produced("orders", *[10] * 9_000))
    chosen = [large] * 3 + bodies()[:1]
    found, maker = made(chosen, DecodeOptions())
    assert [body is None for body in found[3:]] == [False]
    odd, _ = made(bodies(), DecodeOptions())
    assert [index for index, body in enumerate(odd) if body is None] == [2, 5, 7, 8, 9, 12, 13, 14]
    schema = _plan(large[0]).schema
    assert schema is not None
    body, _ = schema.decode(large[1], 0, len(large[1]), DecodeContext(DecodeOptions()))
    assert found[:3] == [body] * 3
    assert 0 < maker.memory <= MEMORY_RATIO << 20


def programs() -> Programs:
    return Programs(kernel(), lambda plan: None if plan.schema is None else program_of(plan.schema.root))


def test_versions_from_the_wire_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "MAX_KINDS", 10)
    found = programs()
    first = found.get(12, 0, "request")
    for version in range(1000, 1040):
        assert found.get(12, version, "request") is None
        assert len(found._programs) <= 10
    assert first is not None
    assert first.address in found.kept


RECORDS = [Record(0, 0, b"key", b"value", (("h", b"x"),)), Record(1, 5, None, b"")]


def pieces(data: bytes, *, opens: bool = True) -> list[Piece]:
    field = decode_records(data, 0, len(data), DecodeContext(DecodeOptions()))
    assert isinstance(field, dict)
    return list(record_spans(data, 0, len(data), "records", field, lambda *_: opens))


def spans(found: list[Piece]) -> list[Span]:
    return [one for one in found if isinstance(one, Span)]


def follow_one_another(found: list[Span], end: int) -> None:
    assert [one.start for one in found] == [0, *(one.end for one in found[:-1])]
    assert found[-1].end == end


def test_nothing_is_decompressed_if_it_may_not_be() -> None:
    assert not any(isinstance(one, Inside) for one in pieces(batch_of(RECORDS, codec=1), opens=False))
    damaged = bytearray(batch_of(RECORDS, codec=1))
    damaged[61] ^= 0xFF
    assert not any(isinstance(one, Inside) for one in pieces(bytes(damaged)))


@given(st.lists(st.binary(max_size=30), max_size=3), st.data())
def test_any_bytes_are_covered(parts: list[bytes], data: st.DataObject) -> None:
    made = bytearray(b"".join([batch_of(RECORDS), *parts, batch_of(RECORDS)]))
    made[data.draw(st.integers(0, len(made) - 1))] ^= data.draw(st.integers(1, 255))
    cut = bytes(made[: data.draw(st.integers(1, len(made)))])
    follow_one_another(spans(pieces(cut)), len(cut))
