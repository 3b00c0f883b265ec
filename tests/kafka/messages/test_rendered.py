"""Bodies as JSON directly from their bytes, and what is left to Python."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkasniff.kafka.messages.rendered import MAX_SIZE, Renderer
from kafkasniff.kafka.schema.body_forms import RenderedBody
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Direction
from kafkasniff.native import kernel
from kafkasniff.native.calls import Hiding
from tests.craft import kafka_bytes as kafka

HEARTBEAT, PRODUCE = 12, 0


def rendered(
    key: int, version: int, data: bytes, *, direction: Direction = "request", start: int = 0, **options: Any
) -> RenderedBody | None:
    made = Renderer(kernel(), "auto", lambda *_: True, Hiding())
    made.use(DecodeOptions(**options))
    program = made.program(key, version, direction)
    assert program is not None
    return made.body(program, data, start, len(data))


def test_a_body_and_its_error() -> None:
    made = rendered(HEARTBEAT, 0, kafka.string("group") + kafka.int32(3) + kafka.string("member"))
    assert made is not None
    assert json.loads(made.json) == {"group_id": "group", "generation_id": 3, "member_id": "member"}
    assert made.errors == ()
    body = rendered(HEARTBEAT, 0, kafka.int16(27), direction="response")
    assert body is not None
    assert [(one.code, one.name, one.path) for one in body.errors] == [(27, "REBALANCE_IN_PROGRESS", "error_code")]


def test_large_bodies_are_left_to_python() -> None:
    long = kafka.string("g" * 30_000)
    assert rendered(HEARTBEAT, 0, long + kafka.int32(3) + long) is not None
    assert rendered(HEARTBEAT, 0, bytes(MAX_SIZE + 1)) is None


@pytest.mark.parametrize(("limit", "inflated"), [(1 << 20, True), (100, False)])
def test_compressed_records_within_the_bound(limit: int, inflated: bool) -> None:
    record = kafka.record(0, None, b"v" * 500)
    request = kafka.produce_request(1, "orders", kafka.record_batch([record], compressed=True))
    body = rendered(PRODUCE, 3, request, start=4 + 8 + 2 + len("crafted"), max_decompressed=limit)
    assert (body is not None and b"vvvv" in body.json) is inflated
