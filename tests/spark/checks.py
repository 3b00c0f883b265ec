"""What every kind of session (`connect`, `cluster`) has to do: `python -P checks.py KIND FOLDER CAPTURE…`. What the
checks find is `FOLDER/found.json`. Nothing of the tests is imported: workers get functions by value."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

JAVA = (
    # Tests are over before the second compiler pays.
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Nor before room for classes, got bit by bit with a full collection each time, does.
    " -XX:MetaspaceSize=256m"
    # Spark's own classes are sound: looking through each of them before it is used takes a fifth of the start.
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of all of Spark's Javas here: for a quick start."""

CONF = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
EXECUTORS = 3
TASKS = 2 * EXECUTORS
FOUND = "found.json"


def where_workers_run(spark: SparkSession, folder: Path, captures: list[str]) -> Any:
    """Their Python, kafkasniff and kernel, how many executors there are, and a message decoded there."""

    def reported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        import pyarrow

        import kafkasniff
        from kafkasniff.native import kernel_note

        message = kafkasniff.decode_request(bytes.fromhex("0012000000000005000474657374"))
        for batch in batches:
            # Longer than a worker takes to start: no executor does the work of both.
            time.sleep(0.5)
            columns = {
                "python": sys.executable,
                "package": kafkasniff.__file__,
                "executor": f"{os.getppid()}",
                "api": f"{message.api} {message.header}",
                "kernel": kernel_note(),
                # Imported by what has the kernel decode, and by nothing else.
                "kernel_decoded": "kafkasniff.native.caller" in sys.modules,
            }
            yield pyarrow.RecordBatch.from_pydict({name: [value] * len(batch) for name, value in columns.items()})

    rows = spark.range(0, TASKS, 1, TASKS).mapInArrow(
        reported, "python string, package string, executor string, api string, kernel string, kernel_decoded boolean"
    )
    return [row.asDict() for row in rows.collect()]


def questions(spark: SparkSession, folder: Path, captures: list[str]) -> Any:
    from kafkasniff.spark import queries

    tables = {name: spark.read.parquet(str(folder / "export" / name)) for name in ("exchanges", "records")}
    found = {
        "latency": queries.ask(
            "latency", {"exchanges": tables["exchanges"].repartition(3)}, by=("api", "broker"), reducers=2
        ),
        "batching": queries.ask("batching", tables, reducers=2),
    }
    return {name: frame.toArrow().to_pylist() for name, frame in found.items()}


def exported(spark: SparkSession, folder: Path, captures: list[str]) -> Any:
    """Rows of each table of an export that the session makes, and what it says of the run."""
    from kafkasniff.spark.export import export
    from kafkasniff.tables.exports.options import ExportOptions

    result = export(spark, captures, folder / "tables", ExportOptions(), split_size=100_000, shards=3)
    return {"rows": result.rows, "notices": result.notices}


def job(spark: SparkSession, folder: Path, captures: list[str]) -> Any:
    """The exit code of the program in `job.py`, which uses this session."""
    sys.argv = ["job.py", *captures, "-o", str(folder / "tables")]
    try:
        exec(compile((folder / "job.py").read_text(), "job.py", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return end.code
    return None


def exported_without_an_executor(spark: SparkSession, folder: Path, captures: list[str]) -> Any:
    """`exported` where an executor is lost after stage 1, with its staged rows."""
    from kafkasniff.spark import pipeline
    from kafkasniff.spark.export import export
    from kafkasniff.tables.exports.options import ExportOptions

    plan, lost = pipeline.plan_parts, []

    def planned(*arguments: Any) -> Any:
        if not lost:
            lost.append(min(executors(spark)))
            os.kill(lost[0], signal.SIGKILL)
        return plan(*arguments)

    pipeline.plan_parts = planned
    try:
        result = export(spark, captures, folder / "without", ExportOptions(), split_size=100_000, shards=3)
    finally:
        pipeline.plan_parts = plan
    is_lost = lost[0] not in executors(spark)
    return {"rows": result.rows, "notices": result.notices, "is_lost": is_lost}


def executors(spark: SparkSession) -> set[int]:
    """Processes of the executors, which are the parents of their Python workers' parents (Linux)."""

    def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        import pyarrow

        for batch in batches:
            # Longer than a worker takes to start: no executor does the work of both.
            time.sleep(0.5)
            stat = Path(f"/proc/{os.getppid()}/stat").read_text()
            yield pyarrow.RecordBatch.from_pydict({"pid": [int(stat.rpartition(")")[2].split()[1])] * len(batch)})

    return {row["pid"] for row in spark.range(0, TASKS, 1, TASKS).mapInArrow(parents, "pid bigint").collect()}


def settings(spark: SparkSession, folder: Path, captures: list[str]) -> Any:
    names = ("spark.master", "spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType")
    return {name: spark.conf.get(name) for name in names}


Check = Callable[["SparkSession", Path, list[str]], Any]

CHECKS: dict[str, tuple[Check, ...]] = {
    "connect": (settings, where_workers_run, questions, exported),
    "cluster": (settings, where_workers_run, job, exported_without_an_executor),
}


def shipping(spark: SparkSession) -> Any:
    """The zip's name; what happens without it, and shipping twice, which changes nothing."""
    from kafkasniff.spark.shipping import ship

    try:
        spark.read.format("kafkasniff").load("nothing").schema.json()
        before = "found"
    except Exception as error:
        before = str(error).split("\n", 1)[0]
    path = ship(spark)
    assert ship(spark) == path
    assert path.is_file()
    return {"before": before, "zip": path.name, "folder": str(path.parent)}


def main(kind: str, folder: str, *captures: str) -> None:
    from kafkasniff.spark.session import get_session

    spark = get_session()
    found: dict[str, Any] = {"shipping": shipping(spark)}
    for check in CHECKS[kind]:
        found[check.__name__] = check(spark, Path(folder), list(captures))
    if kind == "connect":
        found["again"] = again(spark)
    spark.stop()
    # The program that `job` runs discards what is printed after it.
    Path(folder, FOUND).write_text(json.dumps(found, default=str))


def again(spark: SparkSession) -> Any:
    """Asking for a session where there is one of Spark Connect."""
    from kafkasniff.errors import UsageError
    from kafkasniff.spark.session import get_session, is_connect, runs_elsewhere

    assert get_session() is spark
    assert is_connect(spark)
    assert runs_elsewhere(spark)
    assert get_session(f"{os.environ['SPARK_REMOTE']}/;user_id=me") is spark
    reported = []
    for master in ("sc://127.0.0.1:1/;token=secret", "local[2]"):
        try:
            get_session(master)
        except UsageError as error:
            reported.append(str(error))
    return reported


if __name__ == "__main__":
    main(*sys.argv[1:])
