"""The overview: answers known by construction, and the same whatever way the rows arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.export import Export
from kafkasniff.analysis.overview import Overview, OverviewAnswer
from kafkasniff.capture import open_captures
from kafkasniff.tables.exports.counted import CountedRows
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.run import export
from kafkasniff.tables.rows import CONNECTIONS, EXCHANGES, PROBLEMS, RECORDS
from kafkasniff.tcp.packets import PacketBatch
from tests.analysis.tables import START_NS, Row, exchange, partition
from tests.analysis.test_accumulator import merged_in_parts, pool_batch
from tests.choice import examples, one_in
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation, interleaved
from tests.craft.packet import Packet
from tests.craft.samples import bystander
from tests.craft.write import write_pcap

TABLES = ("exchanges", "records", "connections")
SCHEMAS = {"exchanges": EXCHANGES, "records": RECORDS, "connections": CONNECTIONS, "problems": PROBLEMS}


FORGED = 'm"generation_id":99,'
"""A member's name that looks like a field, but for the backslashes that JSON puts into it."""


def problem(kind: str, at: float, **values: Any) -> Row:
    row: Row = dict.fromkeys(PROBLEMS.names)
    row |= {"kind": kind, "detail": f"{kind} at {at}", "time_ns": START_NS + round(at * 1e9), "connection_id": 1}
    return {**row, **values}


def reported(overview: Overview | None = None, **tables: list[Row]) -> OverviewAnswer:
    overview = Overview() if overview is None else overview
    for table, rows in tables.items():
        overview.update(pa.RecordBatch.from_pylist(rows, schema=SCHEMAS[table]), table)
    return overview.answer()


# -- known answers ----------------------------------------------------------------------------------------------------


def test_groups() -> None:
    def join(at: float, generation: int, member: str, members: list[str]) -> list[Row]:
        body = {"error_code": 0, "generation_id": generation, "members": [{"member_id": one} for one in members]}
        ids = {"group_id": "g", "member_id": member, "client_id": member}
        return [
            exchange("JoinGroup", at, response_body=body, request_body={"group_id": "g"}, **ids),
            exchange("SyncGroup", at + 0.1, request_body={"generation_id": generation}, **ids),
            exchange("Heartbeat", at + 0.2, request_body={"member_id": FORGED, "generation_id": generation}, **ids),
        ]  # fmt: skip

    rows = [
        *join(1, 1, "a", ["a"]),
        *join(2, 2, "a", ["a", "b"]),
        *join(2, 2, "b", []),
        exchange("OffsetCommit", 3, group_id="late", request_body={"generation_id_or_member_epoch": -1}),
        exchange("ConsumerGroupHeartbeat", 4, group_id="new", response_body={"member_epoch": 7}),
    ]
    first, *others = reported(exchanges=rows).groups
    assert (first.group_id, first.protocols, first.requests) == ("g", ["classic"], 9)
    assert (first.generation_first, first.generation_last, first.rebalances, first.members) == (1, 2, 2, 2)
    assert first.clients == 2
    assert [(one.group_id, one.protocols, one.generation_last) for one in others] == [
        ("late", [], None),
        ("new", ["consumer"], 7),
    ]


def test_truncated_lists_report_the_rest() -> None:
    rows = [exchange(at=number, client_id=f"c{number:02}", request_size=number) for number in range(20)]
    overview = Overview()
    reported(overview, exchanges=rows)
    answer = overview.answer(top=3)
    assert [one.client_id for one in answer.clients] == ["c19", "c18", "c17"]
    assert (answer.more["clients"], answer.more["apis"]) == (17, 0)


# -- the same whatever way the rows arrive -----------------------------------------------------------------------------


def over_rows(overview: Any) -> OverviewAnswer:
    """The answer with rows of `problems`, which the pool does not have."""
    return reported(overview, problems=[problem("tcp-gap", 3, bytes=10), problem("crc-mismatch", 2)])


@examples(6)
@given(data=st.data())
def test_order_batches_and_merging_change_nothing(data: st.DataObject) -> None:
    whole = Overview()
    for table in TABLES:
        whole.update(pool_batch(table), table)
    assert over_rows(merged_in_parts(data, TABLES, Overview, lambda part: part)) == over_rows(whole)


def of_captures(paths: list[str], size: int | None = None, **options: Any) -> OverviewAnswer:
    """The answer for captures. `size`: number of packets per batch."""
    overview = Overview()
    rows = CountedRows(ExportOptions(**options), overview.update, bodies=overview.bodies)
    with open_captures(paths) as source:
        for batch in source:
            part: PacketBatch = batch
            while size is not None and len(part) > size:
                first, part = part.split(size)
                rows.feed(first)
            rows.feed(part)
    names = rows.end()
    for table in SCHEMAS:
        overview.has(table)
    return overview.answer(names=names)


def of_export(paths: list[str], folder: Path, **options: Any) -> OverviewAnswer:
    export(paths, folder, ExportOptions(**options))
    made, overview = Export.open(str(folder)), Overview()
    for table, reading in overview.reads().items():
        overview.has(table)
        for batch in made.batches(table, reading):
            overview.update(batch, table)
    return overview.answer()


SHIPPED = (
    "java-group-consumer.pcap",  # topic ids
    "kraft-three-brokers.pcap",  # replication, the metadata log
    "java-sasl.pcap",  # software that becomes known late, raw tokens
    "old-message-formats.pcap",
    "librdkafka-snaplen-128.pcap",  # only headers
    "librdkafka-ipv6-ns.pcapng",
    "zookeeper-3.9-cluster.pcap",
)


@pytest.mark.parametrize("name", one_in(6, SHIPPED))
def test_a_capture_and_its_export(name: str, tmp_path: Path) -> None:
    path = str(ROOT / "captures" / name)
    answer = of_captures([path])
    assert answer == of_export([path], tmp_path / "out")
    assert answer == of_captures([path], size=7)
    assert answer.exchanges.exchanges > 10


def late_names() -> list[Packet]:
    """Topic, broker and software become known only after they are needed.

    One of two web servers runs where Kafka was.
    """
    topic, place = bytes(range(16)), ("10.0.0.9", 9092)
    reader = Conversation(("10.0.0.7", 50_001), place)
    reader.handshake()
    batch = kafka.record_batch([kafka.record(0, b"k", b"v" * 9)], 0)
    reader.exchange(kafka.fetch_request_by_id(1, [(topic, [0])]), kafka.fetch_response_by_id(1, [(topic, 0, batch)]))
    reader.exchange(kafka.api_versions_request(2, 3, ("late", "2.0")), kafka.api_versions_response(2, 3))
    other = Conversation(("10.0.0.8", 52_000), place, start_ns=reader.time_ns + 10**9)
    other.handshake()
    other.exchange(
        kafka.metadata_request_by_id(1, [(topic, None)]),
        kafka.metadata_response_with_ids(1, [(topic, "told-late")], [(5, *place)]),
    )
    other.close()
    wrong = Conversation(("10.0.0.8", 51_001), place, start_ns=other.time_ns + 10**9)
    wrong.handshake()
    wrong.exchange(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n")
    wrong.close()
    # Its connection ends last; only then its statistics show that it was Kafka.
    reader.wait(20 * 10**9)
    reader.close()
    return interleaved([reader, bystander(51_000), other, wrong])


def test_names_that_become_known_late(tmp_path: Path) -> None:
    path = str(write_pcap(tmp_path / "late.pcap", late_names()))
    answer = of_captures([path])
    assert answer == of_export([path], tmp_path / "out")
    assert answer == of_captures([path], size=1)
    assert {one.topic: one.fetched.records for one in answer.topics}["told-late"] == 1
    assert [one.broker_id for one in answer.brokers] == [5]
    (late,) = [one for one in answer.clients if one.address == "10.0.0.7"]
    assert (late.software_name, late.software_version, late.requests) == ("late", "2.0", 2)
    assert answer.problems is not None
    assert {one.kind: one.count for one in answer.problems}.get("not-kafka") == 1


def test_errors_and_where_they_occurred_first() -> None:
    failed = partition("lost", error_code=3)
    rows = [
        exchange("Metadata", 5, error_code=3, error_count=1, client_id="later", partitions=[failed]),
        exchange("Produce", 4, error_code=3, error_count=2, client_id="first", partitions=[failed, failed]),
        exchange("Heartbeat", 1, error_code=27, error_count=1, response_body={"error_code": 27}),
        exchange("Heartbeat", 2, error_code=9999, error_count=1, response_body={"error_code": 9999}),
    ]
    unknown_topic, rebalance, new = reported(exchanges=rows).errors
    assert (unknown_topic.code, unknown_topic.name, unknown_topic.count) == (3, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    assert unknown_topic.apis == ["Metadata", "Produce"]
    assert unknown_topic.first == START_NS + 4 * 10**9
    assert (unknown_topic.first_api, unknown_topic.first_client_id, unknown_topic.first_topic) == (
        "Produce",
        "first",
        "lost",
    )
    assert (unknown_topic.retriable, rebalance.retriable, new.retriable) == (True, False, None)
    assert rebalance.meaning is not None
    assert (new.name, new.meaning) == (None, None)
