"""The questions on DataFrames give what they give without Spark."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkasniff.analysis import find_question, make_parameters, question_names
from kafkasniff.analysis.export import Export
from kafkasniff.errors import UsageError
from kafkasniff.spark import queries
from tests.analysis.exports import write_export
from tests.analysis.test_accumulator import PARAMETERS, QUERIES, pool
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.spark.conftest import answered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.extended

TABLES = ("exchanges", "records", "connections")
CAPTURES = ("java-group-consumer.pcap", "java-transactions.pcap", "kraft-three-brokers.pcap")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_export(
        tmp_path_factory.mktemp("queries") / "out", **{table: pool(table) for table in TABLES}, row_group_size=40
    )


@pytest.fixture(scope="module")
def frames(spark: SparkSession, folder: Path) -> Iterator[dict[str, DataFrame]]:
    """The tables, spread over more partitions than there are files, and read once."""
    found = {table: spark.read.parquet(str(folder / table)).repartition(3).persist() for table in TABLES}
    yield found
    for frame in found.values():
        frame.unpersist()


def plain(frame: DataFrame) -> list[dict[str, Any]]:
    return list(frame.toArrow().to_pylist())


@pytest.fixture(scope="module")
def of_captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("captures") / "out"
    result = kafkasniff("export", *(ROOT / "captures" / name for name in CAPTURES), "-q", "-o", made)
    assert result.code == 0, result.err
    return made


def read(frames: dict[str, DataFrame], name: str) -> dict[str, DataFrame]:
    """The tables that a question reads."""
    question = find_question(name)
    return {table: frames[table] for table in question(make_parameters(question, {})).reads()}


# Each question takes Spark a second.
@pytest.mark.parametrize("name", one_in(3, question_names()))
def test_the_same_answers(name: str, frames: dict[str, DataFrame], folder: Path) -> None:
    parameters = PARAMETERS.get(name, {})
    found = queries.ask(name, read(frames, name), reducers=2, **parameters)
    assert plain(found) == answered(folder, name, **parameters)


@pytest.mark.parametrize("name", ["churn", *QUERIES[::5]])
def test_the_same_answers_about_an_export(name: str, spark: SparkSession, of_captures: Path) -> None:
    """Tasks read its files."""
    question = find_question(name)
    found = queries.answer_export(spark, Export.open(str(of_captures)), question(make_parameters(question, {})))
    assert found.result().to_pylist() == answered(of_captures, name)


def test_a_query_without_an_optional_table(frames: dict[str, DataFrame]) -> None:
    with_records = plain(queries.ask("batching", read(frames, "batching")))
    found = plain(queries.ask("batching", {"exchanges": frames["exchanges"]}))
    assert found == [{**row, "payload_bytes": None, "payload_ratio": None} for row in with_records] != []


def test_misuse(frames: dict[str, DataFrame]) -> None:
    exchanges = frames["exchanges"]
    with pytest.raises(UsageError, match="no parameter 'colour'"):
        queries.ask("latency", {"exchanges": exchanges}, colour=1)
    with pytest.raises(UsageError, match="no column latency_us"):
        queries.ask("latency", {"exchanges": exchanges.drop("latency_us")})
    with pytest.raises(UsageError, match="needs the table connections"):
        queries.ask("churn", {"exchanges": exchanges})
    with pytest.raises(UsageError, match="does not read"):
        queries.ask("latency", {"exchanges": exchanges, "records": frames["records"]})


def test_what_a_bound_has_cost_is_a_warning(frames: dict[str, DataFrame], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_question("talkers"), "notes", lambda _: ["3 small groups were skipped"])
    with pytest.warns(UserWarning, match="talkers: 3 small groups"):
        queries.ask("talkers", {"exchanges": frames["exchanges"]})
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        queries.ask("talkers", {"exchanges": frames["exchanges"]})
