"""The Parquet sink: whole exports or none, readable by Arrow, private, bounded."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow.dataset as ds
import pytest
from pyarrow import parquet as pq

import kafkasniff
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.model import Endpoint, Exchange, Message, Problem
from kafkasniff.rows import EXCHANGES, SCHEMA_VERSION
from kafkasniff.sinks import parquet
from kafkasniff.sinks.parquet import ParquetSink

NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 10**9
DAY = 86_400 * 10**9


def exchange(number: int = 1, time_ns: int | None = NOON, *, capture: str = "a.pcap", group: str = "g") -> Exchange:
    request = Message(
        type="request",
        size=27,
        correlation_id=number,
        api_key=12,
        api="Heartbeat",
        api_version=0,
        client_id="member",
        body={"group_id": group, "generation_id": 4, "member_id": "m-1"},
        capture=capture,
        time_ns=time_ns,
        client=Endpoint("10.0.0.5", 51334),
        broker=Endpoint("10.0.0.9", 9092),
    )
    return Exchange(number, 1, "open", request, None, connection_id=-7, exchange_id=number)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_export_can_be_read(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    sink.write(exchange(1))
    sink.write(Problem("tcp-gap", "not an exchange"))
    sink.write(exchange(2, NOON + DAY))
    sink.write(exchange(3, None))
    sink.close()
    assert files(tmp_path / "out") == {
        "exchanges/date=1970-01-01/part-00000.parquet",
        "exchanges/date=2026-11-21/part-00000.parquet",
        "exchanges/date=2026-11-22/part-00000.parquet",
        "manifest.json",
    }
    table = ds.dataset(tmp_path / "out" / "exchanges", partitioning="hive").to_table().sort_by("exchange_id")
    assert table.column_names == [*EXCHANGES.names, "date"]
    assert table["exchange_id"].to_pylist() == [1, 2, 3]
    assert [str(date) for date in table["date"].to_pylist()] == ["2026-11-21", "2026-11-22", "1970-01-01"]
    assert table["time"].to_pylist() == [
        datetime(2026, 11, 21, 12, tzinfo=UTC),
        datetime(2026, 11, 22, 12, tzinfo=UTC),
        None,
    ]
    assert sink.rows == 3


def test_the_file_has_the_schema_and_its_version(tmp_path: Path) -> None:
    with ParquetSink(tmp_path) as sink:
        sink.write(exchange())
    file = pq.ParquetFile(tmp_path / "exchanges" / "date=2026-11-21" / "part-00000.parquet")
    assert file.schema_arrow.equals(EXCHANGES)
    assert file.metadata.metadata[b"kafkasniff.schema_version"] == str(SCHEMA_VERSION).encode()
    assert file.metadata.metadata[b"kafkasniff.table"] == b"exchanges"
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    # No INT96: its statistics cannot be used to skip row groups.
    times = next(file.metadata.row_group(0).column(i) for i in range(99) if EXCHANGES.names[i] == "time")
    assert times.physical_type == "INT64"
    assert times.statistics.min == datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_the_manifest_tells_the_files(tmp_path: Path) -> None:
    with ParquetSink(tmp_path) as sink:
        for number in range(5):
            sink.write(exchange(number, capture=f"{number % 2}.pcap"))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    path = tmp_path / "exchanges" / "date=2026-11-21" / "part-00000.parquet"
    assert manifest == {
        "format": "kafkasniff-export",
        "schema_version": SCHEMA_VERSION,
        "version": kafkasniff.__version__,
        "engine": "local",
        "captures": ["0.pcap", "1.pcap"],
        "tables": {
            "exchanges": {
                "rows": 5,
                "files": [{"path": path.relative_to(tmp_path).as_posix(), "rows": 5, "bytes": path.stat().st_size}],
            }
        },
    }


def test_nothing_seen_is_an_export_too(tmp_path: Path) -> None:
    ParquetSink(tmp_path).close()
    assert files(tmp_path) == {"manifest.json"}
    assert json.loads((tmp_path / "manifest.json").read_text())["tables"] == {"exchanges": {"rows": 0, "files": []}}


def test_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with ParquetSink(tmp_path) as sink:
            sink.write(exchange())
    finally:
        os.umask(before)
    for name in files(tmp_path):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10)
    with ParquetSink(tmp_path) as sink:
        for number in range(25):
            sink.write(exchange(number))
    file = pq.ParquetFile(tmp_path / "exchanges" / "date=2026-11-21" / "part-00000.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [10, 10, 5]


def test_rows_held_back_are_bounded_over_all_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 100_000)
    sink = ParquetSink(tmp_path)
    held = []
    for number in range(40):
        sink.write(exchange(number, NOON + DAY * (number % 4), group="g" * 10_000))
        held.append(sum(part.rows.size for part in sink._parts.values()))
    sink.close()
    assert max(held) < 100_000
    assert ds.dataset(tmp_path / "exchanges").count_rows() == 40


def test_open_files_are_bounded(tmp_path: Path) -> None:
    """Clocks that jump over many dates, back and forth, cost files, not file handles or rows."""
    sink = ParquetSink(tmp_path)
    most = 0
    for number in range(60):
        sink.write(exchange(number, NOON + DAY * (number % 20)))
        most = max(most, len(sink._parts))
    sink.close()
    assert most == parquet.OPEN_DATES
    table = ds.dataset(tmp_path / "exchanges", partitioning="hive").to_table()
    assert sorted(table["exchange_id"].to_pylist()) == list(range(60))
    manifest = json.loads((tmp_path / "manifest.json").read_text())["tables"]["exchanges"]["files"]
    assert {file["path"] for file in manifest} | {"manifest.json"} == files(tmp_path)


def test_a_folder_with_an_export_is_refused(tmp_path: Path) -> None:
    with ParquetSink(tmp_path) as sink:
        sink.write(exchange())
    before = files(tmp_path)
    with pytest.raises(UsageError, match="already holds an export"):
        ParquetSink(tmp_path)
    assert files(tmp_path) == before


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "exchanges").mkdir()
    (tmp_path / "exchanges" / "precious").write_text("mine")
    with pytest.raises(UsageError, match="not part of an export"):
        ParquetSink(tmp_path)
    assert (tmp_path / "exchanges" / "precious").read_text() == "mine"
    assert files(tmp_path) == {"exchanges/precious"}


def test_two_exports_at_once_are_refused(tmp_path: Path) -> None:
    with ParquetSink(tmp_path) as first:
        first.write(exchange())
        with pytest.raises(UsageError, match="another export"):
            ParquetSink(tmp_path)
    assert "manifest.json" in files(tmp_path)


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with ParquetSink(tmp_path) as sink:
            sink.write(exchange())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_failure_at_the_very_end_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == "manifest.json":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    sink = ParquetSink(tmp_path)
    sink.write(exchange())
    with pytest.raises(OutputError, match="No space left on device"):
        sink.close()
    assert list(tmp_path.iterdir()) == []


def test_close_twice_is_close_once(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    sink.write(exchange())
    sink.close()
    before = files(tmp_path)
    sink.close()
    sink.discard()
    assert files(tmp_path) == before


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        ParquetSink(tmp_path / "file" / "out")


@pytest.mark.parametrize("moved", [False, True], ids=["while writing", "before the manifest"])
def test_a_killed_export_can_be_run_again(tmp_path: Path, moved: bool) -> None:
    """A process that is killed takes no leave: neither its files nor its lock keep the next export from the folder."""
    code = f"""
        import os, signal
        from pathlib import Path
        from kafkasniff.model import Exchange, Message
        from kafkasniff.sinks.parquet import ParquetSink

        if {moved}:
            rename = Path.rename

            def killed(self, target):
                if self.name == "manifest.json":
                    os.kill(os.getpid(), signal.SIGKILL)
                return rename(self, target)

            Path.rename = killed
        sink = ParquetSink({str(tmp_path)!r})
        sink.write(Exchange(1, 1, "open", Message("request", 8), None))
        if {moved}:
            sink.close()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = files(tmp_path)
    assert "manifest.json" not in left
    assert any(name.startswith("exchanges/") for name in left) == moved
    with ParquetSink(tmp_path) as sink:
        sink.write(exchange(2))
    assert ds.dataset(tmp_path / "exchanges").to_table()["exchange_id"].to_pylist() == [2]
    assert not (tmp_path / ".partial").exists()


def test_bodies_can_be_left_out(tmp_path: Path) -> None:
    with ParquetSink(tmp_path / "without", bodies=False) as sink:
        sink.write(exchange())
    with ParquetSink(tmp_path / "with") as sink:
        sink.write(exchange())
    without = ds.dataset(tmp_path / "without" / "exchanges").to_table()
    assert without["request_body"].to_pylist() == [None]
    shown = ds.dataset(tmp_path / "with" / "exchanges").to_table()
    assert json.loads(shown["request_body"][0].as_py()) == {"group_id": "g", "generation_id": 4, "member_id": "m-1"}
    assert shown["response_body"].to_pylist() == [None]
    assert without.drop_columns(["request_body"]).equals(shown.drop_columns(["request_body"]))


def test_bytes_stand_in_bodies_as_asked(tmp_path: Path) -> None:
    one = msgspec.structs.replace(exchange(), request=Message("request", 9, body={"key": b"\x00\xff"}))
    for form in ("auto", "hex"):
        with ParquetSink(tmp_path / form, form=form) as sink:
            sink.write(one)
    table = ds.dataset(
        [str(tmp_path / form / "exchanges" / "date=1970-01-01" / "part-00000.parquet") for form in ("auto", "hex")]
    )
    assert [json.loads(body) for body in table.to_table()["request_body"].to_pylist()] == [
        {"key": {"base64": "AP8="}},
        {"key": {"hex": "00ff"}},
    ]


def test_numbers_that_json_lacks_are_strings(tmp_path: Path) -> None:
    """Quota values are float64; NaN is legal on the wire."""
    body = {"entries": [{"values": [{"key": "producer_byte_rate", "value": float("nan")}]}]}
    with ParquetSink(tmp_path) as sink:
        sink.write(Exchange(1, 1, "open", Message("request", 9, api_key=49, api_version=0, body=body), None))
    written = ds.dataset(tmp_path / "exchanges").to_table()["request_body"][0].as_py()
    assert json.loads(written)["entries"][0]["values"][0]["value"] == "NaN"


def test_names_of_captures_need_not_be_utf8(tmp_path: Path) -> None:
    with ParquetSink(tmp_path) as sink:
        sink.write(exchange(capture=os.fsdecode(b"caf\xe9.pcap")))
    assert json.loads((tmp_path / "manifest.json").read_text())["captures"] == ["caf\\xe9.pcap"]
    assert ds.dataset(tmp_path / "exchanges").to_table()["capture"].to_pylist() == ["caf\\xe9.pcap"]


def test_the_lock_is_given_back(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    sink.discard()
    (tmp_path / ".partial").mkdir()
    handle = os.open(tmp_path / ".partial", os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(handle)
