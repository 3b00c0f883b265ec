"""`export --register`: tables of a real catalog have the rows of the export, run after run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.tables.rows import TABLE_NAMES
from tests.conftest import ran
from tests.tables.exports.exported import CAPTURES, cut, tables

pytestmark = pytest.mark.extended


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """Properties of a catalog in a file."""
    pytest.importorskip("pyiceberg")
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def export(catalog: dict[str, str], name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    variables = {f"PYICEBERG_CATALOG__LAKE__{key.upper()}": value for key, value in catalog.items()}
    command = [sys.executable, "-m", "kafkasniff", "export", "--register", name, *map(str, arguments)]
    return ran(command, env={**os.environ, **variables})


def registered(catalog: dict[str, str], table: str) -> tuple[list[dict[str, Any]], int]:
    """Rows of a table, in an order that is always the same, and its number of snapshots."""
    from pyiceberg.catalog import load_catalog

    found = load_catalog("lake", **catalog).load_table(("kafka", f"week_{table}"))
    return sorted(found.scan().to_arrow().to_pylist(), key=repr), len(found.snapshots())


def test_each_run_is_registered_as_it_is(catalog: dict[str, str], tmp_path: Path) -> None:
    """Rows of connections that were open are replaced; another export may be in the same tables."""
    parts = cut(CAPTURES / "java-group-classic.pcap", (0.4, 0.7), tmp_path)
    for number in range(1, len(parts) + 1):
        done = export(catalog, "lake.kafka.week", *parts[:number], "-o", tmp_path / "out")
        assert done.returncode in {0, 4}, done.stderr
        wanted = tables(tmp_path / "out")
        for table in TABLE_NAMES:
            assert registered(catalog, table)[0] == sorted(wanted[table], key=repr)
    before = [registered(catalog, table) for table in TABLE_NAMES]
    assert "nothing to do" in export(catalog, "lake.kafka.week", *parts, "-o", tmp_path / "out").stderr
    assert [registered(catalog, table) for table in TABLE_NAMES] == before
    other = export(catalog, "lake.kafka.week", CAPTURES / "sarama.pcap", "-o", tmp_path / "other")
    assert other.returncode == 0, other.stderr
    both = [*wanted["exchanges"], *tables(tmp_path / "other")["exchanges"]]
    assert registered(catalog, "exchanges")[0] == sorted(both, key=repr)


def test_what_cannot_be_used_is_said_before_captures_are_read(catalog: dict[str, str], tmp_path: Path) -> None:
    for name, code, said in (
        ("kafka.week", 2, "--register: kafka.week is not of the form CATALOG.NAMESPACE.NAME"),
        ("none.kafka.week", 5, "--register: cannot use none.kafka.week: "),
    ):
        done = export(catalog, name, tmp_path / "missing.pcap", "-o", tmp_path / "out")
        assert (done.returncode, done.stderr.count("\n"), said in done.stderr) == (code, 1, True), done.stderr
        assert not (tmp_path / "out").exists()
