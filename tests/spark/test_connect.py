"""Spark Connect: a server that has never heard of kafkasniff, and a client that ships it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, ran
from tests.spark.conftest import answered
from tests.spark.processes import check_what_was_found, connect_server, folder, python, require_spark, run_checks

__all__ = ["folder", "python"]

pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.extended]


@pytest.fixture(scope="module")
def found(folder: Path, python: str) -> dict[str, Any]:
    environment = require_spark("grpc", "grpc_status")
    with connect_server(folder, {**environment, "PYSPARK_PYTHON": python}) as address:
        return run_checks("connect", folder, {**environment, "SPARK_REMOTE": address})


def expected_answers(folder: Path) -> dict[str, Any]:
    """The answers about the export without Spark, as JSON has them."""
    asked = (("latency", {"by": ("api", "broker")}), ("batching", {}))
    found = {name: answered(folder / "export", name, **parameters) for name, parameters in asked}
    return json.loads(json.dumps(found, default=str))


def test_the_same_as_without_spark(found: dict[str, Any], folder: Path, python: str) -> None:
    """Workers take kafkasniff from what was shipped, and the session has our settings."""
    check_what_was_found(found, folder)
    assert found["questions"] == expected_answers(folder)
    shipping = found["shipping"]
    # Where the tests run with an installed kafkasniff, a server has it by that.
    assert "DATA_SOURCE_NOT_FOUND" in shipping["before"] or shipping["before"] == "found"
    for worker in found["where_workers_run"]:
        assert worker["python"] == python
        assert shipping["zip"] in Path(worker["package"]).parts
    assert found["settings"] == {
        "spark.master": "local[2]",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    # An active session is used: the same server under another name for itself, another one, and no server.
    other, local = found["again"]
    assert "is already active, with master sc://127.0.0.1:" in other
    assert other.endswith(", not sc://127.0.0.1:1")
    assert local.endswith(", not local[2]")


NOBODY = {
    "sc://127.0.0.1:1/;token=secret": "no Spark Connect server answers at 127.0.0.1:1",
    "sc://127.0.0.1:nowhere": "not the address of a Spark Connect server (sc://HOST:PORT): ",
}


def test_no_server() -> None:
    """One line for each address, which shows no secret."""
    environment = require_spark("grpc", "grpc_status")
    script = (
        "import sys; from kafkasniff.errors import KafkasniffError; from kafkasniff.spark import session\n"
        "session.ANSWER_SECONDS = 0.5\n"
        "for address in sys.argv[1:]:\n"
        "    try: session.get_session(address)\n"
        "    except KafkasniffError as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, *NOBODY]
    done = ran(command, timeout=300, env={**environment, "PYTHONPATH": str(ROOT)})
    lines = done.stdout.splitlines()
    assert len(lines) == len(NOBODY), done.stderr
    assert all(line.startswith(reported) for line, reported in zip(lines, NOBODY.values(), strict=True)), lines
    assert "secret" not in done.stdout
