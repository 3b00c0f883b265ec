"""Streams into exports: rows of one run over all, however the stream is cut, and whenever its driver is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkasniff.errors import UsageError
from tests.conftest import ROOT
from tests.spark.processes import require_spark
from tests.tables.exports.exported import CAPTURES, Rows, cut, files, manifest, named_files, run, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATE = ("broker_id", "topics", "partitions", "request_body", "response_body", "topic")
"""Columns that a batch does not know if only a later batch has the facts; the rest of a row never changes."""
PATIENCE = 240.0


def without_late(rows: Rows) -> Rows:
    return sorted(({**row, **dict.fromkeys(LATE)} for row in rows), key=repr)


def same_rows(found: Path, wanted: Path) -> None:
    reported = tables(found)
    for table, rows in tables(wanted).items():
        assert without_late(reported[table]) == without_late(rows), table


def no_orphans(folder: Path) -> None:
    """No file that the manifest does not name, but for Spark's own."""
    ours = {path for path in files(folder) if not path.startswith(".checkpoint/")}
    assert ours == named_files(folder)


def follow(spark: SparkSession, captures: Path, folder: Path, size: str = "60k", **more: Any) -> None:
    from kafkasniff.spark.streaming import decode_stream

    packets = spark.readStream.format("kafkasniff").option("maxbytespertrigger", size).load(str(captures))
    query = decode_stream(packets, folder, trigger={"availableNow": True}, **more)
    query.awaitTermination()


@pytest.fixture
def rotated(tmp_path: Path) -> tuple[Path, list[Path]]:
    """A folder for captures, and the files that will rotate into it."""
    (tmp_path / "captures").mkdir()
    return tmp_path / "captures", cut(CAPTURES / "franz-go.pcap", (0.3, 0.7), tmp_path / "aside")


@pytest.mark.extended
def test_a_stream_makes_the_rows_of_one_run(
    spark: SparkSession, rotated: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    folder, parts = rotated
    shutil.copy(parts[0], folder)
    follow(spark, folder, tmp_path / "out", shards=2)
    first = manifest(tmp_path / "out")
    for part in parts[1:]:
        shutil.copy(part, folder)
    follow(spark, folder, tmp_path / "out")
    reported = manifest(tmp_path / "out")
    assert reported["runs"] > first["runs"] >= 1
    assert [Path(one["name"]).name for one in reported["captures"]] == [part.name for part in parts]
    run([folder / part.name for part in parts], tmp_path / "once")
    same_rows(tmp_path / "out", tmp_path / "once")
    no_orphans(tmp_path / "out")
    with pytest.raises(UsageError, match="a stream writes into"):
        run(parts, tmp_path / "out")
    # A folder of something else is left alone.
    before = files(tmp_path / "once")
    with pytest.raises(Exception, match="is not the export of a stream"):
        follow(spark, folder, tmp_path / "once")
    assert {path for path in files(tmp_path / "once") if not path.startswith(".checkpoint/")} == before


@pytest.mark.extended
def test_a_state_that_cannot_be_read_is_discarded_when_asked(
    spark: SparkSession, rotated: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    folder, parts = rotated
    shutil.copy(parts[0], folder)
    follow(spark, folder, tmp_path / "out", size="1g", shards=2)
    first = manifest(tmp_path / "out")
    (tmp_path / "out" / first["state"]).write_bytes(b"x")
    for part in parts[1:]:
        shutil.copy(part, folder)
    follow(spark, folder, tmp_path / "out", size="1g", shards=2, discard_state=True)
    reported = manifest(tmp_path / "out")
    assert reported["runs"] > first["runs"]
    for table, entry in first["tables"].items():
        # Connections that were open then stay open.
        kept = {file["path"] for file in reported["tables"][table]["files"]}
        assert {file["path"] for file in entry["files"]} <= kept
    no_orphans(tmp_path / "out")


@contextlib.contextmanager
def follower(captures: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """What it says goes into files beside `folder`: `out` and `err`."""
    command = [sys.executable, "-m", "tests.spark.follow_stream", str(captures), str(folder), "50k"]
    # As in a checkout that is not installed: only the path shows where kafkasniff is.
    environment = {**require_spark(), "PYTHONPATH": str(ROOT)}
    beside = folder.parent
    with (beside / "out").open("wb") as out, (beside / "err").open("wb") as err:
        # A group of its own: Java and Python's workers go with the driver.
        process = subprocess.Popen(command, start_new_session=True, env=environment, cwd=beside, stdout=out, stderr=err)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


def wait_for(done: Any, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while not done() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)


def is_in_the_second_batch(folder: Path) -> bool:
    # A commit may remove a folder while it is walked.
    written = (path for path, _, files in os.walk(folder / ".partial") if files)
    return (folder / "manifest.json").exists() and any("date=" in path for path in written)


@pytest.mark.extended
def test_a_killed_driver_leaves_each_row_once(
    spark: SparkSession, rotated: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    """Killed with its Java and its workers when a batch is in, and tasks have written files of the next one.

    As a session of our own in a process of its own it also shows that one starts quietly, from any folder.
    """
    folder, parts = rotated
    for part in parts:
        shutil.copy(part, folder)
    (tmp_path / "elsewhere").mkdir()
    out = tmp_path / "elsewhere" / "tables"
    with follower(folder, out) as process:
        wait_for(lambda: is_in_the_second_batch(out), process)
        assert process.poll() is None, (out.parent / "err").read_text()
    killed = manifest(out)["runs"]
    assert killed >= 1
    assert (out.parent / "err").read_text() + (out.parent / "out").read_text() == ""
    follow(spark, folder, out, "1g", shards=2)
    assert manifest(out)["runs"] > killed
    run([folder / part.name for part in parts], tmp_path / "once")
    same_rows(out, tmp_path / "once")
    no_orphans(out)
