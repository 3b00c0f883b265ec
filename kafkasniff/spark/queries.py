"""The questions of `kafkasniff analyze` on DataFrames: the same queries and accumulators, run by Spark.

    from kafkasniff.spark import queries

    exchanges = spark.read.parquet("DIR/exchanges")
    queries.ask("latency", {"exchanges": exchanges}, by=("api", "broker"), every="1m").show()

Questions that are queries are run by Spark SQL. Otherwise each task aggregates its rows into one partial answer,
`reducers` tasks merge these, and the driver merges the rest: no row leaves its task, and the driver holds at most
`reducers` partial answers. Parameters are those of the command line
(`kafkasniff analyze QUESTION --help`), typed or as text. The answer is a DataFrame with the same columns and rows
as the command. Results limited by a bound (`Accumulator.notes`) cause a warning. Only DataFrames are used, so all of it
also works with Spark Connect; for accumulators the workers need kafkasniff.

Raises UsageError for invalid parameters, and if a DataFrame or one of its columns is missing.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis import Accumulator, Question, TableReading, find_question, make_parameters
from kafkasniff.analysis.export import Export, missing_tables
from kafkasniff.analysis.sql.question import SqlQuestion
from kafkasniff.errors import UsageError
from kafkasniff.spark.session import task_errors
from kafkasniff.tables.rows import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

REDUCERS: Final = 8
"""Tasks that merge partial answers before the driver does."""
MAX_TASKS: Final = 4096
"""Tasks that read the files of an export, at most."""
_STATE: Final = "state binary"
_STATE_SCHEMA: Final = pa.schema([("state", pa.binary())])

Batches = Iterator[pa.RecordBatch]


def ask(name: str, tables: Mapping[str, DataFrame | None], *, reducers: int = REDUCERS, **parameters: Any) -> DataFrame:
    """The answer to a question by its name; `tables` by name, optional ones may be missing or None."""
    question = find_question(name)
    found = question(make_parameters(question, parameters))
    given = {table: frame for table, frame in tables.items() if frame is not None}
    _check(given, found)
    if isinstance(found, SqlQuestion):
        _query(found, given)
    else:
        assert isinstance(found, Accumulator)
        found = _answered(given, found, reducers)
    for note in found.notes():
        warnings.warn(f"{name}: {note}", stacklevel=3)
    session = next(iter(given.values())).sparkSession
    result = found.result()
    return session.createDataFrame(result.to_pylist(), schema=_spark_schema(result.schema))


def answer_export(
    session: SparkSession,
    export: Export,
    question: Question[Any],
    since_ns: int | None = None,
    until_ns: int | None = None,
    *,
    reducers: int = REDUCERS,
) -> Question[Any]:
    """Read the rows of an export with Spark, file by file; returns the question, which has an answer.

    The executors need the folder under the same path, or access to the object store. Raises UsageError as
    `Export.missing` does, and CaptureError if a file cannot be read.
    """
    left_out = export.missing(question)
    reads = {table: reading for table, reading in question.reads().items() if table not in left_out}
    paths = {table: [*export.files(table, since_ns, until_ns)] for table in reads}
    if not any(paths.values()):
        return question
    frames = {}
    for table, some in paths.items():
        rows = _RowsOfFiles(table, reads[table], export.elsewhere(), since_ns, until_ns)
        files = session.createDataFrame([(file,) for file in some], "file string")
        files = files.repartition(max(1, min(len(some), MAX_TASKS)))
        if isinstance(question, Accumulator):
            frames[table] = files.mapInArrow(_Update(question, table, rows), _STATE)
        else:
            frames[table] = files.mapInArrow(rows, _table_schema(table, reads[table]))
    with task_errors():
        if isinstance(question, Accumulator):
            return _merged([*frames.values()], question, reducers)
        assert isinstance(question, SqlQuestion)
        _query(question, frames)
        return question


class _RowsOfFiles:
    """Work of a task: reads the rows of files."""

    def __init__(
        self, table: str, reading: TableReading, export: Export, since_ns: int | None, until_ns: int | None
    ) -> None:
        self._table = table
        self._reading = reading
        self._export = export
        self._bounds = since_ns, until_ns

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            for file in batch.column("file").to_pylist():
                yield from self._export.only(self._table, file).batches(self._table, self._reading, *self._bounds)


def _query(question: SqlQuestion[Any], tables: Mapping[str, DataFrame]) -> None:
    """Answer a question that is a query by Spark SQL."""
    session = next(iter(tables.values())).sparkSession
    named: dict[str, Any] = dict(tables)
    for table, reading in question.reads().items():
        if table not in named:
            named[table] = session.createDataFrame([], _table_schema(table, reading))
    question.take(session.sql(question.text("spark"), **named).toArrow())


def _check(tables: Mapping[str, DataFrame], accumulator: Question[Any]) -> None:
    missing_tables(tables, accumulator)
    for table, frame in tables.items():
        reading = accumulator.reads().get(table)
        if reading is None:
            raise UsageError(f"{accumulator.name} does not read the table {table}")
        missing = [name for name in reading.columns if name not in frame.columns]
        if missing:
            raise UsageError(f"{accumulator.name}: the DataFrame {table} has no column {missing[0]}")


def _answered(tables: Mapping[str, DataFrame], accumulator: Accumulator[Any], reducers: int) -> Accumulator[Any]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    states = []
    for table, frame in tables.items():
        reading = accumulator.reads()[table]
        if reading.apis is not None:
            # Pushed down to Parquet's statistics if the frame is read from Parquet.
            frame = frame.where(F.col("api").isin(list(reading.apis)))  # noqa: PLW2901
        states.append(frame.select(*reading.columns).mapInArrow(_Update(accumulator, table, _in_utc), _STATE))
    return _merged(states, accumulator, reducers)


def _merged(states: Sequence[DataFrame], accumulator: Accumulator[Any], reducers: int) -> Accumulator[Any]:
    """Partial answers of tasks as one."""
    whole = functools.reduce(lambda first, second: first.unionByName(second), states)
    merged = whole.repartition(max(reducers, 1)).mapInArrow(_merges(type(accumulator).name), _STATE)
    found = type(accumulator).from_state(accumulator.state())
    for row in merged.collect():
        found.merge(type(accumulator).from_state(bytes(row["state"])))
    return found


class _Update:
    """Work of a task: aggregates its rows into one partial answer. `rows`: makes them from what Spark gives."""

    def __init__(self, accumulator: Accumulator[Any], table: str, rows: Callable[[Batches], Batches]) -> None:
        self._question = type(accumulator).name
        self._empty = accumulator.state()
        self._table = table
        self._rows = rows

    def __call__(self, batches: Batches) -> Batches:
        accumulator = _accumulator(self._question).from_state(self._empty)
        seen = False
        for batch in self._rows(batches):
            if batch.num_rows:
                seen = True
                accumulator.update(batch, self._table)
        if seen:
            yield _state_batch(accumulator)


def _accumulator(name: str) -> type[Accumulator[Any]]:
    found = find_question(name)
    assert issubclass(found, Accumulator)
    return found


def _state_batch(accumulator: Accumulator[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([accumulator.state()], pa.binary())], schema=_STATE_SCHEMA)


def _merges(question: str) -> Callable[[Batches], Batches]:
    """Work of a reducer: merges partial answers into one."""

    def merged(batches: Batches) -> Batches:
        whole: Accumulator[Any] | None = None
        for batch in batches:
            for state in batch.column(0):
                accumulator = _accumulator(question).from_state(state.as_py())
                if whole is None:
                    whole = accumulator
                else:
                    whole.merge(accumulator)
        if whole is not None:
            yield _state_batch(whole)

    return merged


def _in_utc(batches: Batches) -> Batches:
    """Timestamps in UTC, whatever the session's time zone; the instants are the same."""
    for batch in batches:
        arrays = [
            pc.cast(array, pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(array.type) else array
            for array in batch.columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _table_schema(table: str, reading: TableReading) -> StructType:
    return _spark_schema(pa.schema([TABLES[table].field(name) for name in reading.columns]))
