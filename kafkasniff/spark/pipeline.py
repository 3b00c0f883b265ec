"""Tables from packets, distributed, as DataFrames: a run of the pipeline, with the global state between its stages.

    from kafkasniff.spark import pipeline

    packets = spark.read.format("kafkasniff").load("captures/*.pcapng")
    tables = pipeline.decode(packets)
    tables.exchanges.where("error_code <> 0").groupBy("api", "error").count().show()

packets ─ shuffle by connection (pieces.py) ─ stage 1 (connections.py) ─ staged rows, kept on disk
─ known names; fetch sessions, broker by broker (connections.py)
─ shuffle of the rows that need it (`plan_parts`) ─ stage 2 (table_rows.py) ─ rows

The rows are those of `kafkasniff export`, whatever the number of tasks: both engines share the function that assigns
connections to shards (`kafkasniff.engine.inspector`), the inspector, and the code that makes rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.capture.timeline.parts import Place
from kafkasniff.errors import UsageError
from kafkasniff.model import NO_TIME, Problem, Summary
from kafkasniff.runtime.threads import ClosedAtExit
from kafkasniff.spark.connections import (
    BEGIN_VALUES,
    BROKER_VALUES,
    END,
    END_VALUES,
    HELD,
    SESSIONS,
    SHARD_ROWS,
    STEP,
    STEP_COLUMNS,
    PlacedSecrets,
    ReadConnections,
    ShardBegin,
    TaskKeys,
    WalkSessions,
    key_log_problems,
    secrets_among,
)
from kafkasniff.spark.lakehouse import LakeTables
from kafkasniff.spark.options import PIPELINE, ddl
from kafkasniff.spark.pieces import BEGIN_INDEX, PIECES, RowCutter
from kafkasniff.spark.session import is_connect
from kafkasniff.spark.source import PlannedCaptures
from kafkasniff.spark.table_rows import KINDS, MakeRows
from kafkasniff.tables.checkpoint import Carried, dump
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import first_states
from kafkasniff.tables.rows import TABLE_NAMES, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkasniff.tls.keylog import KeyLog

# -- division of stage 2 -----------------------------------------------------------------------------------------------
#
# Most shards are neither small nor large: their rows stay in the task that reads them from disk. Only rows of small
# shards, which are put together, of large ones, which are divided, and those in fetch sessions are shuffled.

LARGE_PART: Final = 512 << 20
"""Approximate maximum of staged bytes per task; each task writes a file per table and day."""
SMALL_PART: Final = 16 << 20
"""A smaller task is not worth starting."""


class ShardSize(NamedTuple):
    """The staged bytes of a shard."""

    shard: int
    size: int
    in_session: int
    """Those of them that are shuffled in any case."""


class ShardPlan(NamedTuple):
    """The parts for the shuffled rows of a shard: `parts` of them from `first` on, block by block."""

    shard: int
    first: int
    parts: int
    stays: bool
    """Only rows in fetch sessions are shuffled."""


def plan_parts(sizes: Sequence[ShardSize], parallelism: int) -> tuple[list[ShardPlan], int]:
    """The plan for all shards, and the number of parts of their shuffled rows."""
    total = sum(size for _, size, _ in sizes)
    # A task with a little more than its share delays the end less than a shuffle does.
    most = min(max(total * 5 // (4 * parallelism), SMALL_PART), LARGE_PART)
    # Twice as many parts as can run at once, so that the last ones do not delay the end.
    wanted = min(max(total // (2 * parallelism), SMALL_PART), LARGE_PART)
    alone = sum(size > 0 for _, size, _ in sizes) < 2
    plans: list[ShardPlan] = []
    part = used = 0
    for shard, size, in_session in sizes:
        stays = size <= most and (size >= SMALL_PART or alone)
        cost = in_session if stays else size
        if used and used + cost > wanted:
            part, used = part + 1, 0
        parts = max(1, -(-cost // wanted)) if not used else 1
        plans.append(ShardPlan(shard, part, parts, stays))
        if parts > 1:
            part, used = part + parts, 0
        else:
            used += cost
    return plans, part + (1 if used else 0)


# -- a run -------------------------------------------------------------------------------------------------------------

SHARD_BYTES: Final = 128 << 20
"""Approximate bytes of packets per task of stage 1."""
MAX_SHARDS: Final = 1 << 14
"""Maximum number of shards: each has a state, and is a task in all later runs."""

SECRETS: Final = "src_ip is null"
"""Rows of `packets` that are TLS secrets instead of packets (option `secrets` of the data source)."""


class RunInput(msgspec.Struct):
    """The packets of a run, and what it has to know of them."""

    spark: SparkSession
    pieces: Callable[[int], DataFrame]
    """Makes pieces of packets for a number of shards (`pieces.PIECES`)."""
    names: Mapping[int, str]
    """Names of captures, by `capture_index`."""
    end_clock: int
    """The packet clock when the captures end."""
    size: int
    """Approximate bytes of the packets."""
    captured: Sequence[PlacedSecrets] = ()
    """TLS secrets of the captures."""
    problems: Sequence[Problem] = ()
    """Problems of the captures."""
    hosts: Mapping[str, str] = {}
    """Address → name, from captures."""
    all_packets: int | None = None
    """Number of packets of the captures, TCP or not; None: not counted."""


class SparkRun(ClosedAtExit):
    """The tables of some packets, as DataFrames with lazily computed rows.

    The results of stage 1 stay on the executors' disks until `close`; use it as a context manager.
    """

    def __init__(
        self,
        packets: RunInput,
        options: ExportOptions,
        *,
        carried: Carried | None = None,
        given: Mapping[str, str] | None = None,
        problems: Sequence[Problem] = (),
        keys: KeyLog | None = None,
        shards: int | None = None,
        memory: int | None = None,
    ) -> None:
        """Runs stage 1.

        `carried`: the state of the last run; `given`: names by topic id; `problems`: of other captures; `keys`: TLS
        secrets in addition to those of the captures; `shards`: their number, by default as the size of the packets and
        the machines need; `memory`: budget of a task in bytes. Raises MissingPartError and UsageError as `TaskKeys`
        does.
        """
        from pyspark.storagelevel import StorageLevel

        self._spark = packets.spark
        self.options = options
        self.given = dict(given or {})
        self.run_problems = [*key_log_problems(keys), *problems, *packets.problems]
        task_keys = TaskKeys(keys, packets.captured)
        self._kept: list[DataFrame] = []
        self.parallelism = parallelism(self._spark)
        before = Carried() if carried is None else carried
        self.shards = shards or _shards(packets.size, self.parallelism, len(before.shards))
        begins = [ShardBegin(state) for state in first_states(before, self.shards, options, self.given)]
        begins[0].problems = self.run_problems
        read = ReadConnections(
            options,
            packets.names,
            order=before.order,
            end_clock=packets.end_clock,
            keys=task_keys,
            memory=memory,
        )
        describe(self._spark, "packets to staged rows")
        rows = _in_shards(packets.pieces(self.shards), begins).mapInArrow(read, ddl(SHARD_ROWS))
        self._rows = self._keep(rows, StorageLevel.DISK_ONLY)
        try:
            ends = self._rows.where(f"kind = '{END}'").select("data").collect()
        except BaseException:
            self.close()  # the caller does not have this run yet
            raise
        self.ends = sorted((END_VALUES.load(row["data"]) for row in ends), key=lambda end: end.shard)
        self.learned_facts = before.learned_facts
        self.learned_facts.hosts.update(packets.hosts)
        for end in self.ends:
            self.learned_facts.merge(end.learned_facts)
        self._sessions = before.sessions
        self.summary = Summary.total(end.summary for end in self.ends)
        """Summary of the run; `packets` counts only TCP, unless all packets were counted."""
        self.summary.problems += len(self.run_problems)
        if packets.all_packets is not None:
            self.summary.packets = packets.all_packets
        self._order = max((end.order for end in self.ends), default=before.order)

    def _keep(self, rows: DataFrame, level: Any) -> DataFrame:
        self._kept.append(rows.persist(level))
        return self._kept[-1]

    @cached_property
    def _held(self) -> DataFrame | None:
        """Rows of kind `held`, if there are fetch sessions; also updates `self._sessions`."""
        from pyspark.sql import functions as sf
        from pyspark.storagelevel import StorageLevel

        if "exchanges" not in self.options.tables or not any(end.in_session for end in self.ends):
            return None
        steps = self._rows.where(f"kind = '{STEP}'").select(*STEP_COLUMNS)
        describe(self._spark, "fetch sessions")
        order = [sf.col(name).asc_nulls_first() for name in STEP_COLUMNS[:5]]
        steps = steps.repartition(self.parallelism, "broker").sortWithinPartitions(*order)
        walked = self._keep(
            steps.mapInArrow(WalkSessions(dump(self._sessions)), ddl(SHARD_ROWS)), StorageLevel.DISK_ONLY
        )
        for row in walked.where(f"kind = '{SESSIONS}'").select("data").collect():
            broker_sessions = BROKER_VALUES.load(row["data"])
            self._sessions.replace({broker_sessions.broker}, broker_sessions.sessions())
        return walked.where(f"kind = '{HELD}'")

    def in_parts(self, kinds: Iterable[str]) -> DataFrame:
        """Rows of stage 1 of these kinds, as stage 2 needs them: all rows of a part in one partition."""
        from pyspark.sql import functions as sf

        wanted = [*kinds]
        plans, parts = plan_parts(
            [ShardSize(end.shard, end.size, end.in_session) for end in self.ends], self.parallelism
        )
        rows = self._rows.where(sf.col("kind").isin(wanted))
        stays = sf.col("shard").isin([plan.shard for plan in plans if plan.stays]) & ~sf.col("in_session")
        moved = rows.where(~stays)
        held = self._held if HELD in wanted else None
        if held is not None:
            moved = moved.union(held)
        columns = [pa.array(column, pa.int64()) for column in list(zip(*plans, strict=True))[:3]]
        planned = self._spark.createDataFrame(pa.table(columns, ["shard", "first", "parts"]))
        part = sf.expr("int(first + pmod(number, parts))")
        moved = moved.join(sf.broadcast(planned), "shard").withColumn("part", part)
        needed = ("kind", "open", "connection_id", "exchange_id", "data")
        describe(self._spark, "staged rows to tables")
        found = rows.where(stays).select(*needed)
        return found.union(moved.repartitionById(parts, "part").select(*needed)) if parts else found

    def carry(self) -> Carried:
        """The state for the next run."""
        _ = self._held
        return Carried([end.state for end in self.ends], self._sessions, self.learned_facts, self._order)

    def table(self, name: str) -> DataFrame:
        """A table by its name. Raises UsageError if it was not decoded."""
        from pyspark.sql.pandas.types import from_arrow_schema

        if name not in self.options.tables:
            raise UsageError(f"there is no table {name}; decoded were {', '.join(self.options.tables)}")
        make = MakeRows(self.options, self.learned_facts, self.given, name)
        return self.in_parts(KINDS[name]).mapInArrow(make, from_arrow_schema(TABLES[name]))

    @property
    def exchanges(self) -> DataFrame:
        """One row per request and its response."""
        return self.table("exchanges")

    @property
    def records(self) -> DataFrame:
        """One row per record."""
        return self.table("records")

    @property
    def connections(self) -> DataFrame:
        """One row per TCP connection that carried data."""
        return self.table("connections")

    @property
    def problems(self) -> DataFrame:
        """One row per problem."""
        return self.table("problems")

    def write_to(self, name: str, *, run: int) -> None:
        """Write the rows into the lakehouse tables `NAME_exchanges` and so on; `name`: `CATALOG.DATABASE.NAME`.

        They are the rows of the run with this number: written again, they replace the ones that it has. Each table is
        replaced atomically. Raises UsageError if the tables cannot be used or belong to an export.
        """
        frames = {table: self.table(table) for table in self.options.tables}
        spark = next(iter(frames.values())).sparkSession
        LakeTables(spark, name, frames).write(run, frames)

    def close(self) -> None:
        """Release what Spark keeps; the DataFrames can no longer be used."""
        while self._kept:
            self._kept.pop().unpersist()


def describe(spark: SparkSession, what: str) -> None:
    """Describe the next jobs in Spark's web page and event log, if possible."""
    from pyspark.sql import SparkSession as Classic

    # Spark Connect has another class, and its server's jobs are not ours to describe.
    if isinstance(spark, Classic):
        spark.sparkContext.setJobDescription(f"kafkasniff: {what}")


def parallelism(spark: SparkSession) -> int:
    """Approximate number of tasks that run at once."""
    from pyspark.sql import functions as sf

    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    # Spark Connect has no SparkContext; a range has as many partitions.
    found = spark.range(1 << 16).select(sf.spark_partition_id().alias("part")).agg(sf.max("part")).collect()
    return int(found[0][0]) + 1


def _shards(size: int, parallel: int, before: int) -> int:
    """Number of shards; the previous number if adequate, since a change redistributes all states."""
    wanted = max(1, -(-size // SHARD_BYTES))
    if size > SHARD_BYTES // 8:
        wanted = max(wanted, parallel)
    if before and wanted <= 4 * before:
        return before
    return min(wanted, MAX_SHARDS)


def _in_shards(pieces: DataFrame, begins: Sequence[ShardBegin]) -> DataFrame:
    """Pieces in any order, one shard per partition, each with a row that has its beginning."""
    shards = len(begins)
    first = pieces.sparkSession.createDataFrame(
        pa.table(
            {
                "shard": pa.array(range(shards), pa.int32()),
                "capture_index": pa.array([BEGIN_INDEX] * shards, pa.int32()),
                "data": pa.array([BEGIN_VALUES.dump(one) for one in begins], pa.binary()),
            }
        )
    )
    return first.unionByName(pieces, allowMissingColumns=True).repartitionById(shards, "shard")


def of_captures(captures: PlannedCaptures, options: ExportOptions, before: Sequence[str] = ()) -> RunInput:
    """The input of a run over captures; `before`: names of the captures of earlier runs, whose indices come first."""
    notes = captures.notes()
    splits, files = captures.plan.splits, captures.plan.files
    return RunInput(
        captures.spark,
        lambda shards: captures.pieces(shards, ports=options.ports, captures_before=len(before)),
        dict(enumerate([*before, *captures.names])),
        max((split.clock_after for split in splits), default=NO_TIME),
        sum(file.size for file in files),
        secrets_among(notes, len(before)),
        [note.value for note in notes if isinstance(note.value, Problem)],
        dict(note.value for note in notes if isinstance(note.value, tuple)),
        sum(split.packets for split in splits),
    )


def of_rows(packets: DataFrame) -> RunInput:
    """The input of a run over packets that are rows, which are scanned; a second time if there are secrets among them.

    Raises UsageError if a column is missing.
    """
    from pyspark.sql import functions as sf

    check_columns(packets)
    found = (
        packets.groupBy("capture_index")
        .agg(
            sf.first("capture").alias("capture"),
            sf.max("clock_ns").alias("clock"),
            sf.sum(sf.col("length") + 200).alias("size"),
            sf.count_if(sf.expr(SECRETS)).alias("secrets"),
        )
        .collect()
    )
    captured: list[PlacedSecrets] = []
    if any(row["secrets"] for row in found):
        rows = packets.where(SECRETS).select("clock_ns", "capture_index", "number", "payload").collect()
        for clock, capture, number, block in rows:
            captured.append((Place(NO_TIME if clock is None else clock, capture, number), bytes(block)))
        packets = packets.where(f"not ({SECRETS})")
    return RunInput(
        packets.sparkSession,
        lambda shards: packets.select(*PIPELINE).mapInArrow(RowCutter(shards), ddl(PIECES)),
        {row["capture_index"]: row["capture"] for row in found},
        max((row["clock"] for row in found if row["clock"] is not None), default=NO_TIME),
        sum(row["size"] for row in found),
        captured,
    )


def check_columns(packets: DataFrame) -> None:
    """Raises UsageError if packets lack a column that a run needs."""
    missing = {*PIPELINE, "capture"} - set(packets.columns)
    if missing:
        raise UsageError(f"packets: missing columns: {', '.join(sorted(missing))}")


# -- for programs ------------------------------------------------------------------------------------------------------


def decode(
    packets: DataFrame | PlannedCaptures,
    *,
    tables: Iterable[str] = TABLE_NAMES,
    bodies: bool = True,
    records: bool = False,
    ports: Iterable[int] = (),
    show_secrets: bool = False,
    topic_ids: Mapping[str, str] | None = None,
    keylog: str | os.PathLike[str] | None = None,
    shards: int | None = None,
) -> SparkRun:
    """The tables of packets: of `spark.read.format("kafkasniff")` (all columns), or of `source.open_captures`.

    Stage 1 runs immediately. A DataFrame is read once more before, for the captures' names and their end time. Other
    contents of captures (truncation, names of addresses) are known for `PlannedCaptures` only; TLS secrets in them also
    if the option `secrets` added them to the DataFrame. `bodies`, `records`, `ports`, `show_secrets` are those of
    `kafkasniff export`; `topic_ids`: names for topic ids that are not in the traffic; `keylog`: a file with TLS
    secrets, read here; `shards`: tasks of stage 1.

    Raises UsageError if a column is missing, a table is unknown, or the key log cannot be read, MissingPartError if
    decryption is not available.
    """
    options = make_options(tables, bodies=bodies, records=records, ports=ports, show_secrets=show_secrets)
    keys = None if keylog is None else open_key_log(keylog)
    run_input = of_captures(packets, options) if isinstance(packets, PlannedCaptures) else of_rows(packets)
    return SparkRun(run_input, options, given=topic_ids, keys=keys, shards=shards)


def make_options(
    tables: Iterable[str], *, bodies: bool, records: bool, ports: Iterable[int], show_secrets: bool
) -> ExportOptions:
    """Options of an export, normalized for comparison. Raises UsageError for an unknown table."""
    wanted = set(tables)
    if not wanted <= set(TABLE_NAMES) or not wanted:
        raise UsageError(f"tables are {', '.join(TABLE_NAMES)}")
    return ExportOptions(
        tables=tuple(name for name in TABLE_NAMES if name in wanted),
        bodies=bodies,
        records=records,
        ports=tuple(sorted(set(ports))),
        show_secrets=show_secrets,
    )
