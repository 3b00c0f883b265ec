"""`export --delta`: the folders of an export are Delta tables, with a version for each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.tables.rows import TABLE_NAMES
from tests.cli.console import kafkasniff
from tests.tables.exports.exported import CAPTURES, cut, files, named_files, tables

pytestmark = pytest.mark.extended


def read(folder: Path, table: str) -> tuple[list[dict[str, Any]], int]:
    """The rows of a Delta table without its partition, in an order that is always the same, and its version."""
    deltalake = pytest.importorskip("deltalake")
    found = deltalake.DeltaTable(folder / table)
    return sorted(found.to_pyarrow_table().drop_columns("date").to_pylist(), key=repr), found.version()


def test_each_run_is_a_version(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    parts = cut(CAPTURES / "java-group-classic.pcap", (0.4, 0.7), tmp_path)
    out = tmp_path / "out"
    for number in range(1, len(parts) + 1):
        done = kafkasniff("export", "--delta", *parts[:number], "-o", out)
        assert done.code in {0, 4}, done.err
        wanted = tables(out)
        for table in TABLE_NAMES:
            assert read(out, table)[0] == sorted(wanted[table], key=repr)
    assert read(out, "exchanges")[1] == len(parts) - 1
    kafkasniff("export", "--delta", *parts, "-o", out)
    assert read(out, "exchanges")[1] == len(parts) - 1, "there was nothing new"
    assert kafkasniff("export", "--compact", "--delta", "-o", out).code == 0
    assert read(out, "exchanges") == (sorted(wanted["exchanges"], key=repr), len(parts))
    # A run without it, and a later one with it.
    other = CAPTURES / "sarama.pcap"
    assert kafkasniff("export", other, "-o", out).code == 0
    assert kafkasniff("export", "--delta", other, "-o", out).code == 0
    assert read(out, "exchanges")[0] == sorted(tables(out)["exchanges"], key=repr)
    assert {path for path in files(out) if "/_delta_log/" not in path} == named_files(out)


def test_a_log_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    out = tmp_path / "out"
    kafkasniff("export", CAPTURES / "sarama.pcap", "-o", out)
    (tmp_path / "elsewhere").mkdir()
    (out / "exchanges" / "_delta_log").symlink_to(tmp_path / "elsewhere")
    done = kafkasniff("export", "--delta", CAPTURES / "sarama.pcap", "-o", out)
    assert done.code == 2
    assert "_delta_log is a symbolic link" in done.err
    assert list((tmp_path / "elsewhere").iterdir()) == []
