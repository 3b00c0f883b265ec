"""Sessions in processes of their own: what `checks.py` finds with each kind of session, and what it should find."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kafkasniff.analysis import find_question, make_parameters
from kafkasniff.analysis.export import Export, answer
from kafkasniff.native import kernel_note
from tests.analysis.exports import write_export
from tests.analysis.test_accumulator import pool
from tests.capture.reading import Row
from tests.capture.timelines import expected
from tests.conftest import ROOT, missing
from tests.spark.checks import JAVA
from tests.tables.exports.exported import run, tables

CAPTURES = [ROOT / "captures" / name for name in ("sarama.pcap", "librdkafka-ipv6-ns.pcapng")]
PATIENCE = 1500
"""Seconds for what takes 30 to 250 where nothing else runs, and six times that on a busy machine."""


def require_spark(*modules: str) -> dict[str, str]:
    """The environment to start Spark in; skips (or fails) the test where something is missing."""
    for name in ("pyspark", *modules):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")
    from kafkasniff.errors import MissingPartError
    from kafkasniff.spark.java import find_java_home

    try:
        java = find_java_home()
    except MissingPartError as error:
        missing(str(error))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))}
    return {**clean, "JAVA_HOME": str(java)}


def python_without_kafkasniff(folder: Path) -> str:
    """A Python as workers have it: with all that this one has, but where that is an editable install of kafkasniff."""
    venv.create(folder, with_pip=False)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    # A path file adds folders as they are: path files in them do not count.
    here = sysconfig.get_paths()
    Path(paths["purelib"], "dependencies.pth").write_text(f"{here['purelib']}\n{here['platlib']}\n")
    return str(folder / "bin" / "python")


def run_checks(kind: str, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What `checks.py` finds."""
    write_export(folder / "export", **{table: pool(table) for table in ("exchanges", "records")})
    script = Path(__file__).with_name("checks.py")
    done = subprocess.run(
        # -P: the script's folder has other things than modules to import.
        [sys.executable, "-P", str(script), kind, str(folder), *map(str, CAPTURES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE,
    )
    # Spark has a lot to say when its driver is gone.
    assert done.returncode == 0, done.stderr[max(0, done.stderr.find("Traceback")) :][:6000]
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@contextlib.contextmanager
def connect_server(folder: Path, environment: dict[str, str], *conf: str) -> Iterator[str]:
    """The address of a Spark Connect server on this machine."""
    import pyspark

    from kafkasniff.spark.session import LOGGING, make_home

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = [
        "spark.connect.grpc.binding.address=127.0.0.1",
        f"spark.connect.grpc.binding.port={port}",
        "spark.ui.enabled=false",
        "spark.sql.shuffle.partitions=2",
        "spark.sql.codegen.wholeStage=false",
        "spark.sql.codegen.factoryMode=NO_CODEGEN",
        *conf,
    ]
    java = f"{JAVA} -Dlog4j2.configurationFile={LOGGING.as_uri()}"
    log = folder / "server.log"
    with log.open("wb") as output:
        # What sbin/start-connect-server.sh does; the scripts give way to what they start, so that it can be ended.
        server = subprocess.Popen(
            [
                str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
                *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
                *("--master", "local[2]", "--driver-memory", "1g", "--driver-java-options", java),
                *(word for setting in settings for word in ("--conf", setting)),
                "spark-internal",
            ],
            cwd=folder,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(make_home())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            _await(server, port, log)
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(60)


def _await(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()[-5000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise AssertionError(f"the server does not listen: {log.read_text()[-5000:]}")


def expected_packets(paths: Sequence[Path] = CAPTURES, *, payload_only: bool = False) -> list[list[int]]:
    """Packets and bytes of each capture, as they are read in one piece without Spark."""
    capture, payload = Row._fields.index("capture"), Row._fields.index("payload")
    packets, sizes = Counter[int](), Counter[int]()
    for row in expected(paths).rows:
        if row[payload] or not payload_only:
            packets[row[capture]] += 1
            sizes[row[capture]] += len(row[payload])
    return [[index, packets[index], sizes[index]] for index in sorted(packets)]


def expected_answers(folder: Path) -> dict[str, Any]:
    """The answers about the export without Spark, as JSON has them."""
    found = {}
    for name, parameters in (("latency", {"by": ("api", "broker")}), ("batching", {})):
        question = find_question(name)
        accumulator = question(make_parameters(question, parameters))
        answer(Export.open(str(folder / "export")), accumulator)
        found[name] = json.loads(json.dumps(accumulator.result().to_pylist(), default=str))
    return found


def check_what_was_found(found: dict[str, Any], folder: Path) -> None:
    """What holds for each kind of session that was asked for it."""
    whole = expected_packets()
    assert len(whole) == len(CAPTURES)
    should = {
        "data_source_as_stream": whole[:1],
        "data_source_with_filters": expected_packets(payload_only=True),
        "questions": expected_answers(folder),
    }
    if "exported" in found:
        local = run(CAPTURES, folder / "local")
        assert tables(folder / "tables") == tables(folder / "local")
        should["exported"] = {"rows": local.rows, "notices": []}
    asked = found.keys() & should.keys()
    assert "exported" in asked
    assert {name: found[name] for name in asked} == {name: should[name] for name in asked}
    workers = found["where_workers_run"]
    assert {worker["api"].split()[0] for worker in workers} == {"ApiVersions"}
    # The same library as here, although workers have kafkasniff from a zip.
    assert {(worker["kernel"], worker["kernel_decoded"]) for worker in workers} == {(kernel_note(), True)}
