"""A standalone cluster of this machine, and the job of docs/deploy.md submitted to it."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.spark.checks import JAVA
from tests.spark.processes import CAPTURES, PATIENCE, python_without_kafkasniff, require_spark
from tests.tables.exports.exported import manifest, run, tables

pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.extended]


def job() -> str:
    """The program in docs/deploy.md."""
    (code,) = re.findall(r"```py\n# job\.py\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.DOTALL)
    assert isinstance(code, str)
    return code


@contextlib.contextmanager
def started(folder: Path, environment: dict[str, str], name: str, *arguments: str) -> Iterator[Path]:
    """A daemon of Spark; its log."""
    import pyspark

    command = [Path(pyspark.__file__).parent / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        # The script gives way to Java.
        daemon = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            yield log
        finally:
            daemon.terminate()
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(60)


def logged(log: Path, pattern: str) -> str:
    """Waits until a log has something."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found is not None:
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"{pattern} is not in {log.read_text()[-5000:]}")


def test_a_job_that_is_submitted(tmp_path: Path) -> None:
    """Executors have the dependencies, but not kafkasniff, and the session is on the master of `spark-submit`."""
    import pyspark

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
    local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with started(tmp_path, environment, "master.Master", *local) as log:
        master = logged(log, r"spark://127\.0\.0\.1:\d+")
        with started(tmp_path, environment, "worker.Worker", *local, "-c", "2", "-m", "1g", master) as worker:
            logged(worker, "Successfully registered with master")
            submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
            settings = {
                "spark.executor.memory": "512m",
                "spark.executor.extraJavaOptions": JAVA,
                "spark.driver.extraJavaOptions": JAVA,
                "spark.executorEnv.PYTHONPATH": "",
            }
            conf = [word for item in settings.items() for word in ("--conf", "=".join(item))]
            done = subprocess.run(
                [submit, "--master", master, *conf, "job.py", captures, "-o", tmp_path / "tables"],
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                env=environment,
                timeout=PATIENCE,
            )
            assert done.returncode in {0, 4}, done.stderr[-6000:]
            assert "decode in Python" not in done.stderr
            assert re.search("Asked to launch executor .* for kafkasniff", worker.read_text())
    assert manifest(tmp_path / "tables")["engine"] == "spark"
    run(sorted(captures.iterdir()), tmp_path / "local")
    assert tables(tmp_path / "tables") == tables(tmp_path / "local")
