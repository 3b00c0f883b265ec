"""Killed at any time: the previous export stays intact, and the same command then yields the rows of one clean run."""

from __future__ import annotations

import functools
import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.capture.waiting import until
from tests.choice import ALL, DEEP
from tests.runtime.test_worker_processes import alive
from tests.tables.exports.exported import CAPTURES, TWO, cut, files, manifest, named_files, run, tables
from tests.tables.exports.stored import KilledError

ROOT = Path(__file__).resolve().parents[3]
CODE = """
    import os, signal, sys
    from pathlib import Path
    from kafkasniff.tables.exports.options import ExportOptions
    from kafkasniff.tables.exports.run import export

    {before}
    print("ready", flush=True)
    export(sys.argv[2:], Path(sys.argv[1]), ExportOptions(), jobs={jobs}, checkpoint_seconds=0.0)
"""


def test_killed_between_any_two_steps_of_the_commit(tmp_path: Path) -> None:
    """At some of the renames and removals that make up the second run's commit."""
    parts = cut(CAPTURES / "java-group-share.pcap", (0.5,), tmp_path)
    run(parts, tmp_path / "one", TWO)
    seen = set()
    for number in itertools.count(0, 1 if ALL else 9):
        out, left = tmp_path / f"{number}", number
        run(parts[:1], out, TWO)
        first = tables(out)

        def step(real: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledError
            return real(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            for name in ("rename", "unlink"):
                patch.setattr(os, name, functools.partial(step, getattr(os, name)))
            try:
                run(parts, out, TWO, checkpoint_seconds=0.0)
            except KilledError:
                assert left < 0
        seen.add([first, tables(tmp_path / "one")].index(tables(out)))
        run(parts, out, TWO)
        assert tables(out) == tables(tmp_path / "one")
        assert files(out) == named_files(out)
        if left >= 0:
            break
    assert number > 11
    assert seen == {0, 1}


def start(folder: Path, captures: list[Path], *, before: str = "", jobs: int = 1) -> subprocess.Popen[str]:
    code = textwrap.dedent(CODE).format(before=textwrap.dedent(before), jobs=jobs)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), *map(str, captures)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.extended
def test_killed_at_random_moments(tmp_path: Path) -> None:
    parts = cut(CAPTURES / "kraft-two-brokers.pcap", (0.2, 0.4, 0.6, 0.8), tmp_path)
    run(parts[:1], tmp_path / "one")
    begun = time.monotonic()
    run(parts, tmp_path / "one")
    span = time.monotonic() - begun
    run(parts[:1], tmp_path / "out")
    first = tables(tmp_path / "out")
    dice = random.Random(5)
    killed = 0
    for _ in range(20 if DEEP else 3):
        process = start(tmp_path / "out", parts)
        process.stdout.readline()
        time.sleep(dice.uniform(0, 1.1 * span))
        process.kill()
        _, error = process.communicate()
        assert process.returncode in {0, -signal.SIGKILL}, error
        reported = manifest(tmp_path / "out")
        if reported["runs"] == 1:
            killed += 1
            assert tables(tmp_path / "out") == first
        else:
            # Committed, perhaps with something left to remove.
            assert tables(tmp_path / "out") == tables(tmp_path / "one")
            break
    assert killed
    run(parts, tmp_path / "out")
    assert tables(tmp_path / "out") == tables(tmp_path / "one")
    assert files(tmp_path / "out") == named_files(tmp_path / "out")


@pytest.mark.extended
def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    parts = cut(CAPTURES / "zookeeper-3.9-cluster.pcap", (0.5,), tmp_path)
    before = """
        from kafkasniff.runtime.worker_processes import Workers

        def waiting(self, *rest, **more):
            import time
            time.sleep(0.5)
            print(*(process.pid for process in self._processes), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        Workers.messages = waiting
    """
    process = start(tmp_path / "out", parts, before=before, jobs=2)
    out, error = process.communicate()
    assert process.returncode == -signal.SIGKILL, error
    pids = [int(pid) for pid in out.split("\n")[1].split()]
    until(lambda: not any(map(alive, pids)))
    run(parts, tmp_path / "one")
    run(parts, tmp_path / "out", jobs=2)
    assert tables(tmp_path / "out") == tables(tmp_path / "one")
