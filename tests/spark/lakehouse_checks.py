"""What lakehouse tables have to do with a real runtime: run as a script, since that runtime needs a Spark of its own.

    python -P lakehouse_checks.py FOLDER JAR,… CAPTURE CAPTURE CAPTURE OTHER…

The three captures are parts of one; OTHER are any. Prints JSON: the name of each check and what it found.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.conftest import FAST
from tests.spark.delta import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("exchanges", "records", "connections", "problems")
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

    def differences(self, name: str, tables: tuple[str, ...] = TABLES) -> dict[str, list[int]]:
        """By table: rows of the export, and EXCEPT ALL both ways."""
        found = {}
        for table in tables:
            path = self.folder / name / table
            if not any(path.glob("*/*.parquet")):
                found[table] = [0, 0, self.table(name, table).count()]
                continue
            rows = self.spark.read.parquet(str(path))
            has = self.table(name, table).select(*rows.columns)
            found[table] = [rows.count(), rows.exceptAll(has).count(), has.exceptAll(rows).count()]
        return found

    def table(self, name: str, table: str) -> DataFrame:
        return self.spark.table(f"{DATABASE}.{name}_{table}")

    def history(self, name: str) -> list[int]:
        """The number of commits of each table."""
        return [self.spark.sql(f"DESCRIBE HISTORY {DATABASE}.{name}_{table}").count() for table in TABLES]

    def runs(self, name: str, table: str = "connections") -> list[Any]:
        """Rows by run and whether they are open."""
        counted = self.table(name, table).groupBy("run", "open").count().collect()
        return sorted([row["run"], row["open"], row["count"]] for row in counted)

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
            found["differences"].append(self.differences(name))
            found["runs"].append({table: self.runs(name, table) for table in TABLES})
        before = self.history(name)
        self.export(name, self.parts)
        found["repeated"] = [before, self.history(name)]
        notes = self.table(name, "exchanges").groupBy("run", "note").count().collect()
        found["notes"] = sorted([row["run"], row["note"]] for row in notes)
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
        found.append(self.differences("killed", tables))
        dying("_replace", 2, both)
        self.export("killed", both, tables=tables)
        return [*found, self.differences("killed", tables)]

    def state_discarded(self) -> Any:
        """The open rows of the first run stay, and are final."""
        tables = ("connections",)
        self.export("discarded", self.parts[:1], tables=tables)
        before = self.runs("discarded")
        self.export("discarded", self.parts[1:2], tables=tables, discard_state=True)
        return [before, self.runs("discarded"), self.differences("discarded", tables)]

    def written_directly(self) -> Any:
        """A run again, another one, and tables of an export."""
        from kafkasniff.errors import UsageError
        from kafkasniff.spark import pipeline
        from kafkasniff.spark.source import open_captures

        self.export("others", self.others)
        found: dict[str, Any] = {"others": self.differences("others")}
        with pipeline.decode(open_captures(self.spark, self.others), tables=TABLES) as tables:
            for run in (20261126, 20261127, 20261126):
                tables.write_to(f"{DATABASE}.direct", run=run)
            found["runs"] = {table: self.runs("direct", table) for table in TABLES}
            added = ["run", "open"]
            found["differences"] = {}
            for table in TABLES:
                wanted = self.table("others", table).drop(*added)
                has = self.table("direct", table).where("run = 20261126").select(*wanted.columns)
                found["differences"][table] = [wanted.exceptAll(has).count(), has.exceptAll(wanted).count()]
            try:
                tables.write_to(f"{DATABASE}.others", run=1)
            except UsageError as error:
                found["refused"] = str(error)
        found["exported"] = self.refused("direct", self.others)
        return found

    def rows_of_others(self) -> Any:
        self.spark.sql(f"CREATE TABLE {DATABASE}.theirs_records USING delta AS SELECT 1 AS one")
        return [self.refused("theirs", self.others), self.refused("theirs", self.others, "nowhere")]


def main(folder: str, jars: str, *captures: str) -> None:
    from kafkasniff.spark.session import get_session

    conf = {"spark.jars": jars, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    spark = get_session("local[2]", **{**FAST, **SETTINGS, **conf})
    spark.sql(f"CREATE DATABASE {DATABASE}")
    checks = Checks(spark, Path(folder), list(captures[:3]), list(captures[3:]))
    every = (
        checks.several_runs,
        checks.killed,
        checks.state_discarded,
        checks.written_directly,
        checks.rows_of_others,
    )
    print(json.dumps({"spark": spark.version, **{check.__name__: check() for check in every}}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
