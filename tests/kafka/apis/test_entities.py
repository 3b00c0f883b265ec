"""The entities of exchanges, from bodies as the dissectors give them."""

from __future__ import annotations

from typing import Any

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.entities import mentions, only, plan_of
from kafkasniff.model import Direction, Message

ID = "dGhpc2lzYXRvcGljaWQxNg"


def message(direction: Direction, key: int, version: int, body: dict[str, Any]) -> Message:
    return Message(direction, 100, api_key=key, api_version=version, body=body)


def test_other_messages() -> None:
    """Several groups, groups of a response, topics of a session, incomplete bodies, and none at all."""
    named = mentions(message("request", 9, 8, {"groups": [{"group_id": "a"}, {"group_id": "b"}]}), None)
    assert (list(named.groups), only(named.groups)) == (["a", "b"], None)
    named = mentions(message("request", 16, 0, {}), message("response", 16, 0, {"groups": [{"group_id": "a"}]}))
    assert named.groups == {}
    request = Message("request", 9, api_key=1, api_version=13, body={"topics": []}, session_topics=("orders", "b"))
    response = message("response", 1, 13, {"responses": [{"topic_id": ID, "_topic_name": "b", "partitions": []}]})
    named = mentions(request, response)
    assert (list(named.topics), named.partitions) == (["orders", "b"], {})
    body = {"topic_data": [{"name": "a", "partition_data": [{"index": 1}]}, {"name": "b"}]}
    named = mentions(message("request", 0, 9, body), None)
    assert list(named.topics) == ["a", "b"]
    assert [facts.partition for facts in named.partitions.values()] == [1]
    assert mentions(None, None).topics == {}
    assert mentions(Message("request", 9, api_key=0, api_version=9), None).partitions == {}
    assert mentions(message("request", 999, 0, {"topic_names": ["a"]}), None).topics == {}


def test_every_topic_field_of_every_api_is_found() -> None:
    """Each field that a definition marks as a topic's name is in its API's plan, at any depth."""

    def fill(fields: tuple[Any, ...], place: str, expected: set[str]) -> dict[str, Any]:
        body: dict[str, Any] = {}
        for field in fields:
            here = f"{place}.{field.name}"
            if field.fields:
                inside = fill(field.fields, here, expected)
                body[field.name] = [inside] if field.array else inside
            elif field.entity == "topic_name":
                expected.add(here)
                body[field.name] = [here] if field.array else here
        return body

    seen = 0
    for key in dissectors.api_keys():
        api = dissectors.api(key)
        assert api is not None
        for direction in ("request", "response"):
            expected: set[str] = set()
            definition = getattr(api.definition, direction)
            body = fill(definition.fields, api.name, expected)
            assert set(mentions(None, message(direction, key, 0, body)).topics) == expected  # type: ignore[arg-type]
            seen += len(expected)
    assert seen > 90
    assert plan_of(999, "request") is None
