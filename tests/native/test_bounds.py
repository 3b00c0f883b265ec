"""Bounds of the tables that Python and the kernel share, and copies of chosen fields, which stay in their memory."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.apis.dissectors import FETCH
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.schema.definition import Struct, program_of
from kafkasniff.native import kernel, names
from kafkasniff.native.names import CHOSEN, FIRST_PLACES, INSIDE, ChosenFields, LineNames, NativeNames
from tests.craft.from_layout import encoded
from tests.craft.kafka_bytes import int32, unsigned_varint


class Nothing:
    """An enricher that knows nothing."""

    learned, forgets = 0, False

    def topic(self, topic_id: bytes, /) -> tuple[bytes | None, bool]:
        return None, False


def test_the_table_of_topics_grows_and_is_cleared_once_per_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MAX_PLACES", 4 * FIRST_PLACES)
    table = LineNames(Nothing())
    found = NativeNames.from_address(table.address)
    sizes = []
    for _ in range(3):
        found.asks, found.index = 2, 0
        assert table.answer()
        sizes.append(len(table._topics))
    assert sizes == [2 * FIRST_PLACES, 4 * FIRST_PLACES, 4 * FIRST_PLACES]
    # The message has more topics than the table has room for: Python decodes it.
    assert not table.answer()
    found.index = 1
    assert table.answer()


# -- copies of chosen fields ------------------------------------------------------------------------------------------


def _root(version: int) -> Struct:
    schema = request_plan(FETCH, version).schema
    assert schema is not None
    return schema.root


def _roles(struct: Struct, chosen: tuple[str, ...]) -> list[int]:
    found: list[int] = []
    for field in (*struct.fields, *struct.tagged):
        below = [] if field.struct is None else _roles(field.struct, chosen)
        found += INSIDE if any(below) else CHOSEN if field.name in chosen else 0, *below
    return found


def _of(data: bytes, version: int, *chosen: str, start: int = 0, most: int = 1000) -> bytes | None:
    fields = ChosenFields(kernel(), program_of(_root(version), roles=[0, *_roles(_root(version), chosen)]), most)
    # Exactly as many bytes as there are: reading beyond them is visible to memory checkers.
    memory = (ctypes.c_char * len(data)).from_buffer_copy(data)
    return fields.of(ctypes.addressof(memory), len(data), start)


PARTITIONS = [{"partition": 1, "fetch_offset": 9}, {"partition": 2}]
BODY = {"session_epoch": 5, "topics": [{"topic": "a", "partitions": PARTITIONS}, {"topic": "bc", "partitions": []}]}


def test_chosen_fields_with_the_counts_around_them() -> None:
    old, compact = encoded(_root(11), BODY), encoded(_root(12), BODY)
    counts = int32(2) + b"\0\1a" + int32(2) + int32(1) + int32(2) + b"\0\2bc" + int32(0)
    # The array of forgotten topics is empty.
    assert _of(old, 11, "topic", "partition") == counts + int32(0)
    two, none = unsigned_varint(3), unsigned_varint(1)
    wanted = int32(5) + two + b"\2a" + two + int32(1) + int32(2) + b"\3bc" + none + none
    assert _of(compact, 12, "session_epoch", "topic", "partition") == wanted
    assert _of(b"\xff" * 7 + old, 11, "session_epoch", start=7, most=4) == int32(5)
    assert _of(old, 11, "session_epoch", most=3) is None
    assert _of(old, 11, "session_epoch", start=len(old) + 1) is None
    assert all(_of(compact[:size], 12, "topic") is None for size in range(len(compact)))


@given(st.sampled_from([7, 11, 12, 15, 17]), st.binary(max_size=200))
def test_chosen_fields_of_any_bytes(version: int, data: bytes) -> None:
    found = _of(data, version, "topic", "topic_id", "partition")
    assert found is None or len(found) <= len(data)
