"""Bodies as JSON directly from their bytes, and what is left to Python."""

from __future__ import annotations

import json

import pytest

from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.messages.rendered import MAX_SIZE, Renderer, program_for
from kafkasniff.kafka.schema.body_forms import RenderedBody
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.native import kernel
from kafkasniff.native.calls import Hiding
from tests.craft import kafka_bytes as kafka

HEARTBEAT, PRODUCE, SASL_AUTHENTICATE, DESCRIBE_CONFIGS = 12, 0, 36, 32
BEAT = kafka.string("group") + kafka.int32(3) + kafka.string("member")


def renderer(options: DecodeOptions | None = None, hiding: Hiding = Hiding()) -> Renderer:  # noqa: B008 - immutable
    found = kernel()
    assert found is not None
    made = Renderer(found, "auto", lambda key, version, direction: True, hiding)
    made.use(options or DecodeOptions())
    return made


def rendered(data: bytes, made: Renderer | None = None, version: int = 0) -> RenderedBody | None:
    """The body of a heartbeat."""
    made = made or renderer()
    program = made.program(HEARTBEAT, version, "request")
    assert program is not None
    return made.body(program, data, 0, len(data))


@pytest.mark.parametrize(
    ("key", "version", "secrets", "hides", "made"),
    [
        (HEARTBEAT, 0, False, False, True),
        (PRODUCE, 3, False, False, True),
        (PRODUCE, 3, False, True, True),
        # A version that nobody knows, secrets that an interpreter needs, and configurations, which names decide.
        (HEARTBEAT, 99, False, False, False),
        (SASL_AUTHENTICATE, 0, False, False, False),
        (SASL_AUTHENTICATE, 0, True, False, False),
        (DESCRIBE_CONFIGS, 1, True, False, True),
    ],
)
def test_which_requests_have_a_program(key: int, version: int, secrets: bool, hides: bool, made: bool) -> None:
    found = program_for(request_plan(key, version), show_secrets=secrets, hides=hides)
    assert (found is not None) is made
    plan = response_plan(DESCRIBE_CONFIGS, 1)
    assert program_for(plan) is None
    assert program_for(plan, show_secrets=True) is not None


def test_a_body_equals_the_one_of_dicts() -> None:
    made = rendered(BEAT)
    assert made is not None
    assert json.loads(made.json) == {"group_id": "group", "generation_id": 3, "member_id": "member"}
    assert made.errors == ()
    other = renderer().another()
    assert other.use(DecodeOptions())
    assert rendered(BEAT, other) == made
    program = other.program(HEARTBEAT, 0, "response")
    assert program is not None
    body = other.body(program, kafka.int16(27), 0, 2)
    assert body is not None
    assert [(one.code, one.name, one.path) for one in body.errors] == [(27, "REBALANCE_IN_PROGRESS", "error_code")]


def test_bodies_with_a_problem_are_left_to_python() -> None:
    assert rendered(BEAT + b"more") is None
    for cut in range(len(BEAT)):
        assert rendered(BEAT[:cut]) is None


def test_large_bodies_are_left_to_python() -> None:
    group = kafka.string("g" * 30_000)
    body = group + kafka.int32(3) + kafka.string("m" * 30_000)
    assert rendered(body) is not None
    made = renderer()
    program = made.program(HEARTBEAT, 0, "request")
    assert program is not None
    assert made.body(program, bytes(MAX_SIZE + 1), 0, MAX_SIZE + 1) is None


def test_only_the_kinds_that_just_the_sink_needs() -> None:
    found = kernel()
    assert found is not None
    made = Renderer(found, "auto", lambda key, _version, direction: (key, direction) == (HEARTBEAT, "request"))
    assert made.use(DecodeOptions())
    assert made.program(HEARTBEAT, 0, "request") is not None
    assert made.program(HEARTBEAT, 0, "response") is None
    assert made.line_program(HEARTBEAT, 0, "response") is not None
    # Nothing is rendered if bodies are needed otherwise.
    for options in (DecodeOptions(bodies=False), DecodeOptions(inside=False), DecodeOptions(records="columns")):
        assert not made.use(options)
        assert made.program(HEARTBEAT, 0, "request") is None


@pytest.mark.parametrize(("limit", "inflated"), [(1 << 20, True), (100, False)])
def test_compressed_records_within_the_bound(limit: int, inflated: bool) -> None:
    record = kafka.record(0, None, b"v" * 500)
    request = kafka.produce_request(1, "orders", kafka.record_batch([record], compressed=True))
    made = renderer(DecodeOptions(max_decompressed=limit))
    program = made.program(PRODUCE, 3, "request")
    assert program is not None
    begin = 4 + 8 + 2 + len("crafted")
    body = made.body(program, request, begin, len(request))
    assert (body is not None) is inflated
    if body is not None:
        assert b"vvvv" in body.json
