"""`kafkasniff diff`: differences known by construction, captures against their exports, and equal sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis.comparison import answer as parts
from kafkasniff.cli.environment import Exit
from tests.analysis.comparison.traffic import traffic
from tests.analysis.exports import write_export
from tests.analysis.tables import batch_of, exchange
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT


def compared(*arguments: object, **options: Any) -> dict[str, Any]:
    result = kafkasniff("diff", "--format", "json", *arguments, **options)
    assert result.code in (Exit.OK, Exit.FINDINGS, Exit.BROKEN), result.err
    (found,) = result.objects
    assert (result.code == Exit.FINDINGS) == any(found["differences"].values())
    return found


def differing(found: dict[str, Any]) -> dict[str, int]:
    return {name: number for name, number in found["differences"].items() if number}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("before") / "out", traffic())


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Slower, and with another client."""
    other = batch_of([exchange("Metadata", one, client_id=f"c{one}") for one in range(4)])
    return exported(tmp_path_factory.mktemp("after") / "out", traffic(2, slower=1.5), other)


def exported(folder: Path, *batches: pa.RecordBatch) -> Path:
    write_export(folder, exchanges=[exchange()])
    (part,) = folder.rglob("*.parquet")
    with pq.ParquetWriter(part, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return folder


def test_identical_exports(before: Path) -> None:
    found = compared(before, before)
    assert found["differences"] == dict.fromkeys(parts.SECTIONS, 0)
    text = kafkasniff("diff", before, before)
    assert text.code == Exit.OK
    assert text.lines[-1].startswith("no differences in versions, rates, latency")


@pytest.mark.parametrize("name", one_in(3, ["java-group-consumer", "kraft-2.8", "old-message-formats"]))
def test_a_capture_and_its_export(name: str, tmp_path: Path) -> None:
    path = ROOT / "captures" / f"{name}.pcap"
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == Exit.OK
    found = compared(path, tmp_path / "out")
    assert differing(found) == {}
    one, other = ({**found[side], "source": ""} for side in ("before", "after"))
    assert one == other
    for row in (*found["topics"], *found["batching"], *found["sizes"], *found["rates"]):
        for change in (value for value in row.values() if isinstance(value, dict)):
            assert change["before"] == change["after"]


def test_constructed_differences(before: Path, after: Path) -> None:
    found = compared(before, after)
    assert differing(found) == {"versions": 1, "latency": 1, "clients": 4}
    assert [row["client_id"] for row in found["clients"]] == ["c0", "c1", "c2", "c3", "app"]
    assert found["latency"][0]["verdict"] == "slower"
    shown = kafkasniff("diff", before, after, width=160)
    assert shown.lines[4] == "6 differences: 1 in versions, 1 in latency, 4 in clients"
    (line,) = (one.split() for one in shown.lines if one.startswith("  Produce"))
    assert line[:2] == ["Produce", "slower"]
    assert line[-1] == "<0.001"
    assert ["c0", "new", "0", "→", "1"] in [one.split() for one in shown.lines]


def test_thresholds(before: Path, after: Path) -> None:
    assert differing(compared(before, after, "--min-count", "2", "--min-change", "200")) == {"versions": 1}
    assert differing(compared(before, after, "--only", "latency,rates", "--significance", "1e-30")) == {}
    assert len(compared(before, after, "--top", "3")["clients"]) == 3
    assert "  and 1 more (--top)" in kafkasniff("diff", before, after, "--top", "3").lines
    found = compared(before, after, "--only", "clients", "--only", "latency")
    assert list(found["differences"]) == ["latency", "clients"]
    assert (found["versions"], found["min_change"], found["significance"], found["min_count"]) == (None, 0.1, 0.05, 1)


def test_incomplete_exports(before: Path, capture: Path, tmp_path: Path) -> None:
    kafkasniff("export", capture, "-o", tmp_path / "headers", "--no-bodies")
    found = compared(capture, tmp_path / "headers")
    assert differing(found) == {}
    assert found["errors"] is None
    assert "errors, topics, batching, clients, brokers" in found["notes"][0]
    kafkasniff("export", capture, "-o", tmp_path / "none", "--tables", "records")
    assert kafkasniff("diff", before, tmp_path / "none").code == Exit.USAGE
