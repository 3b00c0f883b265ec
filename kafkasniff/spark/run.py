"""A run of the pipeline: packets through both stages, and the global state between them.

packets ─ shuffle by connection, in capture order ─ stage 1 (connections.py) ─ kept on disk
─ known names; fetch sessions, broker by broker (fetch_sessions.py)
─ shuffle by time and exchange ─ stage 2 (table_rows.py) ─ rows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.model import Problem
from kafkasniff.runtime.closing import ClosedAtExit
from kafkasniff.spark.connections import (
    CONNECTION,
    END,
    END_VALUES,
    EXCHANGE,
    EXCHANGES,
    PROBLEM,
    PROBLEM_VALUES,
    ReadConnections,
    ShardEnd,
    batch_of,
    slot_of,
)
from kafkasniff.spark.fetch_sessions import BROKER_VALUES, HELD, SESSIONS, STEP_COLUMNS, WalkSessions
from kafkasniff.spark.keys import PlacedSecrets, TaskKeys, key_log_problems, secrets_among
from kafkasniff.spark.slots import plan_slots
from kafkasniff.spark.source import PlannedCaptures
from kafkasniff.spark.tables import PIPELINE, ddl
from kafkasniff.spark.worker_kernel import slow_tasks
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.beginning import first_states, total
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows.sessions import Sessions
from kafkasniff.tcp.packets import NO_TIME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kafkasniff.tls.keylog import KeyLog

__all__ = [
    "KINDS",
    "SHARD_BYTES",
    "SparkRun",
    "Survey",
    "parallelism",
    "run_captures",
    "shard_of",
    "survey",
]

SHARD_BYTES: Final = 128 << 20
"""Approximate bytes of packets per task of stage 1."""
MAX_SHARDS: Final = 1 << 14
"""Maximum number of shards: each has a state, and is a task in all later runs."""

SECRETS: Final = "src_ip is null"
"""Rows of `packets` that are TLS secrets instead of packets (option `secrets` of the data source)."""

KINDS: Final = {
    "exchanges": (EXCHANGE, HELD),
    "records": (EXCHANGE,),
    "connections": (CONNECTION,),
    "problems": (EXCHANGE, CONNECTION, PROBLEM),
}
"""Kinds of stage 1's rows that a table is made from."""


class SparkRun(ClosedAtExit):
    """Packets after stage 1; a context manager that releases what Spark keeps of them."""

    def __init__(
        self,
        packets: DataFrame,
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
    ) -> None:
        """Runs stage 1.

        `packets`: the columns `PIPELINE`, packets only; `names`: names of captures by `capture_index`; `end_clock`: the
        packet clock when the captures end; `size`: approximate bytes of the packets; `carried`: the state of the last
        run; `given`: names by topic id; `problems`: of the captures; `hosts`: address → name, from captures; `keys`:
        TLS secrets, and `captured`: those of captures; `shards`: their number, by default as `size` and the machines
        need; `parallel`: how many tasks run at once, if known; `memory`: budget of a task in bytes; `all_packets`: of
        the captures, TCP or not. Raises MissingPartError and UsageError as `TaskKeys` does.
        """
        from pyspark.storagelevel import StorageLevel

        self._spark = packets.sparkSession
        self.options = options
        self.given = dict(given or {})
        self.problems = [*key_log_problems(keys), *problems]
        task_keys = TaskKeys(keys, captured)
        self._kept: list[DataFrame] = []
        self.parallelism = parallel or parallelism(self._spark)
        before = Carried([], Sessions(), LearnedFacts()) if carried is None else carried
        self.shards = shards or _shards(size, self.parallelism, len(before.shards))
        first = first_states(before, self.shards, options, self.given)
        read = ReadConnections(options, names, order=before.order, end_clock=end_clock, keys=task_keys, memory=memory)
        describe(self._spark, "packets to exchanges")
        rows = _in_shards(packets, self.shards, first).mapInArrow(read, ddl(EXCHANGES))
        self._exchanges = self._keep(rows, StorageLevel.DISK_ONLY)
        try:
            ends = self._exchanges.where(f"kind = '{END}'").select("data").collect()
        except BaseException:
            self.close()  # the caller does not have this run yet
            raise
        self.ends: list[ShardEnd] = sorted((END_VALUES.load(row["data"]) for row in ends), key=lambda end: end.shard)
        self.notices = slow_tasks(end.without_kernel for end in self.ends)
        """Notices about the run for the user."""
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

        if "exchanges" not in self.options.tables or not any(end.steps for end in self.ends):
            return None
        steps = self._exchanges.where("step is not null").select(*STEP_COLUMNS)
        describe(self._spark, "fetch sessions")
        order = [sf.col(name).asc_nulls_first() for name in STEP_COLUMNS[:5]]
        steps = steps.repartition(self.parallelism, "broker").sortWithinPartitions(*order)
        walked = self._keep(
            steps.mapInArrow(WalkSessions(dump(self._sessions)), ddl(EXCHANGES)), StorageLevel.DISK_ONLY
        )
        for row in walked.where(f"kind = '{SESSIONS}'").select("data").collect():
            found = BROKER_VALUES.load(row["data"])
            self._sessions.replace({found.broker}, found.sessions())
        return walked.where(f"kind = '{HELD}'")

    @cached_property
    def _parts(self) -> tuple[DataFrame, int]:
        """All rows of stage 1 with the column `part`, and the number of parts."""
        from pyspark.sql import functions as sf

        rows = self._exchanges.where(f"kind <> '{END}'")
        problems = [
            (PROBLEM, False, slot_of(problem.time_ns), 0, 0, None, None, None, len(data), data)
            for problem, data in ((problem, PROBLEM_VALUES.dump(problem)) for problem in self.problems)
        ]
        found = [(slot, *sizes) for end in self.ends for slot, sizes in end.slots.items()]
        if problems and "problems" in self.options.tables:
            rows = rows.union(self._spark.createDataFrame(pa.Table.from_batches([batch_of(problems)])))
            found += [(slot, size, 1) for _, _, slot, *_, size, _ in problems]
        plans, parts = plan_slots(_by_slot(found), self.parallelism)
        held = self._held
        if held is not None:
            rows = rows.union(held)
        columns = [pa.array(column, pa.int64()) for column in zip(*plans, strict=True)] or [
            pa.array([], pa.int64())
        ] * 3
        planned = self._spark.createDataFrame(pa.table(columns, ["slot", "first", "parts"]))
        part = sf.expr("int(first + pmod(xxhash64(connection_id, exchange_id), parts))")
        return rows.join(sf.broadcast(planned), "slot").withColumn("part", part), parts

    def in_parts(self, kinds: Iterable[str]) -> DataFrame:
        """Rows of stage 1 of these kinds, as stage 2 needs them: one part per partition."""
        rows, parts = self._parts
        describe(self._spark, "exchanges to rows")
        wanted = rows.where(rows["kind"].isin(list(kinds)))
        return wanted.repartitionById(parts, "part").select("kind", "open", "connection_id", "exchange_id", "data")

    def carry(self) -> Carried:
        """The state for the next run."""
        _ = self._held
        return Carried([end.state for end in self.ends], self._sessions, self.learned_facts, self._order)

    def close(self) -> None:
        """Release what Spark keeps."""
        while self._kept:
            self._kept.pop().unpersist()


def _by_slot(sizes: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(slot, bytes, rows), one of each slot."""
    found: dict[int, tuple[int, int]] = {}
    for slot, size, rows in sizes:
        before = found.get(slot, (0, 0))
        found[slot] = before[0] + size, before[1] + rows
    return [(slot, *sums) for slot, sums in found.items()]


def describe(spark: SparkSession, what: str) -> None:
    """Describe the next jobs in Spark's web page and event log, if possible."""
    from pyspark.sql import SparkSession as Classic

    # Spark Connect has another class, and its server's jobs are not ours to describe.
    if isinstance(spark, Classic):
        spark.sparkContext.setJobDescription(f"kafkasniff: {what}")


def parallelism(spark: SparkSession) -> int:
    """Approximate number of tasks that run at once."""
    from pyspark.sql import functions as sf

    # Determined in a way that also works with Spark Connect.
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


def _in_shards(packets: DataFrame, shards: int, first: Sequence[bytes]) -> DataFrame:
    """Packets in capture order, one shard per partition, each preceded by a row with the shard's state."""
    from pyspark.sql import functions as sf

    columns = [sf.col(name) for name in PIPELINE if name != "connection_hash"]
    rows = packets.select(*columns, shard_of(sf.col("connection_hash"), shards).alias("shard"))
    states = packets.sparkSession.createDataFrame(
        pa.table(
            {
                "shard": pa.array(range(shards), pa.int32()),
                "state": pa.array(first, pa.binary()),
                # Sorts before all packets.
                "capture_index": pa.array([-1] * shards, pa.int32()),
            }
        )
    )
    rows = rows.unionByName(states, allowMissingColumns=True).repartitionById(shards, "shard")
    return rows.sortWithinPartitions(sf.col("clock_ns").asc_nulls_first(), "capture_index", "number")


def shard_of(connection_hash: Column, shards: int) -> Column:
    """The shard of a connection, as in `kafkasniff.engine.shards.shard_of_rows`: hashes are unsigned 64-bit numbers."""
    from pyspark.sql import functions as sf

    half = sf.shiftrightunsigned(connection_hash, 1) % shards
    return ((half * 2 + connection_hash.bitwiseAND(sf.lit(1))) % shards).cast("int")


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
    from pyspark.sql import functions as sf

    packets = captures.packets(ports=options.ports)
    if before:
        packets = packets.withColumn("capture_index", sf.col("capture_index") + len(before))
    notes = captures.notes()
    return SparkRun(
        packets,
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
