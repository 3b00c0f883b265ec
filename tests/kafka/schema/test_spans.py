"""Spans: the part of one that may be hidden, and the value at its path."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.spans import Span, value_at
from kafkasniff.kafka.schema.walker import walk

BODY = {"topics": [{"name": "a", "ids": [4, 5]}, {"name": "b", "ids": None}], "inner": {"text": "x"}, "none": None}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("topics[1].name", "b"),
        ("topics[0].ids[1]", 5),
        ("inner.text", "x"),
        ("topics[2].name", None),
        ("topics[1].ids[0]", None),
        ("none", None),
        ("none.text", None),
        ("missing", None),
    ],
)
def test_value_at(path: str, value: object) -> None:
    assert value_at(BODY, path) == value


def spans_of(key: int, version: int, data: bytes) -> list[Span]:
    schema = request_plan(key, version).schema
    assert schema is not None
    spans: list[Span] = []
    context = DecodeContext(DecodeOptions(show_secrets=True), 0)
    assert walk(schema.root, data, 0, len(data), context, spans=spans).complete
    return spans


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (3, b"\x08library\x061.2.3\x00"),
        (3, b"\xc9\x01" + b"l" * 200 + b"\x061.2.3\x00"),
    ],
)
def test_strings_may_be_hidden_after_their_length(version: int, data: bytes) -> None:
    found = api(18)
    assert found is not None
    assert found.name == "ApiVersions"
    spans = spans_of(18, version, data)
    contents = [data[span.content(data) : span.end].decode() for span in spans if span.field is not None]
    assert contents == [span.value for span in spans if span.field is not None]
    assert len(contents) == 2
    others = [span for span in spans if span.field is None]
    assert others
    assert all(span.content(data) == span.start for span in others)


def test_strings_with_a_length_of_fixed_size() -> None:
    data = b"\x00\x05PLAIN"
    (span,) = spans_of(17, 1, data)
    assert (span.content(data), span.end, span.value) == (2, 7, "PLAIN")
