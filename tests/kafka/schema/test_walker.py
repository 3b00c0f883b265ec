"""What only the walker does: spans without secrets, bounds and odd marks; programs that the kernel refuses."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.schema import context as decode_context
from kafkasniff.kafka.schema import walker
from kafkasniff.kafka.schema.context import (
    MAX_ELEMENTS,
    MAX_UNKNOWN_TAGS,
    ZERO_SIZE_SLACK,
    DecodeContext,
    DecodeOptions,
    Odd,
)
from kafkasniff.kafka.schema.definition import program_of
from kafkasniff.kafka.schema.schema import Schema, parse_data
from kafkasniff.kafka.schema.walker import walk
from kafkasniff.native import kernel


def schema(text: str, version: int = 0) -> Schema:
    (definition,) = parse_data(Path("sample.txt"), text)
    return Schema(definition.message, version)


def test_spans_withhold_secrets() -> None:
    sasl = api(36)
    configs = api(33)
    assert sasl is not None
    assert configs is not None
    raw = struct.pack(">i", 3) + b"pwd"
    _, spans = sasl.request(0).spans(raw, 0, len(raw), DecodeContext(DecodeOptions()))
    assert [span.value for span in spans] == [{"redacted": 3}]
    body = struct.pack(">ibh1si", 1, 2, 1, b"t", 1) + b"\x00\x0assl.secret" + b"\x00\x02hi" + b"\x00"
    _, spans = configs.request(0).spans(body, 0, len(body), DecodeContext(DecodeOptions()))
    assert {"redacted": 2} in [span.value for span in spans]
    assert "hi" not in [span.value for span in spans]
    for size in range(len(body)):
        _, spans = configs.request(0).spans(body, 0, size, DecodeContext(DecodeOptions()))
        assert "hi" not in [span.value for span in spans]


def test_zero_size_elements_are_bounded() -> None:
    empty = schema("data Sample   kind file   versions 0-1\n  items  []\n    later  int8  1\n")
    assert empty.root.fields[0].struct is not None
    assert empty.root.fields[0].struct.size == 0
    for count, fits in ((0, True), (ZERO_SIZE_SLACK, True), (ZERO_SIZE_SLACK + 1, False), (2**31 - 1, False)):
        context = DecodeContext(DecodeOptions())
        data = struct.pack(">i", count)
        result = empty.read(data, 0, 4, context)
        assert result.complete is fits
        assert walk(empty.root, data, 0, 4, DecodeContext(DecodeOptions())).complete is fits
        if fits:
            assert result.body == {"items": [{}] * count}
        else:
            assert [problem.kind for problem in context.problems] == ["array-too-long"]


def test_elements_of_a_message_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bools = schema("data Sample   kind file   versions 0\n  one  []int8\n  two  []int8\n")

    def halves(bound: int) -> bytes:
        half = bound // 2 + 1
        return (struct.pack(">i", half) + bytes(half)) * 2

    data = halves(MAX_ELEMENTS)
    with pytest.raises(Odd):
        bools.decode(data, 0, len(data), DecodeContext(DecodeOptions()))
    monkeypatch.setattr(walker, "MAX_ELEMENTS", 1000)
    data = halves(1000)
    context = DecodeContext(DecodeOptions())
    result = walk(bools.root, data, 0, len(data), context)
    assert list(result.body) == ["one"]
    assert [(problem.kind, problem.offset) for problem in context.problems] == [("too-many-elements", 4 + 501)]


def test_unknown_tags_of_a_message_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = schema("data Sample   kind file   versions 0   flexible 0+\n  rows  []\n    a  int8\n")

    def tags(bound: int) -> bytes:
        row = b"\x05" + b"\x7f" + b"".join(bytes([tag, 0]) for tag in range(127))
        count = bound // 127 + 1
        return bytes([count + 1 & 0x7F | 0x80, count + 1 >> 7]) + row * count + b"\x00"

    data = tags(MAX_UNKNOWN_TAGS)
    with pytest.raises(Odd):
        rows.decode(data, 0, len(data), DecodeContext(DecodeOptions()))
    monkeypatch.setattr(decode_context, "MAX_UNKNOWN_TAGS", 1000)
    data = tags(1000)
    context = DecodeContext(DecodeOptions())
    assert not walk(rows.root, data, 0, len(data), context).complete
    assert [problem.kind for problem in context.problems] == ["too-many-elements"]


@pytest.mark.parametrize(
    ("value", "it", "kinds"),
    [
        (b"\x01\x09\x00", {"a": 9}, []),
        (b"\x00", None, []),
        (b"\x02\x09\x00", {"a": 9}, ["struct-mark-odd"]),
        (b"\x80\x01\x09\x00", {"a": 9}, ["struct-mark-odd"]),
    ],
)
def test_marks_of_tagged_structs_that_may_be_null(value: bytes, it: dict[str, int] | None, kinds: list[str]) -> None:
    # ConsumerGroupMemberMetadataValue.write of Kafka 4.3.1: writeUnsignedVarint(0) for null, else (1) and the struct.
    nullable = schema("data Sample   kind file   versions 0   flexible 0+\n  it  {}?  tag 0\n    a  int8\n")
    data = bytes([1, 0, len(value)]) + value
    context = DecodeContext(DecodeOptions())
    result = nullable.read(data, 0, len(data), context)
    assert (result.body, result.position) == ({"it": it}, len(data))
    assert [problem.kind for problem in context.problems] == kinds
    # A field that is not tagged has a mark of one byte.
    plain = schema("data Sample   kind file   versions 0\n  it  {}?\n    a  int8\n")
    for mark, is_odd in ((1, False), (-1, False), (0, True), (-5, True)):
        context = DecodeContext(DecodeOptions())
        found = plain.read(struct.pack(">bb", mark, 9), 0, 2, context)
        assert found.body == {"it": None if mark < 0 else {"a": 9}}
        assert [problem.kind for problem in context.problems] == ["struct-mark-odd"] * is_odd


def test_programs_that_are_damaged_are_refused() -> None:
    """No index and no name of a program that is taken lies outside."""
    check = kernel().check
    found = api(0)
    assert found is not None
    program = program_of(found.request(9).root)
    for cut in range(len(program)):
        assert check(program[:cut], cut) == 0
    head, op = 20, 28
    for place, wrong in (
        *((0, 0), (4, len(program) + 1), (8, 0xFFFF), (12, 8), (head + op + 24, 0), (head + op + 24, 0xFFFFFFFF)),
        *((head + op + 8, 0xFFFFFFF0), (head + op + 12, 0xFFFFFFF0), (head + 4, 0xFFFF), (head, 99)),
    ):
        changed = bytearray(program)
        changed[place : place + 4] = wrong.to_bytes(4, sys.byteorder)
        assert check(bytes(changed), len(changed)) == 0, place
