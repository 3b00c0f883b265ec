"""A run of the pipeline: packets through both stages, and the global state between them.

packets ─ shuffle by connection (pieces.py) ─ stage 1 (connections.py) ─ staged rows, kept on disk
─ known names; fetch sessions, broker by broker (fetch_sessions.py)
─ shuffle of the rows that need it (division.py) ─ stage 2 (table_rows.py) ─ rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.runtime.threads import ClosedAtExit
from kafkasniff.spark.connections import BEGIN_VALUES, END_VALUES, ReadConnections, ShardBegin
from kafkasniff.spark.division import ShardSize, plan_parts
from kafkasniff.spark.fetch_sessions import BROKER_VALUES, HELD, SESSIONS, STEP_COLUMNS, WalkSessions
from kafkasniff.spark.keys import PlacedSecrets, TaskKeys, key_log_problems, secrets_among
from kafkasniff.spark.piece_store import BEGIN_INDEX
from kafkasniff.spark.pieces import PIECES, RowCutter
from kafkasniff.spark.session import is_connect
from kafkasniff.spark.shard_rows import END, SHARD_ROWS, STEP
from kafkasniff.spark.source import PlannedCaptures
from kafkasniff.spark.tables import PIPELINE, ddl
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.beginning import first_states, total
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows.sessions import Sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkasniff.tls.keylog import KeyLog

__all__ = [
    "SHARD_BYTES",
    "SparkRun",
    "Survey",
    "of_rows",
    "parallelism",
    "run_captures",
    "survey",
]

SHARD_BYTES: Final = 128 << 20
"""Approximate bytes of packets per task of stage 1."""
MAX_SHARDS: Final = 1 << 14
"""Maximum number of shards: each has a state, and is a task in all later runs."""

SECRETS: Final = "src_ip is null"
"""Rows of `packets` that are TLS secrets instead of packets (option `secrets` of the data source)."""


class SparkRun(ClosedAtExit):
    """Packets after stage 1; a context manager that releases what Spark keeps of them."""

    def __init__(
        self,
        spark: SparkSession,
        pieces: Callable[[int], DataFrame],
        options: ExportOptions,
        *,
        names: Mapping[int, str],
        end_clock: int,
        size: int,
        carried: Carried | None = None,
        given: Mapping[str, str] | None = None,
        problems: Sequence[Problem] = (),
        hosts: Mapping[str, str] | None = None,
        keys: KeyLog | None = None,
        captured: Sequence[PlacedSecrets] = (),
        shards: int | None = None,
        parallel: int | None = None,
        memory: int | None = None,
        all_packets: int | None = None,
        earliest: Sequence[Place] = (),
    ) -> None:
        """Runs stage 1.

        `pieces`: makes pieces of packets for a number of shards (`pieces.PIECES`); `names`: names of captures by
        `capture_index`; `end_clock`: the packet clock when the captures end; `size`: approximate bytes of the packets;
        `carried`: the state of the last run; `given`: names by topic id; `problems`: of the captures; `hosts`: address
        → name, from captures; `keys`: TLS secrets, and `captured`: those of captures; `shards`: their number, by
        default as `size` and the machines need; `parallel`: how many tasks run at once, if known; `memory`: budget of
        a task in bytes; `all_packets`: of the captures, TCP or not; `earliest`: as for `PieceStore`. Raises
        MissingPartError and UsageError as `TaskKeys` does.
        """
        from pyspark.storagelevel import StorageLevel

        self._spark = spark
        self.options = options
        self.given = dict(given or {})
        self.problems = [*key_log_problems(keys), *problems]
        task_keys = TaskKeys(keys, captured)
        self._kept: list[DataFrame] = []
        self.parallelism = parallel or parallelism(self._spark)
        before = Carried([], Sessions(), LearnedFacts()) if carried is None else carried
        self.shards = shards or _shards(size, self.parallelism, len(before.shards))
        begins = [ShardBegin(state) for state in first_states(before, self.shards, options, self.given)]
        begins[0].problems = self.problems
        read = ReadConnections(
            options,
            names,
            order=before.order,
            end_clock=end_clock,
            keys=task_keys,
            memory=memory,
            earliest=earliest,
        )
        describe(self._spark, "packets to staged rows")
        rows = _in_shards(pieces(self.shards), begins).mapInArrow(read, ddl(SHARD_ROWS))
        self._rows = self._keep(rows, StorageLevel.DISK_ONLY)
        try:
            ends = self._rows.where(f"kind = '{END}'").select("data").collect()
        except BaseException:
            self.close()  # the caller does not have this run yet
            raise
        self.ends = sorted((END_VALUES.load(row["data"]) for row in ends), key=lambda end: end.shard)
        self.learned_facts = before.learned_facts
        self.learned_facts.hosts.update(hosts or {})
        for end in self.ends:
            self.learned_facts.merge(end.learned_facts)
        self._sessions = before.sessions
        self.summary = total(end.summary for end in self.ends)
        """Summary of the run; `packets` counts only TCP, unless all packets were counted."""
        self.summary.problems += len(self.problems)
        if all_packets is not None:
            self.summary.packets = all_packets
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
            found = BROKER_VALUES.load(row["data"])
            self._sessions.replace({found.broker}, found.sessions())
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

    def close(self) -> None:
        """Release what Spark keeps."""
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
    # In this order: a task can begin to decode once it has its beginning.
    return first.unionByName(pieces, allowMissingColumns=True).repartitionById(shards, "shard")


def of_rows(packets: DataFrame) -> Callable[[int], DataFrame]:
    """Pieces of packets that are rows, with the columns `PIPELINE`."""
    return lambda shards: packets.select(*PIPELINE).mapInArrow(RowCutter(shards), ddl(PIECES))


def run_captures(
    captures: PlannedCaptures,
    options: ExportOptions,
    *,
    carried: Carried | None = None,
    before: Sequence[str] = (),
    given: Mapping[str, str] | None = None,
    problems: Sequence[Problem] = (),
    keys: KeyLog | None = None,
    shards: int | None = None,
    parallel: int | None = None,
    memory: int | None = None,
) -> SparkRun:
    """Stage 1 over captures. `before`: names of the captures of earlier runs, whose indices come first.

    `problems`: of other captures; `keys`: TLS secrets in addition to those in the captures; `parallel`: how many tasks
    run at once, if known; `memory`: budget of a task in bytes.
    """
    notes = captures.notes()
    return SparkRun(
        captures.spark,
        lambda shards: captures.pieces(shards, ports=options.ports, captures_before=len(before)),
        options,
        names=dict(enumerate([*before, *captures.names])),
        end_clock=max((split.clock_after for split in captures.plan.splits), default=NO_TIME),
        size=sum(file.size for file in captures.plan.files),
        carried=carried,
        given=given,
        problems=[*problems, *(note.value for note in notes if isinstance(note.value, Problem))],
        hosts=dict(note.value for note in notes if isinstance(note.value, tuple)),
        keys=keys,
        captured=secrets_among(notes, len(before)),
        shards=shards,
        parallel=parallel,
        memory=memory,
        all_packets=sum(split.packets for split in captures.plan.splits),
        earliest=captures.earliest(len(before)),
    )


class Survey(NamedTuple):
    """Properties of packets that a run needs."""

    packets: DataFrame
    """Only the packets."""
    names: dict[int, str]
    """Names of captures, by index."""
    end_clock: int
    """The packet clock at their end."""
    size: int
    """Their approximate bytes."""
    captured: list[PlacedSecrets]
    """TLS secrets among them (option `secrets` of the data source)."""


def survey(packets: DataFrame) -> Survey:
    """Scan packets for their properties; a second time if there are secrets among them.

    Raises UsageError if a column is missing.
    """
    from pyspark.sql import functions as sf

    missing = {*PIPELINE, "capture"} - set(packets.columns)
    if missing:
        raise UsageError(f"packets: missing columns: {', '.join(sorted(missing))}")
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
    clocks = [row["clock"] for row in found if row["clock"] is not None]
    return Survey(
        packets,
        {row["capture_index"]: row["capture"] for row in found},
        max(clocks, default=NO_TIME),
        sum(row["size"] for row in found),
        captured,
    )
