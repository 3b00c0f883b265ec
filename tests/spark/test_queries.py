"""The questions on DataFrames give what they give without Spark."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkasniff.analysis import find_question, make_parameters, question_names
from kafkasniff.analysis.export import Export, answer
from kafkasniff.errors import UsageError
from kafkasniff.spark import queries
from tests.analysis.exports import write_export
from tests.analysis.test_accumulator import PARAMETERS, pool
from tests.choice import one_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.extended

TABLES = ("exchanges", "records", "connections")


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


def expected(name: str, folder: Path, **parameters: Any) -> list[dict[str, Any]]:
    question = find_question(name)
    accumulator = question(make_parameters(question, parameters))
    answer(Export.open(str(folder)), accumulator)
    return list(accumulator.result().to_pylist())


def plain(frame: DataFrame) -> list[dict[str, Any]]:
    return list(frame.toArrow().to_pylist())


# Each function is made of its question in one way; each question takes Spark a second.
@pytest.mark.parametrize("name", one_in(3, question_names()))
def test_the_same_answers(name: str, frames: dict[str, DataFrame], folder: Path) -> None:
    function = getattr(queries, name.replace("-", "_"))
    tables = [one for one in inspect.signature(function).parameters if one in TABLES]
    parameters = PARAMETERS.get(name, {})
    found = function(*(frames[table] for table in tables), reducers=2, **parameters)
    assert plain(found) == expected(name, folder, **parameters)
    assert inspect.getdoc(function)


def test_a_query_without_an_optional_table(frames: dict[str, DataFrame]) -> None:
    with_records = plain(queries.batching(frames["exchanges"], frames["records"]))
    found = plain(queries.batching(frames["exchanges"]))
    assert found == [{**row, "payload_bytes": None, "payload_ratio": None} for row in with_records] != []


def test_misuse(frames: dict[str, DataFrame]) -> None:
    exchanges = frames["exchanges"]
    with pytest.raises(UsageError, match="no parameter 'colour'"):
        queries.latency(exchanges, colour=1)
    with pytest.raises(UsageError, match="no column latency_us"):
        queries.latency(exchanges.drop("latency_us"))
    with pytest.raises(UsageError, match="needs the table connections"):
        queries.ask("churn", {"exchanges": exchanges})
    with pytest.raises(UsageError, match="does not read"):
        queries.ask("latency", {"exchanges": exchanges, "records": frames["records"]})


def test_what_a_bound_has_cost_is_a_warning(frames: dict[str, DataFrame], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_question("talkers"), "notes", lambda _: ["3 small groups were skipped"])
    with pytest.warns(UserWarning, match="talkers: 3 small groups"):
        queries.talkers(frames["exchanges"])
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        queries.talkers(frames["exchanges"])
