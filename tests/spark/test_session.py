"""The session: its settings, and that an active one is used; that it starts quietly: test_streaming.py."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkasniff.errors import MissingPartError, UsageError
from kafkasniff.spark.session import get_session, is_connect, runs_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.extended
def test_a_session(spark: SparkSession) -> None:
    """Its settings; an active one is used."""
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    assert {name: spark.conf.get(name) for name in settings} == settings
    assert "TieredStopAtLevel" in (spark.conf.get("spark.driver.extraJavaOptions") or "")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    # Streams have sessions of their own in the same application.
    for found in (get_session(), get_session("local[2]")):
        assert found.sparkContext.applicationId == spark.sparkContext.applicationId
    assert not is_connect(spark)
    assert not runs_elsewhere(spark)
    with pytest.raises(UsageError, match=r"already active, with master local\[2\]"):
        get_session("local[3]")


def test_java_gets_one_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not start with two."""
    from kafkasniff.spark.session import COLLECTOR, JAVA_VARIABLES, _java_options

    def collectors(given: str | None) -> list[str]:
        words = _java_options(given, quick_start=False, runs_tasks=True).split()
        return [word for word in words if word.endswith("GC")]

    for name in JAVA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert collectors(None) == collectors("-XX:+UseStringDeduplication") == [COLLECTOR]
    assert collectors("-Da=b -XX:+UseG1GC") == ["-XX:+UseG1GC"]
    monkeypatch.setenv(JAVA_VARIABLES[0], "-XX:+UseZGC")
    assert collectors(None) == []
    assert COLLECTOR not in _java_options(None, quick_start=True)


def test_unix_sockets_where_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkasniff.spark import session
    from kafkasniff.spark.session import _own_settings

    # pytest's own folders have longer names.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        on = {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": name}
        assert on.items() <= _own_settings("local[2]", folder).items()
        assert list(folder.iterdir()) == []
        without = [
            _own_settings("local[2]"),
            _own_settings("local[2]", folder / "missing"),
            _own_settings("local-cluster[2,1,1024]", folder),
        ]
        monkeypatch.setattr(session, "LONGEST_SOCKET_FOLDER", len(name) - 1)
        without.append(_own_settings("local[2]", folder))
        assert not any("unix" in key for found in without for key in found)


@pytest.mark.extended
def test_java_of_a_command_has_our_settings() -> None:
    program = (
        "import sys; from kafkasniff.spark.shipping import ready_session\n"
        "spark = ready_session('local[1]', packed=True, **{'spark.rdd.compress': 'true'})\n"
        "names = ('spark.shuffle.compress', 'spark.rdd.compress',\n"
        "    'spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch')\n"
        "print(*(spark.conf.get(name) for name in names))\n"
        "print(*spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())\n"
        "import os; home = os.environ['SPARK_HOME']\n"
        "print(spark.range(1).rdd.map(lambda _: os.environ['PYTHON_UNIX_DOMAIN_ENABLED']).collect())\n"
        "print([name for name in os.listdir(home) if name.endswith('.sock')], oct(os.stat(home).st_mode & 0o777))\n"
        "spark.stop()"
    )
    # Another test's session may have set it.
    others = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True, env=others
    )
    settings, java, used, sockets = done.stdout.splitlines()
    # What the user gives comes first.
    assert settings == "false true false"
    assert {"-Xmx2g", "-Xmn128m", "-XX:+UseParallelGC", "-XX:TieredStopAtLevel=1"} < set(java.split())
    assert used == "['True']"
    assert ".sock" in sockets
    assert sockets.endswith("] 0o700")


def test_a_master_that_does_not_answer() -> None:
    from kafkasniff.spark.session import _check_standalone

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(MissingPartError, match=f"no Spark master answers at spark://{address}: Connection refused"):
            _check_standalone(f"spark://{address}")  # it does not listen yet
        bound.listen()
        _check_standalone(f"spark://127.0.0.1:1,{address}")
    for wrong in ("spark://nowhere", "spark://:7077", "spark://127.0.0.1:port"):
        with pytest.raises(UsageError, match="not the address of a Spark master"):
            _check_standalone(wrong)
