"""Rows of the table `transport`, compared with the table `connections` of the same captures."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import CountedRows
from kafkasniff.tables.rows import TRANSPORT
from tests.analysis.detectors import scenes
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.packet import Packet

Rows = dict[str, list[dict[str, Any]]]


def rows_of(*batches: Any) -> Rows:
    """The rows of both tables, in order of their connections' first packets."""
    found: Rows = {"connections": [], "transport": []}

    def take(rows: pa.RecordBatch, table: str) -> None:
        if table == "transport":
            assert rows.schema == TRANSPORT
        if table in found:
            found[table] += rows.to_pylist()

    counted = CountedRows(ExportOptions(tables=("exchanges", "connections", "transport")), take)
    for each in batches:
        counted.feed(each)
    counted.end()
    for table in found.values():
        table.sort(key=lambda row: (row["time_ns"], row["client_port"]))
    return found


def crafted(packets: list[Packet]) -> Rows:
    return rows_of(batch(packets))


@pytest.mark.parametrize("name", ["java-errors.pcap", "tls/tls-refused.pcap"])
def test_the_same_connections(name: str) -> None:
    with open_captures([str(ROOT / "captures" / name)]) as source:
        found = rows_of(*source)
    transport = {row["connection_id"]: row for row in found["transport"]}
    assert len(transport) == len(found["transport"])
    assert len(found["connections"]) > 2
    for row in found["connections"]:
        same = transport[row["connection_id"]]
        # The acknowledgement of the last FIN and similar packets arrive after the end.
        assert same["end_time_ns"] >= row["end_time_ns"]
        for column in ("time_ns", "client_ip", "client_port", "broker_ip", "broker_port"):
            assert same[column] == row[column]
        assert 0 <= same["client_packets"] + same["broker_packets"] - row["packets"] <= 2
        assert same["client_again"] + same["broker_again"] <= row["retransmits"]
        assert same["opening"] == "answered"


def test_connections_that_were_never_established() -> None:
    found = crafted([packet for number in range(3) for packet in scenes.refused_connect(number).packets])
    assert found["connections"] == []
    reported = [(row["broker_ip"], row["opening"], row["syns"]) for row in found["transport"]]
    assert reported == [("10.0.0.10", "refused", 1)] * 3
