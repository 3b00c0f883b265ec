"""The definition files: complete, consistent, found by key and name."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.apis.dissectors import Api, api, api_by_name, api_keys, api_names, snake_case
from kafkasniff.kafka.apis.releases import first_release
from kafkasniff.kafka.schema.data_files import data_folder
from kafkasniff.kafka.schema.data_schemas import data_definition, data_definitions, data_schema
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.kafka.schema.enums import API_KEY, enum_by_name, enum_names

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


def test_keys_without_a_gap_and_what_a_release_added() -> None:
    """test_vectors shows that they are Kafka's."""
    assert api_keys() == tuple(range(len(apis())))
    assert sum(first_release(found.key, version) == "4.4" for found in apis() for version in found.versions) == 7
    structures = [definition for definition in data_definitions().values() if definition.kind != "header"]
    assert [one.message.name for one in structures if one.releases[0] == "4.4"] == [
        "AbortedTxn",
        "UnregisterControllerRecord",
    ]


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


def test_look_up() -> None:
    metadata = api(3)
    assert metadata is not None
    for name in ("Metadata", "metadata", "METADATA"):
        assert api_by_name(name) is metadata
    assert api_by_name("list_offsets") is api_by_name("ListOffsets") is api(2)
    assert api_by_name("ElectPreferredLeaders") is api(43)
    assert api_by_name("AlterIsr") is api(56)
    assert api(len(api_keys())) is None
    assert api(-1) is None
    assert api_by_name("Nothing") is None


def test_versions_of_an_api() -> None:
    metadata = api(3)
    assert metadata is not None
    assert (metadata.key, metadata.name, metadata.min_version, metadata.max_version) == (3, "Metadata", 0, 13)
    assert metadata.flexible_since == 9
    assert metadata.request(9) is metadata.request(9)
    with pytest.raises(KeyError):
        metadata.request(14)
    with pytest.raises(KeyError):
        metadata.response(-1)
    handshake = api(17)
    assert handshake is not None
    assert handshake.flexible_since is None


def test_data_look_up() -> None:
    schema = data_schema("ConfigRecord", 0)
    assert schema is not None
    assert [field.name for field in schema.root.fields] == ["resource_type", "resource_name", "name", "value"]
    assert data_schema("ConfigRecord", 9) is None
    assert data_schema("Nothing", 0) is None
    partition = data_definition("metadata", 3)
    assert partition is not None
    assert partition.message.name == "PartitionRecord"
    # Ids restart in each coordinator's topic.
    names = {
        file: data_definition("coordinator-key", 0, file)
        for file in ("group_coordinator", "transaction_coordinator", "share_coordinator")
    }
    assert {file: found and found.message.name for file, found in names.items()} == {
        "group_coordinator": "LegacyOffsetCommitKey",
        "transaction_coordinator": "TransactionLogKey",
        "share_coordinator": "ShareSnapshotKey",
    }
    assert data_definition("metadata", 999) is None


def test_file_names() -> None:
    """In Kafka's snake case."""
    assert list(map(snake_case, ("ThrottleTimeMs", "KRaftVersion", "V3AndBelowTopics", "IsKRaftPublished"))) == [
        *("throttle_time_ms", "kraft_version", "v3_and_below_topics", "is_kraft_published"),
    ]
    assert list(map(snake_case, ("LastKnownELR", "offset"))) == ["last_known_elr", "offset"]
    names = sorted(path.name for path in data_folder().glob("[0-9]*.txt"))
    assert names == [f"{found.key:03d}_{snake_case(found.name)}.txt" for found in apis()]


def test_names_of_files_are_names_of_apis() -> None:
    """Fields with API keys show the names of the APIs."""
    assert enum_names(API_KEY) == api_names()
