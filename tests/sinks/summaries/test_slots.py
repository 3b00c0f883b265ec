"""Slots of fields: one for each value that is kept, in its scope, and which fields have none."""

from __future__ import annotations

from typing import Literal

import pytest

from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.schema.layout import Field, Struct
from kafkasniff.sinks.summaries.slots import FieldSlots, LeftToPython, StructScope, field_of
from kafkasniff.sinks.summaries.table import NONE, Scope, Slot

FETCH, METADATA, SASL_AUTHENTICATE = 1, 3, 36


def root_of(key: int, version: int, direction: Literal["request", "response"] = "request") -> Struct:
    plan = request_plan(key, version) if direction == "request" else response_plan(key, version)
    assert plan.schema is not None
    return plan.schema.root


def place_of(struct: Struct, *path: str, scope: Scope | None = None) -> StructScope:
    return StructScope(struct, (), path, Scope() if scope is None else scope)


def field(struct: Struct, *path: str) -> Field:
    """The field at a path, through arrays as well."""
    found: Field | None = None
    inner: Struct | None = struct
    for name in path:
        assert inner is not None
        found = field_of(inner, name)
        assert found is not None
        inner = found.struct
    assert found is not None
    return found


def test_fields_by_name() -> None:
    root = root_of(FETCH, 12)
    tagged = field_of(root, "cluster_id")
    assert tagged is not None
    assert tagged.tag == 0
    assert field(root, "max_wait_ms").tag is None
    assert field_of(root, "no_such_field") is None
    assert field_of(root_of(FETCH, 4), "session_id") is None, "another version has it"


def test_a_value_has_one_slot_in_its_scope() -> None:
    slots, place = FieldSlots(), place_of(root_of(FETCH, 12))
    found = slots._found(("max_wait_ms",), place)
    assert found is not None
    assert found[0].name == "max_wait_ms"
    again = slots._found(("max_wait_ms",), place)
    assert again is not None
    assert again[1] is found[1]
    other = slots._found(("min_bytes",), place)
    assert other is not None
    assert place.scope.slots == [found[1], other[1]]
    assert slots._found(("no_such_field",), place) is None
    assert len(place.scope.slots) == 2


def test_values_in_arrays_are_no_values_of_the_struct() -> None:
    with pytest.raises(LeftToPython):
        FieldSlots()._found(("topics", "topic"), place_of(root_of(FETCH, 12)))


def test_hidden_fields_have_no_slots() -> None:
    place = place_of(root_of(SASL_AUTHENTICATE, 1))
    with pytest.raises(LeftToPython):
        FieldSlots()._found(("auth_bytes",), place)
    assert place.scope.slots == []


def test_lengths_and_sums() -> None:
    slots, place = FieldSlots(), place_of(root_of(FETCH, 12))
    topics = slots._counted(("topics",), place)
    partitions = slots._counted(("topics", "partitions"), place)
    assert topics is not None
    assert partitions is not None
    assert topics is not partitions
    assert slots._counted(("topics", "partitions"), place) is partitions
    assert slots._counted(("topics", "no_such_field"), place) is None
    assert place.scope.slots == [topics, partitions]
    assert slots._uses[("topics",)].slot is topics
    assert slots._uses["topics", "partitions"].sum is partitions
    assert slots._uses["topics", "partitions"].slot is None


@pytest.mark.parametrize(("version", "has_id"), [(9, False), (10, True), (12, True)])
def test_topics_by_name_and_id(version: int, has_id: bool) -> None:
    topics = field(root_of(METADATA, version, "response"), "topics")
    assert topics.struct is not None
    place = place_of(topics.struct, "topics")
    name, topic_id = FieldSlots()._topic(place)
    assert isinstance(name, Slot)
    assert isinstance(topic_id, Slot) is has_id
    assert place.scope.slots == ([name, topic_id] if has_id else [name])
    assert has_id or topic_id == NONE


def test_fetch_sessions() -> None:
    slots = FieldSlots()
    assert not slots._has_sessions(place_of(root_of(FETCH, 4)))
    place = place_of(root_of(FETCH, 12))
    assert slots._has_sessions(place)
    session = slots._session_slot(place)
    assert slots._session_slot(place) is session
    assert place.scope.slots == [session]
    with pytest.raises(LeftToPython):
        slots._session_slot(place_of(root_of(FETCH, 12), "topics"))
