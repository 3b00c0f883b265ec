"""A standalone cluster of this machine: `spark-submit`, executors that lack kafkasniff, and one that is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.spark.checks import CONF, EXECUTORS, JAVA
from tests.spark.processes import CAPTURES, check_workers, folder, python, require_spark, run_checks, started, wait_for
from tests.tables.exports.exported import manifest, run, tables

__all__ = ["folder", "python"]

# Not beside the others that start several Javas.
pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.extended]


def job() -> str:
    (code,) = re.findall(r"```py\n# job\.py\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.DOTALL)
    return code


@pytest.fixture(scope="module")
def found(folder: Path, python: str) -> dict[str, Any]:
    """What `checks.py` finds as a job that was submitted."""
    environment = require_spark()
    import pyspark

    spark = Path(pyspark.__file__).parent / "bin"
    environment |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # The script's folder has other things than modules to import.
        "PYTHONSAFEPATH": "1",
    }
    (folder / "job.py").write_text(job())

    def daemon(name: str, *arguments: str) -> list[str | Path]:
        local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        return [spark / "spark-class", f"org.apache.spark.deploy.{name}", *local, *arguments]

    def logged(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
        return wait_for(lambda: re.search(pattern, log.read_text()), process, log)[0]

    log, worker_log = folder / "master.log", folder / "worker.log"
    with started(daemon("master.Master"), log, {**environment, "PYTHONPATH": str(ROOT)}) as first:
        master = logged(log, r"spark://127\.0\.0\.1:\d+", first)
        worker = daemon("worker.Worker", "-c", f"{EXECUTORS}", "-m", f"{512 * EXECUTORS}m", master)
        with started(worker, worker_log, environment) as second:
            logged(worker_log, "Successfully registered with master", second)
            settings = {
                **CONF,
                "spark.executor.memory": "512m",
                "spark.executor.cores": "1",
                # Executors here would have kafkasniff by the path that `get_session` sets; elsewhere nobody sets one.
                "spark.executorEnv.PYTHONPATH": "",
            }
            conf = [word for item in settings.items() for word in ("--conf", "=".join(item))]
            found = run_checks("cluster", folder, environment, [spark / "spark-submit", "--master", master, *conf])
        assert "Asked to launch executor" in worker_log.read_text()
    return {**found, "master": master}


def test_a_job_that_is_submitted(found: dict[str, Any], folder: Path) -> None:
    """Its session is on the master of `spark-submit`."""
    assert found["settings"]["spark.master"] == found["master"]
    assert found["job"] in {0, 4}
    assert manifest(folder / "tables")["engine"] == "spark"
    run(CAPTURES, folder / "local")
    assert tables(folder / "tables") == tables(folder / "local")


def test_an_executor_is_lost_with_its_staged_rows(found: dict[str, Any], folder: Path) -> None:
    """Its files of records count; Spark reads and decodes the packets again for its other rows."""
    local = run(CAPTURES, folder / "local-once-more")
    assert found["exported_without_an_executor"] == {"rows": local.rows, "notices": [], "is_lost": True}
    assert tables(folder / "without") == tables(folder / "local-once-more")


def test_executors_are_processes_that_take_it_from_what_was_shipped(found: dict[str, Any], python: str) -> None:
    check_workers(found)
    workers = found["where_workers_run"]
    assert len({worker["executor"] for worker in workers}) == EXECUTORS
    for worker in workers:
        assert worker["python"] == python
        assert found["shipping"]["zip"] in Path(worker["package"]).parts
    # The shipped files are removed at the end.
    assert not Path(found["shipping"]["folder"]).exists()
