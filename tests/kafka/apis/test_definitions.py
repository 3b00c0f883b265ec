"""Definitions: consistent, by release, with their codes and entities; Kafka's own JSON of messages."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.detectors.registry import detector_names
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.dissectors import Api, api, api_by_name, api_keys
from kafkasniff.kafka.apis.entities import mentions, plan_of
from kafkasniff.kafka.apis.kafka_json import encode, values_of
from kafkasniff.kafka.apis.releases import dropped_in, first_release, is_stable, removed_in, spoken, spoken_by
from kafkasniff.kafka.schema.codes import ZERO_UUID, enum_by_name, error_by_code, error_codes, uuid_bytes, uuid_text
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.kafka.schema.schema import data_definitions, data_schema
from kafkasniff.model import Direction, Message
from tests.test_vectors import MESSAGES, root
from tests.vectors.reader import vectors

ENTITIES = {None, "topic_name", "broker_id", "group_id", "producer_id", "transactional_id"}
CLIENT = {"software_name", "software_version"}
"""Fields of ApiVersions about the client, for which Kafka's own definitions have no entity type."""


def apis() -> list[Api]:
    return [found for key in api_keys() if (found := api(key)) is not None]


def all_fields() -> list[tuple[str, FieldDefinition]]:
    found: list[tuple[str, FieldDefinition]] = []

    def walk(place: str, fields: tuple[FieldDefinition, ...]) -> None:
        for field in fields:
            found.append((f"{place}.{field.name}", field))
            walk(f"{place}.{field.name}", field.fields)

    for entry in apis():
        walk(f"{entry.name}.request", entry.definition.request.fields)
        walk(f"{entry.name}.response", entry.definition.response.fields)
    for name, definition in data_definitions().items():
        walk(name, definition.message.fields)
    return found


def test_attributes_refer_to_existing_fields() -> None:
    assert [place for place, field in all_fields() if field.enum and enum_by_name(field.enum) is None] == []
    assert {field.entity for _, field in all_fields()} == ENTITIES | CLIENT
    assert [place for place, field in all_fields() if field.classic] == ["RequestHeader.client_id"]
    assert [found.name for found in apis() if not (found.summary.endswith(".") and found.listeners)] == []
    assert [name for name, definition in data_definitions().items() if not definition.summary.endswith(".")] == []
    # Every secret configuration value has a name next to it.
    for place, field in all_fields():
        if field.secret == "config":
            siblings = {other for other, _ in all_fields() if other.rpartition(".")[0] == place.rpartition(".")[0]}
            assert f"{place.rpartition('.')[0]}.name" in siblings


def test_headers_exist_and_fit() -> None:
    """A flexible request has a header with tags; of responses, ApiVersions is the exception (KIP-511)."""
    for found in apis():
        for version in found.versions:
            asked, answered = found.request_header(version), found.response_header(version)
            assert data_schema("RequestHeader", asked) is not None
            assert data_schema("ResponseHeader", answered) is not None
            flexible = found.request(version).flexible
            assert (asked >= 2) is flexible
            assert (answered >= 1) is (flexible and found.name != "ApiVersions")


def key(name: str) -> int:
    found = api_by_name(name)
    assert found is not None
    return found.key


def test_every_version_of_every_api_came_with_a_release_but_one() -> None:
    never = []
    for number in api_keys():
        found = api(number)
        assert found is not None
        never += [(found.name, version) for version in found.versions if first_release(number, version) is None]
        assert first_release(number, found.max_version + 1) is None
        for release, versions in spoken(number).items():
            assert 0 <= versions.low <= versions.high <= found.max_version, (found.name, release)
    # KAFKA-20441 removed it again before 4.3.0.
    assert never == [("BrokerRegistration", 5)]


def test_versions_that_are_not_stable() -> None:
    assert [is_stable(key("ShareFetch"), version) for version in (0, 1)] == [False, True]
    # In 3.5 only with an opt-in, stable since 3.7.
    assert first_release(key("ConsumerGroupHeartbeat"), 0) == "3.7"


def test_versions_and_apis_that_were_dropped() -> None:
    """Kafka 4.0 dropped the versions of clients before 2.1 (KIP-896), and the controller's requests with ZooKeeper."""
    assert (dropped_in(0, 2), dropped_in(1, 3)) == (("4.0", 3), ("4.0", 4))
    # Still accepted, in no release, kept, removed with the whole API, and no API.
    assert {dropped_in(*pair) for pair in ((0, 3), (0, 99), (3, 0), (4, 0), (9_999, 0))} == {None}
    assert (removed_in(key("LeaderAndIsr")), removed_in(key("Fetch"))) == ("4.0", None)
    assert str(spoken_by("4.0")[key("Fetch")]) == "4-17"


def message(direction: Direction, key: int, version: int, body: dict[str, Any]) -> Message:
    return Message(direction, 100, api_key=key, api_version=version, body=body)


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


def test_kafkas_json_becomes_kafkas_bytes() -> None:
    """Except for tagged fields without a definition and for records, which that JSON omits."""
    count = 0
    for vector in vectors():
        if vector.kind not in MESSAGES or "_unknown" in repr(vector.body):
            continue
        sizes: list[int] = []
        made = encode(root(vector), values_of(root(vector), vector.body, sizes))
        if not sizes:
            assert vector.data.endswith(made), vector
            assert vector.kind != "data" or vector.data == made
            count += 1
    assert count > 4000


def test_advice_for_every_code() -> None:
    """Including who has to act; other codes and APIs that a code refers to exist."""
    for code in error_codes()[:1] + error_codes()[2:]:
        error = error_by_code(code)
        assert error is not None
        assert error.settles != "-", error.name
        assert error.advice is not None, error.name
        assert error.advice[0].isupper(), error.name
        assert not error.advice.endswith("."), error.name
        head = None if error.like is None else error_by_code(error.like)
        assert (head is None) == (error.like is None)
        assert head is None or head.like is None, "families have one head"
        for cause in error.after:
            assert error_by_code(int(cause)) if cause.isdecimal() else cause in detector_names(), error.name
        assert all(api_by_name(name) is not None for name in (*error.exceptions, *error.advice_by_api))
    version = error_by_code(35)
    assert version is not None
    assert (version.settled_by("ApiVersions"), version.settled_by("Produce")) == ("protocol", "program")
    assert "group.version" in (version.advice_in("ShareGroupHeartbeat") or "")
    assert version.advice_in("Produce") == version.advice
    advice = [error.advice for code in error_codes() if (error := error_by_code(code)) is not None]
    assert len(set(advice)) > 120


def test_uuids() -> None:
    assert uuid_text(bytes(16)) == ZERO_UUID
    # The id of the metadata topic, as Kafka prints it.
    assert uuid_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_text(b"\xff" * 16) == "_____________________w"
    assert uuid_bytes("_____________________w") == b"\xff" * 16
    for bad in ("", "A" * 21, "!" * 22):
        with pytest.raises(ValueError, match="not a uuid"):
            uuid_bytes(bad)
