"""The runs of a broker and its clients that these tests inspect, made once, in a network namespace of their own."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.capture.network import on_own_loopback
from tests.conftest import missing
from tests.integration import side_by_side
from tests.integration.processes import ClientError
from tests.integration.run import ENVIRONMENTS, RELEASE, Run

ATTEMPTS = 2
"""Attempts if a client gives up by itself: on a very busy machine, kafka-python sometimes hangs in a rebalance.
kafkasniff's mistakes show in the run that succeeds."""


@pytest.fixture(scope="session")
def run_folder(
    require_root: Callable[[], None], require_kafka: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of the runs, shared by all pytest processes, if the machine has what they need."""
    require_root()
    if shutil.which("tcpdump") is None:
        missing("tcpdump is not installed")
    require_kafka(RELEASE, environments=ENVIRONMENTS)
    on_own_loopback(lambda: None)()
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def made(run_folder: Path) -> Path | str:
    """The folder of all runs, or the reason why there is none. The first pytest process makes them; the others wait for
    its files."""
    folder = run_folder / "real-broker"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made, failure = folder / "made", folder / "failure"
        if not made.exists() and not failure.exists():
            for number in range(1, ATTEMPTS + 1):
                place = folder / f"run-{number}"
                place.mkdir()
                try:
                    on_own_loopback(side_by_side.make)(place)
                except Exception as error:
                    failure.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
                    if not isinstance(error, ClientError):
                        break
                else:
                    failure.unlink(missing_ok=True)
                    made.write_text(place.name, encoding="utf-8")
                    break
        if made.exists():
            return folder / made.read_text(encoding="utf-8")
        return failure.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def attempt(made: Path | str) -> Run | str:
    return made if isinstance(made, str) else side_by_side.load_workload(made)


@pytest.fixture
def encrypted_run(made: Path | str) -> Path:
    """The folder of the run with TLS; `test_real_broker.test_there_was_a_run` reports why a run failed."""
    if isinstance(made, str):
        pytest.skip("there is no run to inspect")
    return made / side_by_side.ENCRYPTED


@pytest.fixture
def real_run(attempt: Run | str) -> Run:
    """The run; `test_there_was_a_run` reports why it failed."""
    if isinstance(attempt, str):
        pytest.skip("there is no run to inspect")
    return attempt
