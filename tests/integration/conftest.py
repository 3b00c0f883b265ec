"""The one run of a broker and its clients that all tests here look at."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.integration.run import ENVIRONMENTS, RELEASE, ClientError, Run, load, make

ATTEMPTS = 2
"""A client that gives up by itself has another go: on a very busy machine kafka-python now and then hangs in a
rebalance. Whatever kafkasniff does wrong shows in the run that went through."""


@pytest.fixture(scope="session")
def attempt(
    require_root: Callable[[], None],
    require_kafka: Callable[..., None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Run | str:
    """A run, or why there is none. Whichever process of pytest comes first makes it; the others wait for its files."""
    require_root()
    if shutil.which("tcpdump") is None:
        missing("tcpdump is not installed")
    require_kafka(RELEASE, environments=ENVIRONMENTS)
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "real-broker"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _once(folder)


def _once(folder: Path) -> Run | str:
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
    return load(folder / made.read_text(encoding="utf-8")) if made.exists() else failure.read_text(encoding="utf-8")


@pytest.fixture
def real_run(attempt: Run | str) -> Run:
    """The run; where it failed, `test_there_was_a_run` says why."""
    if isinstance(attempt, str):
        pytest.skip("there was no run to look at")
    return attempt
