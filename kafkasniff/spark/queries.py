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

import warnings
from collections.abc import Callable, Iterator, Mapping
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
    named = [(table, file) for table in reads for file in export.files(table, since_ns, until_ns)]
    if not named:
        return question
    if isinstance(question, SqlQuestion):
        frames = {}
        for table, reading in reads.items():
            paths = [(file,) for one, file in named if one == table]
            rows = _RowsOfFiles(table, reading, export.elsewhere(), since_ns, until_ns)
            tasks = max(1, min(len(paths), MAX_TASKS))
            frames[table] = (
                session.createDataFrame(paths, "file string")
                .repartition(tasks)
                .mapInArrow(rows, _table_schema(table, reading))
            )
        with task_errors():
            _query(question, frames)
        return question
    assert isinstance(question, Accumulator)
    accumulator = question
    tables, files = zip(*named, strict=True)
    read = _ReadFiles(type(accumulator).name, accumulator.state(), export.elsewhere(), since_ns, until_ns)
    given = session.createDataFrame(pa.table({"table": pa.array(tables), "file": pa.array(files)}))
    with task_errors():
        return _merged(given.repartition(min(len(named), MAX_TASKS)).mapInArrow(read, _STATE), accumulator, reducers)


class _ReadFiles:
    """Work of a task: aggregates the rows of files into one partial answer."""

    def __init__(self, question: str, empty: bytes, export: Export, since_ns: int | None, until_ns: int | None) -> None:
        self._question = question
        self._empty = empty
        self._export = export
        self._bounds = since_ns, until_ns

    def __call__(self, batches: Batches) -> Batches:
        accumulator = _accumulator(self._question).from_state(self._empty)
        reads = accumulator.reads()
        seen = False
        for batch in batches:
            for table, file in zip(*(batch.column(name).to_pylist() for name in ("table", "file")), strict=True):
                seen = True
                for rows in self._export.only(table, file).batches(table, reads[table], *self._bounds):
                    accumulator.update(rows, table)
        if seen:
            yield _state_batch(accumulator)


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

    states: DataFrame | None = None
    empty = accumulator.state()
    question = type(accumulator).name
    for table, frame in tables.items():
        reading = accumulator.reads()[table]
        if reading.apis is not None:
            # Pushed down to Parquet's statistics if the frame is read from Parquet.
            frame = frame.where(F.col("api").isin(list(reading.apis)))  # noqa: PLW2901
        one = frame.select(*reading.columns).mapInArrow(_updates(question, empty, table), _STATE)
        states = one if states is None else states.unionByName(one)
    return accumulator if states is None else _merged(states, accumulator, reducers)


def _merged(states: DataFrame, accumulator: Accumulator[Any], reducers: int) -> Accumulator[Any]:
    """Partial answers of tasks as one."""
    merged = states.repartition(max(reducers, 1)).mapInArrow(_merges(type(accumulator).name), _STATE)
    found = type(accumulator).from_state(accumulator.state())
    for row in merged.collect():
        found.merge(type(accumulator).from_state(bytes(row["state"])))
    return found


def _updates(question: str, empty: bytes, table: str) -> Callable[[Batches], Batches]:
    """Work of a task: aggregates its rows into one partial answer."""

    def updated(batches: Batches) -> Batches:
        accumulator = _accumulator(question).from_state(empty)
        seen = False
        for batch in batches:
            if batch.num_rows:
                seen = True
                accumulator.update(_plain(batch), table)
        if seen:
            yield _state_batch(accumulator)

    return updated


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
                one = _accumulator(question).from_state(state.as_py())
                if whole is None:
                    whole = one
                else:
                    whole.merge(one)
        if whole is not None:
            yield _state_batch(whole)

    return merged


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps in UTC, whatever the session's time zone; the instants are the same."""
    arrays = [
        pc.cast(array, pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(array.type) else array
        for array in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _table_schema(table: str, reading: TableReading) -> StructType:
    return _spark_schema(pa.schema([TABLES[table].field(name) for name in reading.columns]))
