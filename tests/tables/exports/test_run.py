"""One run: all tables of the shipped captures, compared with a two-pass run and with the clients' logs."""

from __future__ import annotations

import base64
import functools
import random
import stat
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq

from kafkasniff import __version__
from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.library import learn
from kafkasniff.model import Exchange
from kafkasniff.sinks.jsonl import body_json
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.run import Result
from kafkasniff.tables.rows import SCHEMA_VERSION, TABLES, exchange_row
from tests.choice import DEEP, fewer, in_turn, one_in
from tests.conftest import shipped_captures
from tests.craft.samples import mixed
from tests.craft.write import LINKS, link_bytes, pcap_bytes
from tests.enrich import talks
from tests.tables.exports.exported import (
    CAPTURES,
    LOGGED,
    MANIFEST,
    Rows,
    files,
    logged,
    manifest,
    named_files,
    rows,
    run,
    tables,
)

SOME = (
    *("franz-go.pcap", "java-group-share.pcap", "java-sasl.pcap", "kraft-three-brokers.pcap"),
    *("librdkafka-snaplen-128.pcap", "librdkafka-ipv6-ns.pcapng", "old-message-formats.pcap", "old-raw-sasl.pcap"),
)
"""Ids and names, SASL, the metadata log, cut packets, IPv6, message sets."""

Exports = Callable[..., tuple[Path, Result]]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """Exports of shipped captures, each made once."""

    @functools.cache
    def made(name: str, *, records: bool = False) -> tuple[Path, Result]:
        folder = tmp_path_factory.mktemp("export")
        return folder, run([CAPTURES / name], folder, ExportOptions(records=records))

    return made


def read_twice(capture: Path | str, records: Any) -> Rows:
    """The rows of `exchanges` from a second pass that knows all names from the start."""
    catalog = Catalog()
    learn(catalog, lambda: open_captures([str(capture)]), {})
    inspector = Inspector(records=records, connections=True)
    enricher = Enricher(catalog)
    events: list[Any] = []
    with open_captures([str(capture)]) as source:
        for batch in source:
            events += enricher.feed(inspector.feed(batch))
    events += enricher.feed(inspector.close())
    found = [exchange_row(one, lambda m: body_json(m.body or {})) for one in events if isinstance(one, Exchange)]
    return sorted(map(comparable, found), key=repr)


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """Without capture-dependent columns, and with topics unordered: exports list a session's topics first."""
    kept = {name: value for name, value in row.items() if name not in {"_pending", "time"}}
    # Known only if records are decoded, which a plain pass does not do.
    partitions = [{**one, "uncompressed_bytes": None} for one in row["partitions"]]
    return {**kept, "topics": sorted(row["topics"]), "partitions": partitions}


def test_bytes_before_compression(tmp_path: Path) -> None:
    """For any way of reading records: the size of the same records before the codecs."""
    names = ("compression", "record_count", "bytes", "uncompressed_bytes")
    found = []
    for number, options in enumerate((ExportOptions(), ExportOptions(records=True))):
        run([CAPTURES / "librdkafka-codecs.pcap"], tmp_path / str(number), options)
        asked = (row for row in rows(tmp_path / str(number), "exchanges") if row["api"] == "Produce")
        found.append(sorted(tuple(one[name] for name in names) for row in asked for one in row["partitions"]))
    columns, full = found
    assert columns == full
    assert {codec for codec, *_ in columns} == {"none", "gzip", "snappy", "lz4", "zstd"}
    for codec, _, size, before in columns:
        assert before == size if codec == "none" else before != size
    # The client sent the same records with each codec.
    most = max(count for _, count, *_ in columns)
    assert len({before for _, count, _, before in columns if count == most}) == 1
    run([CAPTURES / "librdkafka-codecs.pcap"], tmp_path / "alone", ExportOptions(tables=("exchanges",)))
    alone = [one for row in rows(tmp_path / "alone", "exchanges") for one in row["partitions"] if one["bytes"]]
    assert {one["uncompressed_bytes"] is None for one in alone if one["compression"] != "none"} == {True}


@pytest.mark.parametrize(("name", "records"), one_in(2, in_turn(SOME, [False, True], 2, with_all=2)))
def test_one_pass_finds_what_two_find(name: str, records: bool, exports: Exports) -> None:
    folder, _ = exports(name, records=records)
    found = sorted(map(comparable, rows(folder, "exchanges")), key=repr)
    assert found == read_twice(CAPTURES / name, "full" if records else "columns")


@pytest.mark.parametrize("columns", [("broker_id", "software_name"), ("topics",), ("request_body", "partitions")])
def test_only_columns_that_will_be_read(columns: tuple[str, ...], tmp_path: Path) -> None:
    """They are those of a whole export, also where names become known late."""
    capture = tmp_path / "talk.pcap"
    capture.write_bytes(pcap_bytes(talks.both()))
    found = []
    for name, wanted in (("whole", None), ("some", columns)):
        run([capture], tmp_path / name, ExportOptions(tables=("exchanges",)), columns=wanted)
        found.append(rows(tmp_path / name, "exchanges"))
    whole, some = found
    assert [[row[name] for name in columns] for row in some] == [[row[name] for name in columns] for row in whole]
    assert any(row["response_size"] for row in whole)
    assert not any(row["response_size"] for row in some)


def test_names_that_become_known_late(tmp_path: Path) -> None:
    """Ids before their names, a session, and the brokers' own records whose topic gets its name later."""
    capture = tmp_path / "talk.pcap"
    capture.write_bytes(pcap_bytes(talks.both()))
    run([capture], tmp_path / "out", ExportOptions(records=True))
    found = rows(tmp_path / "out", "exchanges")
    assert sorted(map(comparable, found), key=repr) == read_twice(capture, "full")
    first = next(row for row in found if row["api"] == "Fetch")
    assert '"_topic_name":"orders"' in first["request_body"]
    assert first["topics"] == ["orders"]
    assert first["broker_id"] == 3
    # Whatever the order of the options: problems found in exchanges are rows of `problems`.
    run([capture], tmp_path / "turned", ExportOptions(records=True, tables=("problems", "records", "exchanges")))
    problems = rows(tmp_path / "turned", "problems")
    assert problems == rows(tmp_path / "out", "problems")
    (odd,) = [row for row in problems if row["kind"] == "internal-record"]
    assert (odd["direction"], odd["packet"]) == ("response", None)
    (fetch,) = [row for row in found if "internal-record" in row["problems"]]
    assert (odd["connection_id"], odd["exchange_id"]) == (fetch["connection_id"], fetch["exchange_id"])
    assert odd["time_ns"] == fetch["time_ns"]
    assert {row["topic"] for row in rows(tmp_path / "out", "records")} == {"orders", "__consumer_offsets"}


@pytest.mark.parametrize("name", [name for name in one_in(2, LOGGED) if "codecs" in name or name == "franz-go.pcap"])
def test_records_match_the_clients_log(name: str, exports: Exports) -> None:
    folder, _ = exports(name)
    client = logged(name)

    def data(value: Any) -> bytes | None:
        if isinstance(value, dict):
            return base64.b64decode(value["base64"])
        return value.encode() if isinstance(value, str) else value

    def key(topic: str, key: Any, value: Any, headers: Any, moment: Any) -> tuple[Any, ...]:
        reported = tuple((name, data(content)) for name, content in headers or ())
        return (topic, data(key), data(value), reported, moment)

    found = [row for row in rows(folder, "records") if not row["topic"].startswith("__") and row["control"] is None]
    seen: dict[str, Counter[tuple[Any, ...]]] = {"request": Counter(), "response": Counter()}
    for row in found:
        headers = [(one["key"], one["value"]) for one in row["headers"]]
        moment = round(row["timestamp"].timestamp() * 1000)
        seen[row["direction"]][key(row["topic"], row["key"], row["value"], headers, moment)] += 1
    said = {
        kind: Counter(
            key(one["topic"], one["key"], one["value"], one.get("headers"), one["timestamp"])
            for one in client.get(kind, ())
            if not one.get("error")
        )
        for kind in ("produced", "consumed")
    }
    # The client does not log records that were retransmitted, or fetched and never polled.
    assert not said["produced"] - seen["request"]
    assert not said["consumed"] - seen["response"]
    assert set(seen["request"]) >= set(said["produced"]) > set()
    places = {(row["topic"], row["partition"], row["offset"]) for row in found if row["direction"] == "response"}
    assert places >= {(one["topic"], one["partition"], one["offset"]) for one in client.get("consumed", ())}


@pytest.mark.parametrize("name", LOGGED[:: fewer(6, 3)])
def test_rows_match_the_requests_in_the_clients_log(name: str, exports: Exports) -> None:
    found = rows(exports(name)[0], "exchanges")
    requests = logged(name)["request"]
    # Not every client logs all of these for every request; everything it logs must be in the rows.
    reported = [key for key in ("client_id", "correlation_id") if all(key in one for one in requests)]
    columns = ("api", "api_version", *reported)
    sent = Counter(tuple(one[column] for column in columns) for one in requests)
    seen = Counter(tuple(row[column] for column in columns) for row in found)
    assert seen == sent
    assert len({(row["connection_id"], row["exchange_id"]) for row in found}) == len(found)
    assert {row["broker_port"] for row in found} <= set(MANIFEST[name]["broker_ports"])


def test_the_files(tmp_path: Path) -> None:
    run([CAPTURES / "java-codecs.pcap", CAPTURES / "old-raw-sasl.pcap"], tmp_path)
    reported = manifest(tmp_path)
    known = {"format": "kafkasniff-export", "schema_version": SCHEMA_VERSION, "engine": "local", "version": __version__}
    assert reported | known == reported
    assert [Path(one["name"]).name for one in reported["captures"]] == ["java-codecs.pcap", "old-raw-sasl.pcap"]
    assert files(tmp_path) == named_files(tmp_path)
    for name in files(tmp_path):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    for table, schema in TABLES.items():
        assert reported["tables"][table]["rows"] == len(rows(tmp_path, table))
        for entry in reported["tables"][table]["files"]:
            file = pq.ParquetFile(tmp_path / entry["path"])
            assert file.schema_arrow.equals(schema)
            assert file.metadata.metadata[b"kafkasniff.schema_version"] == str(SCHEMA_VERSION).encode()
            assert file.metadata.metadata[b"kafkasniff.table"] == table.encode()
            assert (tmp_path / entry["path"]).stat().st_size == entry["bytes"]
            group = file.metadata.row_group(0)
            columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
            assert {column.compression for column in columns.values()} == {"ZSTD"}
            # No INT96: its statistics cannot be used to skip row groups.
            assert columns["time"].physical_type == "INT64"
            assert columns["time"].statistics.min.tzinfo is not None


def test_an_empty_capture_is_an_export_too(tmp_path: Path) -> None:
    (tmp_path / "empty.pcap").write_bytes(pcap_bytes([]))
    result = run([tmp_path / "empty.pcap"], tmp_path / "out")
    assert result.rows == dict.fromkeys(TABLES, 0)
    assert tables(tmp_path / "out") == {name: [] for name in TABLES}


def test_captures_without_times(tmp_path: Path) -> None:
    """Rows without a time have the date 1970-01-01 and are first."""
    data = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    data += struct.pack("<IIHHII", 1, 20, 1, 0, 0, 20)
    for packet in mixed():
        frame, _ = link_bytes(packet, LINKS["ethernet"])
        padded = frame + bytes(-len(frame) % 4)
        data += struct.pack("<III", 3, len(padded) + 16, len(frame)) + padded + struct.pack("<I", len(padded) + 16)
    (tmp_path / "simple.pcapng").write_bytes(data)
    run([tmp_path / "simple.pcapng"], tmp_path / "out")
    assert {name.split("/")[1] for name in files(tmp_path / "out") if "/date=" in name} == {"date=1970-01-01"}
    assert len(rows(tmp_path / "out", "exchanges")) > 20


@pytest.mark.parametrize("seed", range(fewer(1, 6)))
def test_damaged_captures_are_exported_up_to_their_end(seed: int, tmp_path: Path) -> None:
    """Nothing is raised, and problems found in single records are also found in columns."""
    dice = random.Random(seed)
    data = bytearray((CAPTURES / dice.choice(["java-codecs.pcap", "franz-go.pcap", "kraft-quorum.pcap"])).read_bytes())
    for _ in range(dice.randrange(1, 200)):
        data[dice.randrange(24, len(data))] = dice.randrange(256)
    (tmp_path / "damaged.pcap").write_bytes(data[: dice.randrange(len(data) // 2, len(data))])
    run([tmp_path / "damaged.pcap"], tmp_path / "columns", ExportOptions(bodies=False))
    run([tmp_path / "damaged.pcap"], tmp_path / "full", ExportOptions(records=True))
    columns, full = tables(tmp_path / "columns"), tables(tmp_path / "full")
    assert columns["records"] == full["records"]
    assert columns["problems"] == [row for row in full["problems"] if row["kind"] != "internal-record"]


# -- header columns alone (`--no-bodies`) ------------------------------------------------------------------------------

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


@pytest.mark.parametrize("capture", shipped_captures()[:: 1 if DEEP else fewer(19, 8)], ids=lambda path: path.name)
def test_headers_are_those_of_any_export(capture: Path, tmp_path: Path) -> None:
    run([capture], tmp_path / "headers", HEADERS)
    run([capture], tmp_path / "all", ExportOptions(tables=("exchanges",)))
    found, every = (sorted(rows(tmp_path / name, "exchanges"), key=key) for name in ("headers", "all"))
    assert [{**row, "problems": None} for row in found] == [{**row, **OF_BODIES, "problems": None} for row in every]
    for row, whole in zip(found, every, strict=True):
        assert set(row["problems"]) <= set(whole["problems"])
