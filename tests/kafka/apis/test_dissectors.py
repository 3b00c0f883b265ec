"""The definition files: complete, consistent, found by key and name."""

from __future__ import annotations

from kafkasniff.kafka.apis.dissectors import Api, api, api_keys, snake_case
from kafkasniff.kafka.schema.codes import enum_by_name
from kafkasniff.kafka.schema.data_files import data_folder
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.kafka.schema.schema import data_definitions, data_schema

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


def test_keys_without_a_gap() -> None:
    """test_vectors shows that they are Kafka's."""
    assert api_keys() == tuple(range(len(apis())))


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


def test_file_names() -> None:
    """In Kafka's snake case."""
    names = [snake_case(name) for name in ("ThrottleTimeMs", "KRaftVersion", "V3AndBelowTopics", "LastKnownELR")]
    assert names == ["throttle_time_ms", "kraft_version", "v3_and_below_topics", "last_known_elr"]
    names = sorted(path.name for path in data_folder().glob("[0-9]*.txt"))
    assert names == [f"{found.key:03d}_{snake_case(found.name)}.txt" for found in apis()]
