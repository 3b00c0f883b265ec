"""The runs of a broker and its clients that all tests here look at, each made once."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.conftest import missing
from tests.integration import kills, run
from tests.integration.kills import Kills
from tests.integration.processes import ClientError
from tests.integration.run import ENVIRONMENTS, RELEASE, Run

ATTEMPTS = 2
"""A client that gives up by itself has another go: on a very busy machine kafka-python now and then hangs in a
rebalance. Whatever kafkasniff does wrong shows in the run that went through."""


Made = TypeVar("Made")


@pytest.fixture(scope="session")
def run_folder(
    require_root: Callable[[], None],
    require_kafka: Callable[..., None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Where runs are, of all processes of pytest, on a machine that has what they need."""
    require_root()
    if shutil.which("tcpdump") is None:
        missing("tcpdump is not installed")
    require_kafka(RELEASE, environments=ENVIRONMENTS)
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def attempt(run_folder: Path) -> Run | str:
    """A run, or why there is none. Whichever process of pytest comes first makes it; the others wait for its files."""
    return _once(run_folder / "real-broker", run.make, run.load)


@pytest.fixture(scope="session")
def killing(run_folder: Path) -> Kills | str:
    """The run with the kills, likewise."""
    return _once(run_folder / "kills", kills.make, kills.load)


def _once(folder: Path, make: Callable[[Path], None], load: Callable[[Path], Made]) -> Made | str:
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made, failure = folder / "made", folder / "failure"
        if not made.exists() and not failure.exists():
            for number in range(1, ATTEMPTS + 1):
                place = folder / f"run-{number}"
                place.mkdir()
                try:
                    make(place)
                except Exception as error:
                    failure.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
                    if not isinstance(error, ClientError):
                        break
                else:
                    failure.unlink(missing_ok=True)
                    made.write_text(place.name, encoding="utf-8")
                    break
        if made.exists():
            return load(folder / made.read_text(encoding="utf-8"))
        return failure.read_text(encoding="utf-8")


@pytest.fixture
def real_run(attempt: Run | str) -> Run:
    """The run; where it failed, `test_there_was_a_run` says why."""
    if isinstance(attempt, str):
        pytest.skip("there was no run to look at")
    return attempt


@pytest.fixture
def kills_run(killing: Kills | str) -> Kills:
    """The run with the kills; where it failed, `test_kills.test_there_was_a_run` says why."""
    if isinstance(killing, str):
        pytest.skip("there was no run to look at")
    return killing
