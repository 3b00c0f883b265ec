"""What lakehouse tables have to do with a real runtime: run as a script, since that runtime needs a Spark of its own.

    python -P lakehouse_checks.py FOLDER JAR,… CAPTURE CAPTURE CAPTURE OTHER…

The three captures are parts of one; OTHER are any. Prints JSON: the name of each check and what it found. Tables are
compared by their files, and once by queries, each of which takes a second.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cli.console import kafkasniff
from tests.spark.conftest import FAST
from tests.spark.delta import SETTINGS, delta_rows
from tests.tables.exports.exported import Rows, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADDED = ("date", "run", "open")
HIVE = {"spark.sql.catalogImplementation": "hive"}
"""Keeps tables in a database below the current folder."""
TABLES = ("exchanges", "records", "connections", "problems")
COMMAND_TABLES = ("exchanges", "transport")
DATABASE = "spark_catalog.kafka"


class Checks:
    """The checks, and what they share."""

    def __init__(self, spark: SparkSession, folder: Path, parts: list[str], others: list[str]) -> None:
        self.spark = spark
        self.folder = folder
        self.parts = parts
        self.others = others

    def export(
        self, name: str, captures: list[str], out: str | None = None, tables: tuple[str, ...] = TABLES, **more: Any
    ) -> None:
        from kafkasniff.spark.export import export
        from kafkasniff.spark.lakehouse import LakeTables
        from kafkasniff.tables.exports.options import ExportOptions

        lake = LakeTables(self.spark, f"{DATABASE}.{name}", tables)
        export(self.spark, captures, self.folder / (out or name), ExportOptions(tables=tables), lake=lake, **more)

    def refused(self, *given: Any, **more: Any) -> str:
        from kafkasniff.errors import UsageError

        try:
            self.export(*given, **more)
        except UsageError as error:
            return str(error)
        return "not refused"

    def place(self, name: str, table: str) -> Path:
        return self.folder / "warehouse" / "kafka.db" / f"{name}_{table}"

    def read(self, name: str, tables: tuple[str, ...] = TABLES) -> dict[str, Rows]:
        return {table: delta_rows(self.place(name, table)) for table in tables}

    def differences(self, name: str, has: dict[str, Rows]) -> dict[str, list[int]]:
        """By table: rows of the export, and how many of them, or of the table's, the other lacks."""
        return {table: lacking(rows(self.folder / name, table), found) for table, found in has.items()}

    def commits(self, name: str) -> list[int]:
        """The number of commits of each table."""
        return [len(list(self.place(name, table).glob("_delta_log/*.json"))) for table in TABLES]

    # The checks.

    def several_runs(self) -> Any:
        """A user's own layout and columns, a table of an earlier release, and rows that the next run replaces."""
        name = "rotated"
        # As an earlier release would have made it: a column and a field of a struct are new since.
        partition = "struct<topic:string,topic_id:string,partition:int>"
        self.spark.sql(
            f"CREATE TABLE {DATABASE}.{name}_exchanges (capture STRING, partitions ARRAY<{partition}>, note STRING)"
            " USING delta"
        )
        found: dict[str, Any] = {"differences": [], "runs": []}
        for number, part in enumerate(self.parts):
            self.export(name, [part])
            if number == 0:
                self.spark.sql(f"UPDATE {DATABASE}.{name}_exchanges SET note = 'kept'")
            has = self.read(name)
            found["differences"].append(self.differences(name, has))
            found["runs"].append(runs(has))
        found["notes"] = sorted({(row["run"], row["note"]) for row in has["exchanges"]})
        queried = {table: self.spark.table(f"{DATABASE}.{name}_{table}").toArrow().to_pylist() for table in TABLES}
        found["read"] = self.differences(name, queried)
        before = self.commits(name)
        self.export(name, self.parts)
        found["repeated"] = [before, self.commits(name)]
        found["elsewhere"] = self.refused(name, self.others, "another")
        return found

    def killed(self) -> Any:
        """Before the first row, between two tables, and between a table's rows and its mark."""
        from kafkasniff.spark.lakehouse import LakeTables

        tables = ("exchanges", "connections")

        class KilledError(Exception):
            pass

        def dying(method: str, call: int, captures: list[str]) -> None:
            real, calls = getattr(LakeTables, method), []

            def die(*given: Any) -> None:
                calls.append(given)
                if len(calls) == call:
                    raise KilledError
                real(*given)

            setattr(LakeTables, method, die)
            try:
                self.export("killed", captures, tables=tables)
            except KilledError:
                pass
            else:
                raise AssertionError(f"{method} was not called {call} times")
            finally:
                setattr(LakeTables, method, real)

        first, both, found = self.parts[:1], self.parts[:2], []
        dying("_replace", 1, first)
        # A table's first mark says whose rows will be in it, the second one that they are.
        dying("_set_mark", 1, first)
        dying("_set_mark", 3, first)
        self.export("killed", first, tables=tables)
        found.append(self.differences("killed", self.read("killed", tables)))
        dying("_replace", 2, both)
        self.export("killed", both, tables=tables)
        return [*found, self.differences("killed", self.read("killed", tables))]

    def written_directly(self) -> Any:
        """A run again, another one, and tables of an export."""
        from kafkasniff.errors import UsageError
        from kafkasniff.spark import pipeline
        from kafkasniff.spark.source import open_captures

        self.export("others", self.others)
        others = self.read("others")
        found: dict[str, Any] = {"others": self.differences("others", others)}
        with pipeline.decode(open_captures(self.spark, self.others), tables=TABLES) as tables:
            for run in (20261126, 20261127, 20261126):
                tables.write_to(f"{DATABASE}.direct", run=run)
            has = self.read("direct")
            found["runs"] = runs(has)
            found["differences"] = {
                table: [
                    lacking(others[table], [row for row in has[table] if row["run"] == run], without=("run", "open"))
                    for run in (20261126, 20261127)
                ]
                for table in TABLES
            }
            try:
                tables.write_to(f"{DATABASE}.others", run=1)
            except UsageError as error:
                found["refused"] = str(error)
        found["exported"] = self.refused("direct", self.others)
        return found

    def rows_of_others(self) -> Any:
        self.spark.sql(f"CREATE TABLE {DATABASE}.theirs_records USING delta AS SELECT 1 AS one")
        return [self.refused("theirs", self.others), self.refused("theirs", self.others, "nowhere")]

    def by_command(self) -> Any:
        """What the command says and makes in a session; the next session continues."""
        options = ["export", "--engine", "spark", "--tables", ",".join(COMMAND_TABLES), self.parts[0], "--table"]
        nowhere = kafkasniff(*options, "spark_catalog.nowhere.week", "-o", self.folder / "nowhere")
        done = kafkasniff(*options, f"{DATABASE}.week", "-o", self.folder / "week")
        return {
            "refused": [nowhere.code, nowhere.err, (self.folder / "nowhere").exists()],
            "code": done.code,
            "said": done.err,
            "differences": self.differences("week", self.read("week", COMMAND_TABLES)),
        }


def lacking(wanted: Rows, has: Rows, without: tuple[str, ...] = ADDED) -> list[int]:
    """The number of rows that are wanted, of those that `has` lacks, and of those that it has besides.

    `without`: columns that do not count; others than those of the first wanted row do not either.
    """
    names = [name for name in (wanted or has or [{}])[0] if name not in without]
    first, second = (
        Counter(json.dumps([row[name] for name in names], sort_keys=True, default=str) for row in some)
        for some in (wanted, has)
    )
    return [len(wanted), (first - second).total(), (second - first).total()]


def runs(has: dict[str, Rows]) -> dict[str, list[list[Any]]]:
    """By table: rows by run and whether they are open."""
    counted = {table: Counter((row["run"], row["open"]) for row in found) for table, found in has.items()}
    return {table: sorted([*key, count] for key, count in one.items()) for table, one in counted.items()}


def main(folder: str, jars: str, *captures: str) -> None:
    from kafkasniff.spark.session import get_session

    conf = {"spark.jars": jars, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    spark = get_session("local[2]", **{**FAST, **SETTINGS, **HIVE, **conf})
    spark.sql(f"CREATE DATABASE {DATABASE}")
    checks = Checks(spark, Path(folder), list(captures[:3]), list(captures[3:]))
    every = (
        checks.several_runs,
        checks.killed,
        checks.written_directly,
        checks.rows_of_others,
        checks.by_command,
    )
    print(json.dumps({"spark": spark.version, **{check.__name__: check() for check in every}}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
