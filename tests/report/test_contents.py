"""What a report is made of: the same from a capture, its export and parts of either; its tables and ladders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from kafkasniff.analysis.detectors import Detectors, Evidence, Finding
from kafkasniff.analysis.export import Export
from kafkasniff.capture import open_captures
from kafkasniff.report import ladder as module
from kafkasniff.report.answer_tables import AnswerTable
from kafkasniff.report.contents import Contents, Gathering
from kafkasniff.report.ladder import EARLIEST, SLOWEST, TROUBLED, Ladder, Shown, Step, ladders_of
from kafkasniff.report.page import page_tables
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import CountedRows
from tests.analysis.tables import START_NS, Row, batch_of, exchange
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.report.test_page import contents

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


def table(name: str, *rows: Row) -> AnswerTable:
    found = page_tables(contents(exchanges=list(rows)))[name]
    return found


def test_omitted_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.report.contents.MAX_ROWS", 2)
    rows = [exchange("Metadata", client_id=f"app-{number}") for number in range(5)]
    found = table("clients", *rows)
    assert (len(found.rows), found.more) == (2, 3)


def connection(number: int, exchanges: int, **values: object) -> list[Row]:
    return [
        exchange("Produce", number + place / 100, connection_id=number, exchange_id=place, client_port=50_000 + number,
                 latency_us=1000 + place, **values)
        for place in range(exchanges)
    ]  # fmt: skip


def kept(ladder: Ladder, number: int) -> list[int]:
    return [rung.exchange_id for rung in ladder.rungs({number})[number]]


def taken(rows: list[Row]) -> Ladder:
    ladder = Ladder()
    ladder.update(batch_of(rows))
    return ladder


def test_the_first_the_troubled_and_the_slowest() -> None:
    rows = connection(1, 1000)
    for place in range(500, 600):
        rows[place] |= {"error_code": 3, "error": "UNKNOWN_TOPIC_OR_PARTITION", "error_count": 1}
    assert kept(taken(rows), 1) == [
        *range(EARLIEST), *range(500, 500 + TROUBLED), *range(1000 - SLOWEST, 1000)
    ]  # fmt: skip


def test_the_note_about_missing_rows_depends_on_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 100)
    rows = [row for number in range(40) for row in connection(number + 1, 5)]
    rows += [row for number in range(40) for row in connection(number + 1, 70)[5:]]
    found = []
    for size in (90, 1000, len(rows)):
        ladder = Ladder()
        for start in range(0, len(rows), size):
            ladder.update(batch_of(rows[start : start + size]))
        found.append((ladder.notes(), ladder.rungs({1, 2, 3})))
    assert found[0][0] == ["some rows are missing: the limit is 100"] * 2
    assert all(one == found[0] for one in found)


def steps(rows: list[Row], *evidence: Evidence) -> list[Step]:
    ladder = taken(rows)
    (talk,) = ladder.talks()
    finding = Finding(
        detector="crafted", severity="error", title="t", meaning="m", advice="a", subject={}, count=1, first=None,
        last=None, evidence=evidence,
    )  # fmt: skip
    (found,) = ladders_of([Shown(talk, ladder.rungs({1})[1])], [finding])
    return found.steps


def test_evidence_has_a_place_even_where_its_exchange_was_not_kept() -> None:
    found = steps(connection(1, 500), Evidence(1, 2, START_NS, "seen"), Evidence(1, 300, START_NS + 10**9, "far off"))
    seen = next(step for step in found if step.anchor == "connection-1-2")
    assert (seen.kind, [link.anchor for link in seen.findings]) == ("request", ["finding-1"])
    witness = next(step for step in found if step.kind == "witness")
    assert (witness.anchor, witness.title, witness.detail) == ("connection-1-300", "exchange_id 300", "far off")
    places = [step.anchor for step in found if step.anchor]
    assert len(places) == len(set(places))
