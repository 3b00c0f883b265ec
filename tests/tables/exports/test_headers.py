"""Header columns alone (`--no-bodies`): headers are the same as in any export, and bodies contribute nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import small_messages
from kafkasniff.engine.emitting import Emitter
from kafkasniff.engine.pair_columns import PairColumns
from kafkasniff.tables.exports.options import ExportOptions
from tests.choice import DEEP, fewer
from tests.conftest import shipped_captures
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation
from tests.craft.write import write_pcap
from tests.oracle.inspector import by_python
from tests.tables.exports.exported import CAPTURES, rows, run

HEADERS = ExportOptions(tables=("exchanges", "problems"), bodies=False, headers=True)
OF_BODIES = {
    **dict.fromkeys(("throttle_time_ms", "error_code", "error", "error_count", "group_id", "member_id", "acks")),
    **dict.fromkeys(("transactional_id", "record_count", "request_body", "response_body", "broker_id")),
    **dict.fromkeys(("sender", "behind_us", "muted_us", "wait_us", "waits_for")),
    "topics": [],
    "partitions": [],
}


def key(row: dict[str, Any]) -> tuple[int, int]:
    return row["connection_id"], row["exchange_id"]


@pytest.mark.parametrize("capture", shipped_captures()[:: 1 if DEEP else fewer(19, 4)], ids=lambda path: path.name)
def test_headers_are_those_of_any_export(capture: Path, tmp_path: Path) -> None:
    run([capture], tmp_path / "headers", HEADERS)
    run([capture], tmp_path / "all", ExportOptions(tables=("exchanges",)))
    found, every = (sorted(rows(tmp_path / name, "exchanges"), key=key) for name in ("headers", "all"))
    assert [{**row, "problems": None} for row in found] == [{**row, **OF_BODIES, "problems": None} for row in every]
    for row, whole in zip(found, every, strict=True):
        assert set(row["problems"]) <= set(whole["problems"])


def test_the_same_with_records(tmp_path: Path) -> None:
    """Records need bodies, which give brokers' numbers, but nothing else for the rows of exchanges."""
    capture = CAPTURES / "java-codecs.pcap"
    run([capture], tmp_path / "without", HEADERS)
    run([capture], tmp_path / "with", ExportOptions(bodies=False, headers=True))
    assert rows(tmp_path / "with", "records")
    found = rows(tmp_path / "with", "exchanges")
    assert {row["broker_id"] for row in found} == {1}
    assert [{**row, "broker_id": None} for row in found] == rows(tmp_path / "without", "exchanges")


def crafted(path: Path) -> Path:
    """Small messages of many connections, then a client whose id is not UTF-8 and one with acks 0."""
    small_messages.write(path, connections=150, wanted=fewer(2_500, 7_000))
    data = path.read_bytes()
    packets = []
    for number in range(3):
        talk = Conversation(("10.9.0.5", 40_000 + number), start_ns=1_781_000_100_000_000_000 + number)
        talk.handshake()
        for correlation_id in range(60):
            batch = kafka.record_batch([kafka.record(0, b"k", b"v")])
            request = kafka.produce_request(
                correlation_id, "orders", batch, acks=int(number != 1 or correlation_id % 3)
            )
            if number == 2:
                request = request.replace(b"crafted", b"cr\xe4fted")
            answered = number != 1 or correlation_id % 3
            if answered:
                talk.exchange(request, kafka.produce_response(correlation_id, "orders", correlation_id))
            else:
                talk.send("client", request)
        packets += talk.packets
    packets.sort(key=lambda packet: packet.time_ns)
    # After the others, in batches of their own size.
    more = write_pcap(path.with_name("more.pcap"), packets, nanoseconds=True).read_bytes()
    path.write_bytes(data + more[24:])
    return path


def test_columns_equal_rows_made_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = crafted(tmp_path / "small.pcap")
    monkeypatch.setattr("kafkasniff.tables.exports.shard.MAX_PART_ROWS", 500)
    monkeypatch.setattr("kafkasniff.tables.exports.shard.HEADERS_AT_ONCE", 1)
    in_columns = []
    kept = Emitter.count_columns

    def counted(self: Emitter, found: PairColumns) -> None:
        kept(self, found)
        in_columns.append(len(found.client_id))

    monkeypatch.setattr(Emitter, "count_columns", counted)
    tables = ("exchanges", "connections", "problems")
    first = run([capture], tmp_path / "columns", ExportOptions(tables=tables, bodies=False, headers=True))
    assert sum(in_columns) > 0.5 * first.rows["exchanges"]
    with by_python():
        second = run([capture], tmp_path / "rows", ExportOptions(tables=tables, bodies=False, headers=True))
    for table in tables:
        assert rows(tmp_path / "columns", table) == rows(tmp_path / "rows", table)
    assert first.summary == second.summary
    found = rows(tmp_path / "columns", "exchanges")
    assert sum(row["status"] == "no_response" for row in found) == 20
    assert sum(row["problems"] == ["string-not-utf8"] for row in found) == 60
    assert {row["client_id"] for row in found} == {"crafted", "cr\\xe4fted"}
