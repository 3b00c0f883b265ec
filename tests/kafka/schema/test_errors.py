from __future__ import annotations

import pytest

from kafkasniff.kafka.schema.enums import enum_by_name, enum_text
from kafkasniff.kafka.schema.errors import error_by_code, error_by_name, error_codes, error_meaning, error_name
from kafkasniff.kafka.schema.uuids import ZERO_UUID, uuid_bytes, uuid_text


def test_codes_without_a_gap() -> None:
    """test_vectors shows that they are Kafka's."""
    assert error_codes() == tuple(range(-1, len(error_codes()) - 1))
    assert len({error_name(code) for code in error_codes()}) == len(error_codes())


def test_every_code_but_none_has_a_meaning() -> None:
    assert [code for code in error_codes() if error_meaning(code) is None] == [0]
    assert "leader" in (error_meaning(6) or "")
    assert error_meaning(9999) is None


def test_the_same_as_kafka_python() -> None:
    errors = pytest.importorskip("kafka.errors", reason="kafka-python is not installed")
    named = {}
    for code, theirs in errors.kafka_errors.items():
        ours = error_by_code(code)
        # kafka-python has its own names for some, and invented codes of its own far below.
        if ours is None or not isinstance(getattr(theirs, "message", None), str):
            continue
        named[code] = theirs.message
        assert theirs.message in {ours.name, *ours.former_names, OTHER_NAMES.get(code)}, code
    assert len(named) > 70


# Where kafka-python disagrees with Kafka.
OTHER_NAMES = {0: "NO_ERROR", 17: "INVALID_TOPIC", 39: "INVALID_REPLICATION_ASSIGNMENT"}


def test_look_up() -> None:
    error = error_by_code(6)
    assert error is not None
    assert (error.name, error.retriable, error.since) == ("NOT_LEADER_OR_FOLLOWER", True, "0.8.0")
    assert error_by_name("not_leader_for_partition") is error
    assert error_by_name("NOT_LEADER_OR_FOLLOWER") is error
    assert error_by_name("nothing") is None
    assert error_name(9999) is None


def test_enums() -> None:
    assert enum_text("acks", -1) == "ALL"
    assert enum_text("acks", 7) is None
    assert enum_text("transaction_result", True) == "COMMIT"
    assert enum_text("group_state_name", "Stable") == "Stable"
    assert enum_text("acl_operation_bits", 0x18) == "READ|WRITE"
    assert enum_text("acl_operation_bits", -2147483648) is None
    assert enum_text("acl_operation_bits", 1) is None
    assert enum_text("directory_id", ZERO_UUID) == "MIGRATING"
    assert enum_text("nothing", 1) is None
    assert enum_text("acks", {"redacted": 1}) is None
    timestamps = enum_by_name("list_offsets_timestamp")
    assert timestamps is not None
    assert {value.name: value.since_version for value in timestamps.values}["MAX_TIMESTAMP"] == 7
    features = enum_by_name("feature_name")
    assert features is not None
    assert {value.text: value.levels for value in features.values}["transaction.version"] == (0, 1, 2)
    assert enum_text("metadata_version", 33) == "4.4-IV2"
    assert enum_text("streams_topology_description_status", 3) == "AVAILABLE"


def test_uuids() -> None:
    assert uuid_text(bytes(16)) == ZERO_UUID
    # The id of the metadata topic, as Kafka prints it.
    assert uuid_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_text(b"\xff" * 16) == "_____________________w"
    assert uuid_bytes("_____________________w") == b"\xff" * 16
    for bad in ("", "A" * 21, "!" * 22):
        with pytest.raises(ValueError, match="not a uuid"):
            uuid_bytes(bad)
