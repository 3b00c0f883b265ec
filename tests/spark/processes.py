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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kafkasniff.native import kernel_note
from tests.analysis.exports import write_export
from tests.analysis.test_accumulator import pool
from tests.conftest import ROOT, missing, ran
from tests.spark.checks import FOUND, JAVA
from tests.tables.exports.exported import run, tables

CAPTURES = [ROOT / "captures" / name for name in ("sarama.pcap", "librdkafka-ipv6-ns.pcapng")]
Found = TypeVar("Found")
PATIENCE = 1500
"""Seconds for what takes 30 to 250 where nothing else runs, and six times that on a busy machine."""


def require_spark(*modules: str) -> dict[str, str]:
    """The environment to start Spark in; skips (or fails) the test where something is missing."""
    for name in ("pyspark", *modules):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")
    from kafkasniff.errors import MissingPartError
    from kafkasniff.spark.session import find_java_home

    try:
        java = find_java_home()
    except MissingPartError as error:
        missing(str(error))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))}
    return {**clean, "JAVA_HOME": str(java)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the sessions of a module share."""
    return tmp_path_factory.mktemp("sessions")


@pytest.fixture(scope="module")
def python(folder: Path) -> str:
    """The Python of their workers."""
    return python_without_kafkasniff(folder / "python")


def python_without_kafkasniff(folder: Path) -> str:
    """A Python as workers have it: with all that this one has, but where that is an editable install of kafkasniff."""
    venv.create(folder, with_pip=False)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    # A path file adds folders as they are: path files in them do not count.
    here = sysconfig.get_paths()
    Path(paths["purelib"], "dependencies.pth").write_text(f"{here['purelib']}\n{here['platlib']}\n")
    return str(folder / "bin" / "python")


def run_checks(
    kind: str, folder: Path, environment: dict[str, str], command: Sequence[str | Path] = (sys.executable, "-P")
) -> dict[str, Any]:
    write_export(folder / "export", **{table: pool(table) for table in ("exchanges", "records")})
    script = Path(__file__).with_name("checks.py")
    # -P: the script's folder has other things than modules to import.
    words = [*command, str(script), kind, str(folder), *map(str, CAPTURES)]
    done = ran(words, cwd=folder, env={**environment, "PYTHONPATH": str(ROOT)}, timeout=PATIENCE)
    # Spark has a lot to say when its driver is gone.
    assert done.returncode == 0, done.stderr[max(0, done.stderr.find("Traceback")) :][:6000]
    return json.loads((folder / FOUND).read_text())


@contextlib.contextmanager
def started(command: Sequence[str | Path], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon of Spark's; its scripts give way to Java, so that it can be ended."""
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            command, cwd=log.parent, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            yield daemon
        finally:
            daemon.terminate()
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(60)


def wait_for(find: Callable[[], Found | None], daemon: subprocess.Popen[bytes], log: Path) -> Found:
    """What is found within `PATIENCE` while the daemon runs."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert daemon.poll() is None, log.read_text()[-5000:]
        if (found := find()) is not None:
            return found
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-5000:])


@contextlib.contextmanager
def connect_server(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of a Spark Connect server on this machine."""
    import pyspark

    from kafkasniff.spark.session import LOGGING, make_home

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = [
        *("spark.connect.grpc.binding.address=127.0.0.1", f"spark.connect.grpc.binding.port={port}"),
        *("spark.ui.enabled=false", "spark.sql.shuffle.partitions=2"),
        *("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
    ]
    # What sbin/start-connect-server.sh does.
    command = [
        Path(pyspark.__file__).parent / "bin" / "spark-submit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--driver-memory", "1g"),
        *("--driver-java-options", f"{JAVA} -Dlog4j2.configurationFile={LOGGING.as_uri()}"),
        *(word for setting in settings for word in ("--conf", setting)),
        "spark-internal",
    ]

    def listens() -> bool | None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return None

    log = folder / "server.log"
    with started(command, log, {**environment, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(make_home())}) as one:
        wait_for(listens, one, log)
        yield f"sc://127.0.0.1:{port}"


def check_what_was_found(found: dict[str, Any], folder: Path) -> None:
    """An export like the local one, and workers with the kernel."""
    local = run(CAPTURES, folder / "local")
    assert tables(folder / "tables") == tables(folder / "local")
    assert found["exported"] == {"rows": local.rows, "notices": []}
    check_workers(found)


def check_workers(found: dict[str, Any]) -> None:
    workers = found["where_workers_run"]
    assert {worker["api"].split()[0] for worker in workers} == {"ApiVersions"}
    # The same library as here, although workers have kafkasniff from a zip.
    assert {(worker["kernel"], worker["kernel_decoded"]) for worker in workers} == {(kernel_note(), True)}
