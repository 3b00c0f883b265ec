"""Large bodies are rendered in pieces: the same bytes as the whole, and no more in memory than a few pieces."""

from __future__ import annotations

import copy
import io
import tracemalloc
from base64 import b64encode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.schema.context import LargeBody, RenderedRecords
from kafkasniff.redact.payload import Payload
from kafkasniff.sinks import jsonl
from kafkasniff.sinks.jsonl import BytesForm, JsonSink, Pieces
from tests.choice import examples
from tests.sinks.messages import BATCH, message

FORMS: tuple[BytesForm, ...] = ("auto", "base64", "hex")
BYTES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.text(max_size=40).map(str.encode),
    st.tuples(st.sampled_from([b"\0", b"a", "é".encode(), "\U0001f600".encode(), b"\xff"]), st.integers(0, 300)).map(
        lambda pair: pair[0] * pair[1]
    ),
    st.lists(st.sampled_from([bytes(63), bytes(64), bytes(65), b"x", b'"\\', "ü".encode()]), max_size=6).map(b"".join),
)
HEADERS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": BYTES}), max_size=9)
RECORDS = st.lists(
    st.fixed_dictionaries({"offset": st.integers(0, 9), "key": BYTES, "value": BYTES, "headers": HEADERS}), max_size=7
)
BATCHES = st.lists(st.fixed_dictionaries({"base_offset": st.integers(0, 9)}, optional={"records": RECORDS}), max_size=4)
FIELDS = st.fixed_dictionaries({"batches": BATCHES, "truncated_bytes": st.integers(0, 9)})
BODIES = st.fixed_dictionaries(
    {"name": st.text(max_size=5), "raw": BYTES},
    optional={
        "records": st.none() | FIELDS,
        "topics": st.lists(st.fixed_dictionaries({"records": FIELDS}), max_size=3),
    },
)


def expected(item: Any, form: BytesForm) -> bytes:
    """The line as it was before there were pieces: orjson, bytes by its hook."""

    def default(value: Any) -> Any:
        assert isinstance(value, bytes)
        if form == "hex":
            return {"hex": value.hex()}
        if form == "auto":
            try:
                return value.decode()
            except UnicodeDecodeError:
                pass
        return {"base64": b64encode(value).decode()}

    return orjson.dumps(item, default=default, option=orjson.OPT_APPEND_NEWLINE)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that small bodies reach."""
    for name, value in (("LONG_VALUE", 9), ("PART_BYTES", 30), ("FEW", 2), ("MANY_HEADERS", 3), ("PIECE_BYTES", 50)):
        monkeypatch.setattr(jsonl, name, value)


@given(body=BODIES, form=st.sampled_from(FORMS))
@examples(90)
def test_the_pieces_are_the_whole(body: dict[str, Any], form: BytesForm) -> None:
    before = copy.deepcopy(body)
    item = {"type": "request", "body": body, "raw": None}
    pieces = list(Pieces(form).of(item, body))
    assert b"".join(pieces) == expected(item, form)
    assert all(len(piece) >= 50 for piece in pieces[:-1])
    assert body == before


def _large(records: list[dict[str, Any]]) -> LargeBody:
    field = {"batches": [{**BATCH, "records": records}], "truncated_bytes": 0}
    return LargeBody(topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": field}]}])


@pytest.mark.parametrize("payload", [Payload(), Payload("dropped"), Payload.hashed(b"salt")])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_sink_writes_the_same_line(payload: Payload, terminal: bool) -> None:
    records = [
        {"offset": at, "timestamp": 1, "key": b"\x9b\x7f" * at, "value": b"v\0\xe2\x80\xae" * at, "headers": []}
        for at in range(9)
    ]
    outputs = []
    for body in (_large(records), dict(_large(records))):
        stream = io.BytesIO()
        sink = JsonSink(stream, payload=payload, terminal=terminal)
        sink.write(message(body=body, capture="\udcff.pcap"))
        sink.write(message())
        sink.close()
        outputs.append(stream.getvalue())
    assert outputs[0] == outputs[1]


class _Longest:
    """A stream that keeps only the size of its content."""

    def __init__(self) -> None:
        self.size = self.longest = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self.longest = max(self.longest, len(data))

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(("form", "unit"), zip(FORMS, ["01", "00", "ff"], strict=True))
def test_a_long_value_takes_little_memory(monkeypatch: pytest.MonkeyPatch, form: BytesForm, unit: str) -> None:
    monkeypatch.undo()
    value = bytes.fromhex(unit) * (8 << 20)
    event = message(body=_large([{"offset": 0, "timestamp": 1, "key": None, "value": value, "headers": []}]))
    stream = _Longest()
    tracemalloc.start()
    try:
        sink = JsonSink(stream, form=form)
        sink.write(event)
        sink.close()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stream.size > len(value)
    assert stream.longest < 2 << 20
    assert peak < 6 << 20


RENDERED = st.builds(
    lambda text, count: RenderedRecords(orjson.dumps({"batches": [text] * count}), 0, dict),
    st.text(max_size=5),
    st.integers(0, 9),
)


@given(fields=st.lists(st.none() | RENDERED, max_size=5), apart=st.integers(0, 60), large=st.booleans())
@examples(100)
def test_rendered_records_stand_in_the_line_wherever_they_are_cut_out(
    fields: list[RenderedRecords | None], apart: int, large: bool
) -> None:
    values = [None if one is None else orjson.loads(one.json) for one in fields]
    body = {"topics": [{"name": "a\0b", "records": one} for one in fields], "raw": b"\0c"}
    plain = {"topics": [{"name": "a\0b", "records": one} for one in values], "raw": b"\0c"}
    streams = [io.BytesIO(), io.BytesIO()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "PIECE_BYTES", apart)
        for stream, one in zip(streams, (LargeBody(body) if large else body, plain), strict=True):
            # Nothing of a line is left over for the next.
            sink = JsonSink(stream)
            for _ in range(2):
                sink.write(message(body=one))
            sink.close()
    assert streams[0].getvalue() == streams[1].getvalue()
