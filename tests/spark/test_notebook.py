"""`docs/notebooks/captures.ipynb`: its cells run, and answer what `kafkasniff analyze` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ROOT
from tests.spark.conftest import answered, plain
from tests.tables.exports.exported import CAPTURES, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

NOTEBOOK = ROOT / "docs" / "notebooks" / "captures.ipynb"
READ = ("java-codecs.pcap", "java-group-classic.pcap", "java-errors.pcap")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook")
    captures = [CAPTURES / name for name in READ]
    # Without its end, requests are left without a response.
    (folder / "cut.pcap").write_bytes((CAPTURES / "kraft-three-brokers.pcap").read_bytes()[:120_000])
    run([*captures, folder / "cut.pcap"], folder / "export")
    return folder / "export"


@pytest.fixture(scope="module")
def answers(spark: SparkSession, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each DataFrame that the cells define."""
    from pyspark.sql import DataFrame

    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXPORT", str(folder))
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                assert not cell["outputs"]
                exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    frames = {name: value for name, value in names.items() if isinstance(value, DataFrame) and name != "rows"}
    return {name: [plain(row.asDict(recursive=True)) for row in frame.collect()] for name, frame in frames.items()}


def analyzed(folder: Path, name: str, **parameters: object) -> list[dict[str, Any]]:
    return [plain(row) for row in answered(folder, name, **parameters)]


def alike(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """Whether all rows are the same in the columns that both have."""
    assert found
    names = found[0].keys() & wanted[0].keys()
    assert len(names) >= 5
    return sorted(repr([row[name] for name in sorted(names)]) for row in found) == sorted(
        repr([row[name] for name in sorted(names)]) for row in wanted
    )


def test_the_cells_answer_what_analyze_does(answers: dict[str, Any], folder: Path) -> None:
    for name, more in {
        "talkers": {"top": 0},
        "record_sizes": {},
        "outstanding": {"status": "open,unanswered,lost"},
    }.items():
        assert alike(answers[name], analyzed(folder, name.replace("_", "-"), **more)), name
    # Which of two neighbours is a quantile, the two may see differently.
    names = ("api", "count", "min_us", "max_us")
    assert {tuple(row[name] for name in names) for row in answers["latency"]} == {
        tuple(row[name] for name in names) for row in analyzed(folder, "latency", long_polls=True)
    }
    names = ("error_code", "error", "api", "client_id", "topic", "errors")
    known = {tuple(row[name] for name in names) for row in analyzed(folder, "errors")}
    assert set() < {tuple(row[name] for name in names) for row in answers["errors"]} <= known
    assert {type(row["max_wait_ms"]) for row in answers["waits"]} == {int}
