"""Records of the brokers' own topics, compared with what Kafka's own classes read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kafkasniff.kafka.apis.entities import secret_marks
from kafkasniff.kafka.embedded.internal_topics import interpret_topic
from kafkasniff.kafka.messages.message import decode_response
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import MAX_PROBLEMS, DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.schema import data_definitions
from kafkasniff.model import Problem
from tests.craft.kafka_bytes import compact_string
from tests.kafka.embedded.metadata_craft import (
    METADATA_ID,
    NAME,
    OTHER_ID,
    compact_bytes,
    fetch_response,
    fetched,
    framed,
    log,
    records_of,
    snapshot_response,
)
from tests.kafka.records_craft import ZSTD, Record, batch, batch_of, record
from tests.vectors.matching import compare
from tests.vectors.reader import Vector, vectors

TOPICS = {
    "group_coordinator": "__consumer_offsets",
    "transaction_coordinator": "__transaction_state",
    "share_coordinator": "__share_group_state",
}
# The vectors' member bytes in group metadata are made up; their problems have tests of their own.
MEMBERS = {"GroupMetadataValue", "ConsumerGroupMemberMetadataValue"}


def of_kind(kind: str) -> Iterator[tuple[str, int, Vector]]:
    """(file of the definition, record type, vector)."""
    for vector in vectors():
        definition = data_definitions().get(vector.name) if vector.kind == "data" else None
        if definition is not None and definition.kind == kind:
            assert definition.id is not None
            yield definition.file, definition.id, vector


def int16(value: int) -> bytes:
    return struct.pack(">h", value)


def interpreted(
    topic: str, *pairs: tuple[bytes | None, bytes | None], attributes: int = 0, records: str = "full"
) -> tuple[list[dict[str, Any]], list[Problem]]:
    """The records with these keys and values after their interpretation, and the problems."""
    data = batch_of([Record(at, 0, *pair) for at, pair in enumerate(pairs)], attributes=attributes)
    decoded = decode_records(data, 0, len(data), DecodeContext(DecodeOptions(records=records)))
    problems: list[Problem] = []
    interpret_topic(topic, decoded, problems)
    return (list(records_of(decoded)) if records == "full" else decoded["batches"]), problems


@pytest.mark.parametrize("kind", ["coordinator-key", "coordinator-value", "remote-log"])
def test_records_that_kafkas_classes_wrote(kind: str) -> None:
    keys = {(file, number): int16(number) + vector.data for file, number, vector in of_kind("coordinator-key")}
    seen = set()
    for file, number, vector in of_kind(kind):
        name, version, part = vector.name, vector.version, "_value"
        if kind == "coordinator-key":
            pair, version, part = (int16(number) + vector.data, None), number, "_key"
        elif kind == "coordinator-value":
            pair = keys[file, number], int16(version) + vector.data
            name = name.replace("Legacy", "")
        else:
            pair = None, framed(number, version, vector.data)
        (record,), problems = interpreted(TOPICS.get(file, "__remote_log_metadata"), pair)
        assert name in MEMBERS or problems == []
        assert (record[part]["type"], record[part]["version"]) == (name, version)
        assert list(compare(vector.body, record[part]["value"], "")) == []
        seen.add(vector.name)
    assert seen == {name for name, found in data_definitions().items() if found.kind == kind}


KEY = int16(0) + int16(2) + b"tx"


@pytest.mark.parametrize(
    ("key", "value", "detail"),
    [
        (None, b"\x00\x00", "it has no key"),
        (b"", None, "a key of 0 bytes"),
        (int16(77), None, "key type 77"),
        (int16(-1), None, "key type -1"),
        (KEY[:-1], None, "TransactionLogKey: transactional_id"),
        (KEY + b"x", None, "1 surplus bytes after a TransactionLogKey"),
        (KEY, b"\x00", "a value of 1 bytes"),
        (KEY, int16(9), "version 9 of TransactionLogValue"),
        (KEY, int16(0) + b"\x00", "TransactionLogValue: producer_id"),
    ],
)
def test_inconsistent_records(key: bytes | None, value: bytes | None, detail: str) -> None:
    (record,), problems = interpreted("__transaction_state", (key, value))
    assert (record["key"], record["value"]) == (key, value)
    assert [problem.kind for problem in problems] == ["internal-record"]
    assert problems[0].detail.startswith("record 0 of __transaction_state: ")
    assert detail in problems[0].detail
    assert ("_key" in record) == (key in (KEY, KEY + b"x"))
    assert not record.get("_value")


def test_problems_are_bounded() -> None:
    _, problems = interpreted("__transaction_state", *[(None, None)] * (MAX_PROBLEMS + 5))
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].kind == "more-problems"
    assert "5 more" in problems[-1].detail


def test_records_that_are_left_alone() -> None:
    (record,), problems = interpreted("orders", (KEY, b""))
    assert ("_key" in record, problems) == (False, [])
    # The marker of a transaction with committed offsets.
    commit = (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x07")
    (record,), problems = interpreted("__consumer_offsets", commit, attributes=0x30)
    assert ("_key" in record, record["_control"]["name"], problems) == (False, "COMMIT", [])
    (batch,), problems = interpreted("__consumer_offsets", (KEY, b""), records="batches")
    assert ("records" in batch, problems) == (False, [])


SHOWN = DecodeOptions(show_secrets=True)

SECRETS = (b"SALT-of-carol", b"STORED-key-of-carol", b"SERVER-key-of-carol")
SCRAM = framed(
    11, 0, compact_string("carol") + b"\x01" + b"".join(map(compact_bytes, SECRETS)) + b"\x00\x00\x10\x00" + b"\x00"
)
TOPIC = framed(2, 0, compact_string("orders") + OTHER_ID + b"\x00")


def config(name: str, value: str | None) -> bytes:
    return framed(4, 0, b"\x04" + compact_string("1") + compact_string(name) + compact_string(value) + b"\x00")


def metadata_vectors() -> Iterator[Vector]:
    known = {
        # QuotaRecord has the id of ClientQuotaRecord: the preview of 2.8 wrote it, in frames of another version.
        name: definition
        for name, definition in data_definitions().items()
        if definition.kind == "metadata" and name != "QuotaRecord"
    }
    for vector in vectors():
        if vector.kind == "data" and vector.name in known:
            yield vector


def type_of(vector: Vector) -> int:
    number = data_definitions()[vector.name].id
    assert number is not None
    return number


def test_records_of_kafkas_classes_are_read_the_same() -> None:
    found = list(metadata_vectors())
    defined = {name for name, definition in data_definitions().items() if definition.kind == "metadata"}
    assert {vector.name for vector in found} == defined - {"QuotaRecord"}
    values = [framed(type_of(vector), vector.version, vector.data) for vector in found]
    for data, version, key in (
        (fetch_response(log(*values, codec=ZSTD)), 17, 1),
        (fetch_response(log(*values), topic=NAME), 12, 1),
        (snapshot_response(log(*values)), 0, 59),
    ):
        decoded, records = fetched(data, version, SHOWN, key=key)
        assert decoded.problems == ()
        for vector, one, value in zip(found, records_of(records), values, strict=True):
            read = one["_value"]
            assert (read["type"], read["version"]) == (vector.name, vector.version)
            assert list(compare(vector.body, read["value"], "")) == []
            assert one["value"] == value


def test_secrets_are_hidden_by_default() -> None:
    values = (TOPIC, SCRAM, config("ssl.keystore.password", "hunter2"), config("retention.ms", "86400000"))
    for data, version, key in (
        (fetch_response(log(*values)), 17, 1),
        (fetch_response(log(*values), topic=NAME), 12, 1),
        (snapshot_response(log(*values)), 1, 59),
        (snapshot_response(b"rest of a batch" + log(*values) + log(SCRAM)[:90]), 0, 59),
    ):
        decoded, records = fetched(data, version, key=key)
        topic, scram, password, plain = records_of(records)
        assert topic["value"] == TOPIC
        assert scram["value"] == {"redacted": len(SCRAM)}
        hidden = [{"redacted": len(secret)} for secret in SECRETS]
        reported = dict(zip(("salt", "stored_key", "server_key"), hidden, strict=True))
        assert scram["_value"]["value"] == {"name": "carol", "mechanism": 1, **reported, "iterations": 4096}
        assert password["_value"]["value"]["value"] == {"redacted": 7}
        assert password["value"] == {"redacted": len(values[2])}
        assert (plain["value"], plain["_value"]["value"]["value"]) == (values[3], "86400000")
        assert decoded.problems == ()
        assert "hunter2" not in repr(decoded)
        decoded, records = fetched(data, version, SHOWN, key=key)
        assert [one["value"] for one in records_of(records)] == list(values)
        assert records_of(records)[1]["_value"]["value"]["salt"] == SECRETS[0]


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (b"", "does not begin with the varints"),
        (b"\x01", "does not begin with the varints"),
        (b"\x80\x80\x80\x80\x80\x80", "does not begin with the varints"),
        (b"\x00" + SCRAM[1:], "frame version 0"),
        (framed(99, 0, b"SALT-of-carol"), "record type 99"),
        (framed(2, 7, b"SALT-of-carol"), "version 7 of TopicRecord"),
        (SCRAM[:-10], "UserScramCredentialRecord: "),
        (SCRAM + b"SALT-of-carol", "13 surplus bytes after a UserScramCredentialRecord"),
        # A SCRAM credential with a damaged type.
        (SCRAM[:1] + b"\x02" + SCRAM[2:], "TopicRecord"),
    ],
)
def test_unreadable_records_are_withheld(value: bytes, detail: str) -> None:
    decoded, records = fetched(fetch_response(log(TOPIC, value, TOPIC)))
    before, one, after = records_of(records)
    assert one["value"] == {"redacted": len(value)}
    assert before == {**after, "offset": 0}
    assert [problem.kind for problem in decoded.problems] == ["internal-record"]
    assert detail in decoded.problems[0].detail
    assert decoded.problems[0].detail.startswith("record 1 of __cluster_metadata: ")
    assert not any(secret.decode() in repr(decoded) for secret in SECRETS)
    _, records = fetched(fetch_response(log(value)), options=SHOWN)
    assert records_of(records)[0]["value"] == value


def test_a_record_without_a_value() -> None:
    decoded, records = fetched(fetch_response(log(None)))
    assert records_of(records)[0]["value"] is None
    assert "_value" not in records_of(records)[0]
    assert [problem.kind for problem in decoded.problems] == ["internal-record"]


def test_keys_and_headers_that_should_not_be_there_are_withheld() -> None:
    data = batch_of([Record(0, 0, b"SALT-of-carol", TOPIC, (("STORED", b"STORED-key-of-carol"),))])
    decoded, records = fetched(fetch_response(data))
    (one,) = records_of(records)
    assert (one["key"], one["headers"]) == ({"redacted": 13}, [])
    assert "1 headers" in decoded.problems[0].detail
    assert "STORED" not in repr(decoded)
    _, records = fetched(fetch_response(data), options=SHOWN)
    assert records_of(records)[0]["headers"] == [{"key": "STORED", "value": b"STORED-key-of-carol"}]


def test_invalid_control_records_are_withheld() -> None:
    control = 0x20
    leader = Record(0, 0, b"\x00\x00\x00\x02", b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x01\x01\x00")
    _, records = fetched(fetch_response(batch_of([leader], attributes=control)))
    assert records_of(records)[0]["_control"]["name"] == "LEADER_CHANGE"
    assert records_of(records)[0]["value"] == leader.value
    # A data batch with one flipped bit.
    for key in (None, b"\x00\x00\x00\x02"):
        _, records = fetched(fetch_response(batch_of([Record(0, 0, key, SCRAM)], attributes=control)))
        assert records_of(records)[0]["value"] == {"redacted": len(SCRAM)}


def test_other_topics_are_left_alone() -> None:
    for topic, version in ((OTHER_ID, 17), ("orders", 12)):
        decoded, records = fetched(fetch_response(log(SCRAM, b""), version=version, topic=topic), version)
        assert [one["value"] for one in records_of(records)] == [SCRAM, b""]
        assert all("_value" not in one for one in records_of(records))
        assert decoded.problems == ()


def test_raw_is_withheld_where_it_can_hold_metadata() -> None:
    for data, version, key in (
        (fetch_response(log(SCRAM)), 17, 1),
        (fetch_response(log(SCRAM)), 99, 1),
        (fetch_response(log(SCRAM), topic=NAME), 12, 1),
        (snapshot_response(log(SCRAM)), 0, 59),
        (snapshot_response(log(SCRAM)), 9, 59),
    ):
        cut = data[:-2]
        decoded = decode_response(cut, 0, len(cut), key, version, DecodeOptions())
        assert decoded.raw is None
        assert decoded.raw_redacted == len(cut) - 5
        assert b"SALT" not in repr(decoded).encode()
        shown = decode_response(cut, 0, len(cut), key, version, SHOWN)
        assert shown.raw == cut[5:]
    for topic, version in ((OTHER_ID, 17), ("orders", 12)):
        cut = fetch_response(log(TOPIC), topic=topic)[:-2]
        decoded = decode_response(cut, 0, len(cut), 1, version, DecodeOptions())
        assert decoded.raw == cut[5:]


def test_marks_of_bytes_that_may_hold_metadata() -> None:
    """Bytes that were not decoded are withheld if they have one of these."""
    by_name, by_id = NAME.encode(), METADATA_ID
    for key, direction, version, marks in (
        *((1, "response", 12, {by_name}), (1, "response", 13, {by_id}), (1, "request", 12, set())),
        # In an unknown version either may be there.
        *((1, "response", 200, {by_name, by_id}), (0, "request", 3, {by_name}), (0, "response", 3, set())),
        *((12, "request", 0, set()), (9999, "request", 0, set())),
    ):
        assert set(secret_marks(key, direction, version)) == marks


def test_a_batch_that_cannot_be_decompressed_or_read_shows_nothing() -> None:
    payload = record(Record(0, 0, None, TOPIC)) + record(Record(1, 0, None, SCRAM))
    for damaged in (batch(payload, 2, attributes=4), batch(payload[:-5], 2), batch(payload, 2, crc=1)):
        decoded, _ = fetched(fetch_response(damaged))
        assert decoded.problems
        assert not any(secret.decode() in repr(decoded) for secret in SECRETS)
