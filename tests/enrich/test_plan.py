"""Plans against the definitions, read by other means: the text of the files."""

from __future__ import annotations

import copy

from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.plan import NamePlan, leaves_alone, message_plan
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.schema.definition import Field, Struct
from kafkasniff.model import Message
from tests.vectors.reader import Vector, vectors


def structs(layout: Struct) -> list[Struct]:
    """A struct and all below it."""
    fields: list[Field] = [*layout.fields, *layout.tagged]
    return [layout, *(one for field in fields if field.struct is not None for one in structs(field.struct))]


def plans(plan: NamePlan) -> list[NamePlan]:
    return [plan, *(one for _, child in plan.children for one in plans(child))]


PAIRS = [
    (key, version, direction)
    for key in dissectors.api_keys()
    for version in dissectors.api(key).versions  # type: ignore[union-attr]
    for direction in ("request", "response")
]


def test_every_topic_id_is_in_the_plan() -> None:
    for key, version, direction in PAIRS:
        api = dissectors.api(key)
        assert api is not None
        layout = (api.request(version) if direction == "request" else api.response(version)).root
        wanted = sum(any(field.name == "topic_id" for field in (*one.fields, *one.tagged)) for one in structs(layout))
        found = message_plan(key, version, direction)  # type: ignore[arg-type]
        seen = sum(one.topic_id is not None for one in plans(found[0] if found else NamePlan()))
        assert seen == wanted, (key, version, direction)


class _KnowsAll(Catalog):
    def topic(self, topic_id: object) -> str | None:
        return "__consumer_offsets"


def test_bodies_that_are_left_alone_are() -> None:
    """By an enricher that knows a name for each id, on all messages that Kafka's classes write."""
    alone: set[tuple[int, int, str]] = set()
    changed: set[tuple[int, int, str]] = set()
    for vector in vectors():
        message = _message(vector)
        if message is None or message.body is None:
            continue
        before = copy.deepcopy(message.body)
        Enricher(_KnowsAll()).feed([message])
        assert message.api_key is not None
        assert message.api_version is not None
        kind = message.api_key, message.api_version, message.type
        if message.body != before:
            changed.add(kind)
        if leaves_alone(*kind):
            alone.add(kind)
    assert not alone & changed
    assert len(alone) > 500
    assert len(changed) > 50


def _message(vector: Vector) -> Message | None:
    if vector.kind == "request":
        decoded = decode_request(vector.data, 0, len(vector.data))
    elif vector.kind == "response" and vector.key is not None:
        decoded = decode_response(vector.data, 0, len(vector.data), vector.key, vector.version)
    else:
        return None
    kind = "request" if vector.kind == "request" else "response"
    return Message(kind, 0, api_key=vector.key, api_version=vector.version, body=decoded.body, exchange=1)
