"""Tables from packets, distributed, as DataFrames.

    from kafkasniff.spark import pipeline

    packets = spark.read.format("kafkasniff").load("captures/*.pcapng")
    tables = pipeline.decode(packets)
    tables.exchanges.where("error_code <> 0").groupBy("api", "error").count().show()

The rows are those of `kafkasniff export`, whatever the number of tasks: both engines share the function that assigns
connections to shards (`kafkasniff.engine.shards`), the inspector, and the code that makes rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.errors import UsageError
from kafkasniff.runtime.threads import ClosedAtExit
from kafkasniff.spark.lakehouse import LakeTables
from kafkasniff.spark.run import SparkRun, of_captures, of_rows
from kafkasniff.spark.source import PlannedCaptures
from kafkasniff.spark.table_rows import KINDS, MakeRows
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import TABLE_NAMES, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Tables(ClosedAtExit):
    """The tables of some packets, as DataFrames with lazily computed rows.

    The results of stage 1 stay on the executors' disks until `close`; use it as a context manager.
    """

    def __init__(self, run: SparkRun, options: ExportOptions, given: Mapping[str, str]) -> None:
        self._run = run
        self._options = options
        self._given = given

    def table(self, name: str) -> DataFrame:
        """A table by its name. Raises UsageError if it was not decoded."""
        from pyspark.sql.pandas.types import from_arrow_schema

        if name not in self._options.tables:
            raise UsageError(f"there is no table {name}; decoded were {', '.join(self._options.tables)}")
        make = MakeRows(self._options, self._run.learned_facts, self._given, name)
        return self._run.in_parts(KINDS[name]).mapInArrow(make, from_arrow_schema(TABLES[name]))

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
        frames = {table: self.table(table) for table in self._options.tables}
        spark = next(iter(frames.values())).sparkSession
        LakeTables(spark, name, frames).write(run, frames)

    def close(self) -> None:
        """Release what Spark keeps; the DataFrames can no longer be used."""
        self._run.close()


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
) -> Tables:
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
    given = dict(topic_ids or {})
    keys = None if keylog is None else open_key_log(keylog)
    found = of_captures(packets, options) if isinstance(packets, PlannedCaptures) else of_rows(packets)
    run = SparkRun(found, options, given=given, keys=keys, shards=shards)
    return Tables(run, options, given)


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
