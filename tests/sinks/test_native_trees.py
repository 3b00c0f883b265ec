"""Trees that the kernel writes below lines of text; `tests/native/test_text_lines.py` has those of captures."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.layout import Field
from tests.choice import fewer, one_in
from tests.craft import kafka_bytes as kafka
from tests.kafka.encode import Plan
from tests.native.feed_messages import Recorder, Seen, crafted
from tests.native.kernel_and_walker import Kind
from tests.native.kernel_summaries import TameEncoder, kinds_with_tables
from tests.native.test_text_lines import alone, lines

WAYS: list[dict[str, Any]] = [
    {"verbosity": 2, "width": 40},
    {"verbosity": 2, "width": 133, "colour": True},
    {"verbosity": 2, "width": 79},
]
TEXTS = [
    *(b"", b"plain", b'q"uote', b"back\\slash", b"\x00\t\n\x7f", b"\x1b[31m", "größe €".encode()),
    *("漢字 ｗｉｄｅ".encode(), "e\u0301 \u200b\u202e\u2800 \U0001f600\U000e0001".encode(), "…".encode()),
    *(b"\xff", b"\xed\xa0\x80", b"\xc3", b"x" * 399, b"x" * 400, b"x" * 401, b"\xfe" * 401, b"\0" * 1000),
    *(b"y" * 399 + "é".encode(), b"y" * 398 + "漢z".encode(), b"y" * 399 + b"\xe6z", b"y" * 399 + b"\xe6"),
    *(b"y" * 398 + b"\xed\xa0zz", b"y" * 397 + "\U0001f600".encode(), b"y" * 397 + b"\xf4\x90\x80zz"),
    *("漢".encode() * 133 + b"ab", "漢".encode() * 500, b"y" * 399 + b"\xc0z", b"y" * 15 + b"\x80" + b"y" * 400),
]
"""Values and names: visible and not, wide, too long, cut in a character, not UTF-8."""


class _WildEncoder(TameEncoder):
    """Bodies whose strings are text of all kinds, and whose numbers are times and codes."""

    def scalar(self, field: Field, path: str, nullable: bool) -> tuple[bytes, Any]:
        rng = self.rng
        if field.type == "int64" and rng.random() < 0.7:
            number = rng.choice([-2, -1, 0, 1, 1_700_000_000_123, 253_402_300_799_999, 253_402_300_800_000])
            return number.to_bytes(8, "big", signed=True), number
        if field.type == "bytes" or (field.type == "string" and rng.random() < 0.3):
            raw = rng.choice(TEXTS)
            if field.type == "string":
                raw = raw.decode("utf-8", "ignore").encode()
            size = len(raw)
            if field.compact:
                return kafka.unsigned_varint(size + 1) + raw, None
            return size.to_bytes(2 if field.type == "string" else 4, "big") + raw, None
        return super().scalar(field, path, nullable)


def message_of(kind: Kind, body: bytes, options: DecodeOptions = DecodeOptions()) -> Seen | None:  # noqa: B008
    assert kind.key is not None
    correlation = bytes(3) + b"\5"
    if kind.direction == "request":
        flexible = request_plan(kind.key, kind.version).header > 1
        head = kind.key.to_bytes(2, "big") + kind.version.to_bytes(2, "big") + correlation + b"\0\6client"
        return crafted(head + b"\0" * flexible + body, None, options)
    flexible = response_plan(kind.key, kind.version).header > 0
    return crafted(correlation + b"\0" * flexible + body, (kind.key, kind.version), options)


def _agree(seen: list[Seen], way: dict[str, Any]) -> int:
    """How many of the messages the kernel has written."""
    recorder = Recorder(records="full")
    recorder.reported = [one.message for one in seen]
    recorder._state.captures = ("capture",)
    made, written = lines(recorder, seen, way, size=50)
    expected = alone(recorder.reported, way)
    assert made.splitlines() == expected.splitlines()
    assert made == expected
    return written


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_the_same_as_the_sink(seed: int) -> None:
    """Bodies of all versions."""
    rng = random.Random(seed)
    seen = []
    for kind in kinds_with_tables():
        plans = [Plan(rng, unknown_tags=False), Plan(rng, count=6, nulls=False)]
        for plan in one_in(2, plans, len(seen) % 2):
            one = message_of(kind, _WildEncoder(plan).body(kind.root)[0])
            if one is not None:
                seen.append(one)
    assert len(seen) > fewer(400, 800)
    assert _agree(seen, WAYS[seed]) > 0.3 * len(seen)


@given(
    texts=st.lists(
        st.binary(max_size=500) | st.text(max_size=450).map(str.encode) | st.sampled_from(TEXTS), min_size=1
    ),
    way=st.sampled_from(WAYS),
)
def test_keys_and_values(texts: list[bytes], way: dict[str, Any]) -> None:
    values = [None, *texts]
    records = [kafka.record(index, one, values[-1 - index], [("h", b"x")] * index) for index, one in enumerate(values)]
    request = kafka.produce_request(5, "orders", kafka.record_batch(records))
    one = crafted(request[4:], None, DecodeOptions())
    assert one is not None
    assert _agree([one], way) == 1
