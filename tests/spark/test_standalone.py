"""A standalone cluster of this machine, and the job of docs/deploy.md submitted to it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.spark.checks import JAVA
from tests.spark.processes import CAPTURES, PATIENCE, python_without_kafkasniff, require_spark, started, wait_for
from tests.tables.exports.exported import manifest, run, tables

pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.extended]


def job() -> str:
    """The program in docs/deploy.md."""
    (code,) = re.findall(r"```py\n# job\.py\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.DOTALL)
    assert isinstance(code, str)
    return code


def test_a_job_that_is_submitted(tmp_path: Path) -> None:
    """Executors have the dependencies, but not kafkasniff, and the session is on the master of `spark-submit`."""
    import pyspark

    spark = Path(pyspark.__file__).parent / "bin"
    environment = {
        **require_spark(),
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "PYSPARK_PYTHON": python_without_kafkasniff(tmp_path / "python"),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    (tmp_path / "job.py").write_text(job())
    captures = tmp_path / "captures"
    captures.mkdir()
    for capture in CAPTURES:
        shutil.copy(capture, captures)

    def daemon(name: str, *arguments: str) -> list[str | Path]:
        local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        return [spark / "spark-class", f"org.apache.spark.deploy.{name}", *local, *arguments]

    def logged(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
        return wait_for(lambda: re.search(pattern, log.read_text()), process, log)[0]

    log, worker_log = tmp_path / "master.log", tmp_path / "worker.log"
    with started(daemon("master.Master"), log, environment) as first:
        master = logged(log, r"spark://127\.0\.0\.1:\d+", first)
        worker = daemon("worker.Worker", "-c", "2", "-m", "1g", master)
        with started(worker, worker_log, environment) as second:
            logged(worker_log, "Successfully registered with master", second)
            settings = {
                "spark.executor.memory": "512m",
                "spark.executor.extraJavaOptions": JAVA,
                "spark.driver.extraJavaOptions": JAVA,
                "spark.executorEnv.PYTHONPATH": "",
            }
            conf = [word for item in settings.items() for word in ("--conf", "=".join(item))]
            done = subprocess.run(
                [spark / "spark-submit", "--master", master, *conf, "job.py", captures, "-o", tmp_path / "tables"],
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                env=environment,
                timeout=PATIENCE,
            )
            assert done.returncode in {0, 4}, done.stderr[-6000:]
            assert "decode in Python" not in done.stderr
            assert re.search("Asked to launch executor .* for kafkasniff", worker_log.read_text())
    assert manifest(tmp_path / "tables")["engine"] == "spark"
    run(sorted(captures.iterdir()), tmp_path / "local")
    assert tables(tmp_path / "tables") == tables(tmp_path / "local")
