"""What a report is made of: known answers, and the same from a capture, its export, and parts of either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from kafkasniff.analysis.detectors import Detectors
from kafkasniff.analysis.export import Export
from kafkasniff.capture import open_captures
from kafkasniff.report.contents import Contents, Gathering
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import CountedRows
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

TABLES = ("exchanges", "records", "connections", "problems")
CAPTURES = ("java-group-classic.pcap", "java-group-share.pcap")
FEW = ("unanswered-requests", "hidden-errors")
"""Detectors: that all of them find the same in both is tested where they are."""


def from_capture(path: Path) -> Contents:
    gathering = Gathering(Detectors(FEW))
    rows = CountedRows(ExportOptions(tables=TABLES), gathering.update, bodies=gathering.bodies)
    for table in TABLES:
        gathering.has(table)
    with open_captures([str(path)]) as source:
        for batch in source:
            rows.feed(batch)
    return gathering.contents(rows.end())


def from_export(folder: Path) -> Contents:
    gathering = Gathering(Detectors(FEW))
    gathering.read(Export.open(str(folder)))
    return gathering.contents()


def plain(contents: Contents) -> Any:
    return msgspec.to_builtins(contents)


@pytest.mark.parametrize("name", one_in(2, CAPTURES))
def test_a_capture_and_its_export(name: str, tmp_path: Path) -> None:
    path = ROOT / "captures" / name
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
    one, other = plain(from_capture(path)), plain(from_export(tmp_path / "out"))
    for key, value in one.items():
        assert other[key] == value, key
    assert one["shown"]
    assert one["traffic"]


def test_rows_in_any_order_and_in_parts(tmp_path: Path) -> None:
    seen: list[tuple[pa.RecordBatch, str]] = []
    whole = Gathering(Detectors(FEW))

    def take(batch: pa.RecordBatch, table: str) -> None:
        whole.update(batch, table)
        seen.extend((batch.slice(start, 40), table) for start in range(0, batch.num_rows, 40))

    rows = CountedRows(ExportOptions(tables=TABLES), take, bodies=whole.bodies)
    with open_captures([str(ROOT / "captures" / CAPTURES[0])]) as source:
        for batch in source:
            rows.feed(batch)
    names = rows.end()
    merged = Gathering(Detectors(FEW))
    for batch, table in reversed(seen):
        part = Gathering(Detectors(FEW))
        part.update(batch, table)
        merged.merge(part)
    assert plain(merged.contents(names)) == plain(whole.contents(names))
