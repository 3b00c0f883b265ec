"""What lakehouse tables have to do with a real runtime, which needs a Spark of its own: `python -P lakehouse_checks.py
FOLDER JAR,… CAPTURE CAPTURE OTHER…` (two parts of one, any others); prints findings as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cli.console import kafkasniff
from tests.spark.conftest import FAST
from tests.spark.delta import SETTINGS, delta_rows
from tests.tables.exports.exported import Rows, rows, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADDED = ("date", "run", "open")
HIVE = {"spark.sql.catalogImplementation": "hive"}
"""Keeps tables in a database below the current folder."""
TABLES = ("exchanges", "connections", "problems")
ONE = ("exchanges",)
DATABASE = "spark_catalog.kafka"


class Checks:
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
        return [len(list(self.place(name, table).glob("_delta_log/*.json"))) for table in TABLES]

    def dying(self, name: str, captures: list[str], method: str, call: int) -> None:
        """Export as a process that is killed when it calls a method of `LakeTables` for the `call`th time."""
        from kafkasniff.spark.lakehouse import LakeTables

        class KilledError(Exception):
            pass

        real, calls = getattr(LakeTables, method), []

        def die(*given: Any) -> None:
            calls.append(given)
            if len(calls) == call:
                raise KilledError
            real(*given)

        setattr(LakeTables, method, die)
        try:
            self.export(name, captures)
        except KilledError:
            pass
        else:
            raise AssertionError(f"{method} was not called {call} times")
        finally:
            setattr(LakeTables, method, real)

    # The checks.

    def several_runs(self) -> Any:
        """A user's own layout and columns, a table of an earlier release, and rows that the next run replaces.

        The runs are killed before the first row, between two tables, and between a table's rows and its mark.
        """
        name = "rotated"
        # As an earlier release would have made it: a column and a field of a struct are new since.
        partition = "struct<topic:string,topic_id:string,partition:int>"
        self.spark.sql(
            f"CREATE TABLE {DATABASE}.{name}_exchanges (capture STRING, partitions ARRAY<{partition}>, note STRING)"
            " USING delta"
        )
        found: dict[str, Any] = {"differences": [], "runs": []}
        # A table's first mark says whose rows will be in it, the second one that they are.
        kills = [[("_replace", 1), ("_set_mark", 1)], [("_replace", 2)]]
        for number, steps in enumerate(kills):
            captures = self.parts[: number + 1]
            for step in steps:
                self.dying(name, captures, *step)
            self.export(name, captures)
            if number == 0:
                self.spark.sql(f"UPDATE {DATABASE}.{name}_exchanges SET note = 'kept'")
            has = self.read(name)
            found["differences"].append(self.differences(name, has))
            found["runs"].append(runs(has))
        found["notes"] = sorted({(row["run"], row["note"]) for row in has["exchanges"]})
        queried = self.spark.table(f"{DATABASE}.{name}_exchanges").toArrow().to_pylist()
        found["read"] = self.differences(name, {"exchanges": queried})
        before = self.commits(name)
        self.export(name, self.parts)
        found["repeated"] = [before, self.commits(name)]
        found["elsewhere"] = self.refused(name, self.others, "another", tables=ONE)
        return found

    def written_directly(self) -> Any:
        """A run again, another one, and tables of an export."""
        from kafkasniff.errors import UsageError
        from kafkasniff.spark import pipeline
        from kafkasniff.spark.source import open_captures

        run(self.others, self.folder / "local")
        found: dict[str, Any] = {}
        with pipeline.decode(open_captures(self.spark, self.others), tables=ONE) as tables:
            for number in (20261126, 20261127, 20261126):
                tables.write_to(f"{DATABASE}.direct", run=number)
            has = self.read("direct", ONE)
            found["runs"] = runs(has)
            found["differences"] = [
                self.differences("local", {table: [row for row in has[table] if row["run"] == number] for table in ONE})
                for number in (20261126, 20261127)
            ]
            try:
                tables.write_to(f"{DATABASE}.rotated", run=1)
            except UsageError as error:
                found["refused"] = str(error)
        found["exported"] = self.refused("direct", self.others, tables=ONE)
        return found

    def rows_of_others(self) -> Any:
        self.spark.sql(f"CREATE TABLE {DATABASE}.theirs_records USING delta AS SELECT 1 AS one")
        return self.refused("theirs", self.others, tables=("records",))

    def by_command(self) -> Any:
        """What the command says of a database that is not there."""
        options = ["export", "--engine", "spark", self.parts[0], "--table", "spark_catalog.nowhere.week"]
        done = kafkasniff(*options, "-o", self.folder / "nowhere")
        return [done.code, done.err, (self.folder / "nowhere").exists()]


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
    checks = Checks(spark, Path(folder), list(captures[:2]), list(captures[2:]))
    every = (checks.several_runs, checks.written_directly, checks.rows_of_others, checks.by_command)
    print(json.dumps({"spark": spark.version, **{check.__name__: check() for check in every}}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
