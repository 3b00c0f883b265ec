"""The bytes of chosen fields."""

from __future__ import annotations

import ctypes

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.apis.named_apis import FETCH
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.schema.layout import Struct
from kafkasniff.kafka.schema.program import program_of
from kafkasniff.native.chosen import CHOSEN, INSIDE, ChosenFields
from tests.craft.from_layout import encoded
from tests.craft.kafka_bytes import int32, unsigned_varint
from tests.native.kernel_and_walker import the_kernel


def _root(version: int) -> Struct:
    schema = request_plan(FETCH, version).schema
    assert schema is not None
    return schema.root


def _roles(struct: Struct, chosen: set[str]) -> list[int]:
    found: list[int] = []
    for field in (*struct.fields, *struct.tagged):
        below = [] if field.struct is None else _roles(field.struct, chosen)
        found.append(INSIDE if any(below) else CHOSEN if field.name in chosen else 0)
        found += below
    return found


def _chosen(version: int, *names: str, most: int = 1000) -> ChosenFields:
    root = _root(version)
    return ChosenFields(the_kernel(), program_of(root, roles=[0, *_roles(root, set(names))]), most)


def _of(fields: ChosenFields, data: bytes, start: int = 0) -> bytes | None:
    # Exactly as many bytes as there are: reading beyond them is visible to memory checkers.
    memory = (ctypes.c_char * len(data)).from_buffer_copy(data)
    return fields.of(ctypes.addressof(memory), len(data), start)


_BODY = {
    "session_epoch": 5,
    "topics": [
        {"topic": "a", "partitions": [{"partition": 1, "fetch_offset": 9}, {"partition": 2}]},
        {"topic": "bc", "partitions": []},
    ],
}


def test_fields_with_the_counts_around_them() -> None:
    a, bc = b"\0\1a", b"\0\2bc"
    counts = int32(2) + a + int32(2) + int32(1) + int32(2) + bc + int32(0)
    # The array of forgotten topics is empty.
    assert _of(_chosen(11, "topic", "partition"), encoded(_root(11), _BODY)) == counts + int32(0)


def test_compact_fields() -> None:
    two, none = unsigned_varint(3), unsigned_varint(1)
    wanted = int32(5) + two + b"\2a" + two + int32(1) + int32(2) + b"\3bc" + none + none
    assert _of(_chosen(12, "session_epoch", "topic", "partition"), encoded(_root(12), _BODY)) == wanted


def test_a_body_in_a_message() -> None:
    body = encoded(_root(11), _BODY)
    fields = _chosen(11, "session_epoch")
    assert _of(fields, b"\xff" * 7 + body, 7) == int32(5)
    assert _of(fields, body, len(body) + 1) is None


def test_a_copy_that_is_too_large() -> None:
    body = encoded(_root(11), _BODY)
    assert _of(_chosen(11, "session_epoch", most=4), body) == int32(5)
    assert _of(_chosen(11, "session_epoch", most=3), body) is None


def test_a_body_that_ends_early() -> None:
    body = encoded(_root(12), _BODY)
    fields = _chosen(12, "topic")
    assert all(_of(fields, body[:size]) is None for size in range(len(body)))


@given(st.sampled_from([7, 11, 12, 15, 17]), st.binary(max_size=200))
def test_any_bytes(version: int, data: bytes) -> None:
    found = _of(_chosen(version, "topic", "topic_id", "partition"), data)
    assert found is None or len(found) <= len(data)
