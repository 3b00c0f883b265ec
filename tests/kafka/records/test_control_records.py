"""Control records: the vectors of Kafka's classes, and odd keys and values."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.records.control_records import VALUE_SCHEMAS, control_record
from kafkasniff.kafka.records.record_sets import decode_records
from tests.kafka.records_craft import TIME, Record, batch_of, context, kinds

VECTORS = {
    vector["name"]: bytes.fromhex(vector["data"])
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "records.json").read_text())
}
DIRECTORY = "ASNFZ4mrze8RIjNEVWZ3iA"
"""0123456789abcdef1122334455667788 as Kafka prints uuids."""


@pytest.mark.parametrize(
    ("name", "control"),
    [
        ("marker COMMIT", (1, "COMMIT", {"version": 0, "coordinator_epoch": 55})),
        ("marker ABORT", (0, "ABORT", {"version": 0, "coordinator_epoch": 55})),
        (
            "leader change",
            (
                2,
                "LEADER_CHANGE",
                {
                    "version": 0,
                    "leader_id": 2,
                    "voters": [{"voter_id": 1}, {"voter_id": 2}],
                    "granting_voters": [{"voter_id": 2}],
                },
            ),
        ),
        (
            "snapshot header",
            (3, "SNAPSHOT_HEADER", {"version": 0, "last_contained_log_timestamp": 1_700_000_000_000 - 1}),
        ),
        ("snapshot footer", (4, "SNAPSHOT_FOOTER", {"version": 0})),
        ("kraft version", (5, "KRAFT_VERSION", {"version": 0, "kraft_version": 1})),
        (
            "voters",
            (
                6,
                "KRAFT_VOTERS",
                {
                    "version": 0,
                    "voters": [
                        {
                            "voter_id": 1,
                            "voter_directory_id": DIRECTORY,
                            "endpoints": [{"name": "CONTROLLER", "host": "localhost", "port": 9093}],
                            "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
                        }
                    ],
                },
            ),
        ),
    ],
)
def test_values_that_kafka_wrote(name, control):
    data = VECTORS[name]
    where = context()
    out = decode_records(data, 0, len(data), where)
    assert where.problems == []
    (record,) = out["batches"][0]["records"]
    number, text, value = control
    assert record["_control"] == {"version": 0, "type": number, "name": text, "value": value}


def reported(key, value):
    where = context(base=10)
    found = control_record(key, value, where, 17)
    assert all(problem.offset == 7 for problem in where.problems)
    return found, kinds(where)


def test_odd_ones():
    assert reported(b"\0\0\0\1", struct.pack(">hi", 0, 12)) == (
        {"version": 0, "type": 1, "name": "COMMIT", "value": {"version": 0, "coordinator_epoch": 12}},
        [],
    )
    newer = {"version": 1, "type": 0, "name": "ABORT", "value": {"version": 3, "coordinator_epoch": -1}}
    assert reported(b"\0\1\0\0more", struct.pack(">hiq", 3, -1, 5)) == (newer, [])
    unknown = {"version": 0, "type": 9, "name": None, "value": None}
    assert reported(b"\0\0\0\x09", b"?") == (unknown, [])
    no_value = {"version": 0, "type": 1, "name": "COMMIT", "value": None}
    assert reported(b"\0\0\0\1", None) == (no_value, [])
    assert reported(b"\0\0\0\1", b"\0\0\0") == (no_value, ["control-record"])
    assert reported(b"\0\0\0\2", b"\0\7rest")[1] == ["control-record"]
    assert reported(b"\0\0\0\4", b"\0\0\0rest") == (
        {"version": 0, "type": 4, "name": "SNAPSHOT_FOOTER", "value": {"version": 0}},
        ["control-record"],
    )
    assert reported(b"\0\0\0", b"") == (None, ["control-record"])
    assert reported(None, b"") == (None, ["control-record"])


EARLY_LEADER_CHANGE = bytes.fromhex("00000002 03 00000001 00 00000002 00 03 00000001 00 00000002 00 00")
"""Written by a controller of Kafka 2.8.1 (captures/kraft-2.8.pcap), in a record of type 3."""


def test_leader_changes_of_2_8_have_the_later_type_of_snapshot_headers():
    voters = [{"voter_id": 1}, {"voter_id": 2}]
    value = {"leader_id": 2, "voters": voters, "granting_voters": voters}
    wanted = {"version": 0, "type": 3, "name": "LEADER_CHANGE", "value": value}
    assert reported(b"\0\0\0\3", EARLY_LEADER_CHANGE) == (wanted, [])
    for end in range(len(EARLY_LEADER_CHANGE)):  # truncated records have no type
        assert reported(b"\0\0\0\3", EARLY_LEADER_CHANGE[:end])[0]["name"] == "SNAPSHOT_HEADER"
    assert reported(b"\0\0\0\3", EARLY_LEADER_CHANGE + b"\0")[0]["name"] == "SNAPSHOT_HEADER"
    header = struct.pack(">hqb", 0, 1_700_000_000_000, 0)
    assert reported(b"\0\0\0\3", header)[0]["value"] == {
        "version": 0,
        "last_contained_log_timestamp": 1_700_000_000_000,
    }


def test_only_control_batches_have_them():
    data = batch_of([Record(0, 0, b"\0\0\0\1", struct.pack(">hi", 0, 12))])
    out = decode_records(data, 0, len(data), context())
    assert "_control" not in out["batches"][0]["records"][0]
    assert out["batches"][0]["records"][0]["timestamp"] == TIME


@given(st.sampled_from(sorted(VALUE_SCHEMAS)), st.binary(max_size=60))
def test_garbage_never_raises(control_type, value):
    found, _ = reported(struct.pack(">hh", 0, control_type), value)
    assert found["type"] == control_type
    assert found["value"] is None or "version" in found["value"]
