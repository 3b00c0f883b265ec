"""The session: its settings, and that an active one is used; that it starts quietly: test_streaming.py."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kafkasniff.errors import UsageError
from kafkasniff.spark.session import get_session, is_connect, runs_elsewhere
from tests.spark.conftest import FAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_settings(spark: SparkSession) -> None:
    conf = spark.conf
    assert conf.get("spark.master") == "local[2]"
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert conf.get("spark.sql.session.timeZone") == "UTC"
    assert conf.get("spark.sql.shuffle.partitions") == "2"
    assert "TieredStopAtLevel" in (conf.get("spark.driver.extraJavaOptions") or "")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_an_active_session_is_used(spark: SparkSession) -> None:
    assert get_session() is spark
    assert get_session("local[2]") is spark
    assert not is_connect(spark)
    assert not runs_elsewhere(spark)
    with pytest.raises(UsageError, match=r"active already, with master local\[2\]"):
        get_session("local[3]")


@pytest.mark.usefixtures("spark")
def test_one_worker_has_all_tests_with_the_session(request: pytest.FixtureRequest) -> None:
    """Else each worker starts a session of its own, which takes longer than the tests."""
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@spark")


@pytest.mark.parametrize(
    ("master", "told"),
    [
        ("nonsense", "Java gateway process exited"),
        ("local-cluster[1,1,64]", "Executor memory 67108864 must be at least"),
    ],
)
def test_a_master_that_cannot_be_had(master: str, told: str) -> None:
    script = (
        "import sys; from kafkasniff.spark.session import get_session; from kafkasniff.errors import MissingPartError\n"
        "try: get_session(sys.argv[1], **{'spark.driver.extraJavaOptions': sys.argv[2]})\n"
        "except MissingPartError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, master, FAST["spark.driver.extraJavaOptions"]],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.startswith("Spark does not start: "), done.stderr
    assert told in done.stdout
    assert done.stdout.count("\n") == 1
