"""Folders of tasks, and what tasks report to the driver."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.spark.shared_folder import SharedFolder
from kafkasniff.spark.task_files import FILES, FileReport, file_batch, file_reports, own_folder
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.partitions import TablePartitions


def test_a_task_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that Spark was given for such files, the first of several."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    with own_folder() as first, own_folder() as second:
        assert first.path.parent == second.path.parent == tmp_path
        assert first != second
        (first / "file").put(b"x")
    assert os.listdir(tmp_path) == []
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "nowhere"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with own_folder() as found:
        assert found.path.exists()
    assert not found.path.exists()


def test_reports_on_files_and_days(tmp_path: Path) -> None:
    into = open_own_folder(tmp_path / "attempt-7", make=True)
    file = WrittenFile("records/date=2026-11-28/part-00001-00003-00000.parquet", 5, 1234)
    partitions = TablePartitions()
    partitions.of("records", {20_785: 5})
    partitions.of("problems", {})
    output = SharedFolder(tmp_path, "driver-1")
    written = {"records": [file], "problems": []}
    found = file_reports(output, into, written, partitions, part=3, open_=True)
    days = msgspec.msgpack.encode({20_785: 5})
    assert found == [
        FileReport("records", True, 3, f"attempt-7/{file.path}", 5, 1234),
        FileReport("records", True, 3, days=days),
    ]
    batch = file_batch(found)
    assert batch.schema.names == list(FILES)
    assert [FileReport(**row) for row in batch.to_pylist()] == found
