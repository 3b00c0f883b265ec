"""Resources of a command with all its processes, whatever becomes of them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from benchmarks import processes
from benchmarks.processes import CommandFailedError, disk_bytes, measure, read_process

pytestmark = pytest.mark.extended

LIMIT_S = 300


def python(script: str, before: str = "") -> list[str]:
    return [sys.executable, "-S", "-c", before + textwrap.dedent(script)]


BURN = "import time\nwhile time.process_time() < 0.4: pass\n"


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Python for a measured script, `sampled(count)`: waits until this many samples were begun and ended.

    However busy the machine is: what is to be seen is there until it was seen.
    """
    count = tmp_path.parent / f"{tmp_path.name}-samples"
    count.touch()
    sample = processes.Sampler._sample

    def reported(self: processes.Sampler) -> None:
        sample(self)
        with count.open("ab") as file:
            file.write(b".")

    monkeypatch.setattr(processes.Sampler, "_sample", reported)
    # One more than asked for: the sample under way may have looked before.
    return textwrap.dedent(f"""
        import os, time
        def sampled(count=1):
            until = os.stat({str(count)!r}).st_size + count + 1
            while os.stat({str(count)!r}).st_size < until: time.sleep(0.01)
    """)


def test_time_and_cpu(tmp_path: Path, sampled: str) -> None:
    usage = measure(python("sampled()\ntime.sleep(0.5)", sampled), tmp_path, limit_s=LIMIT_S)
    assert usage.wall_s >= 0.5
    assert usage.cpu_s < usage.wall_s
    assert usage.samples > 0


def test_a_command_has_the_cores_that_it_was_given(tmp_path: Path) -> None:
    """So do its children; we have all of ours again."""
    every = os.sched_getaffinity(0)
    script = """
        import subprocess, sys
        subprocess.run([sys.executable, "-S", "-c", "import os; print(len(os.sched_getaffinity(0)), flush=True)"])
    """
    measure(python(script), tmp_path, limit_s=LIMIT_S, cores=1)
    assert (tmp_path / "stdout").read_text() == "1\n"
    measure(python(script), tmp_path, limit_s=LIMIT_S, cores=len(every) + 1)
    assert (tmp_path / "stdout").read_text() == f"{len(every)}\n"
    assert os.sched_getaffinity(0) == every


def test_children_and_orphans_count(tmp_path: Path) -> None:
    """A child that is waited for, and one that leaves the session and outlives all of its ancestors."""
    orphan = f"import os\nif os.fork() == 0:\n    os.setsid()\n    {BURN.strip().replace(chr(10), chr(10) + '    ')}"
    script = f"""
        import subprocess, sys, time
        subprocess.run([sys.executable, "-S", "-c", {BURN!r}])
        subprocess.run([sys.executable, "-S", "-c", {orphan!r}])
    """
    usage = measure(python(script), tmp_path, limit_s=LIMIT_S)
    assert usage.cpu_s >= 0.8
    assert usage.cpu_by_role["jvm"] == 0


def test_memory_is_that_of_all_together(tmp_path: Path, sampled: str) -> None:
    hold = "held = bytearray(b'x') * 60_000_000\nprint(flush=True)\ninput()\n"
    script = f"""
        import subprocess, sys
        pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}}
        children = [subprocess.Popen([sys.executable, "-S", "-c", {hold!r}], **pipes) for _ in range(2)]
        for child in children: child.stdout.readline()
        sampled()
        for child in children: child.communicate(b"\\n")
    """
    usage = measure(python(script, sampled), tmp_path, limit_s=LIMIT_S)
    assert usage.peak >= usage.peak_anonymous >= 120_000_000
    assert 60_000_000 <= usage.largest["workers"] < 100_000_000
    assert usage.peak_by_role["workers"] >= 120_000_000
    assert 0 < usage.peak_by_role["main"] < 60_000_000


def test_the_role_stays_when_a_process_ends(tmp_path: Path, sampled: str) -> None:
    """Nobody waits for it: it is there without a program until all is over."""
    program = tmp_path / "java"
    program.write_bytes(Path("/bin/sh").read_bytes())
    program.chmod(0o700)
    burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
    script = f"""
        import os, subprocess
        child = subprocess.Popen([{str(program)!r}, "-c", {f"read seen; {burn}"!r}], stdin=subprocess.PIPE)
        sampled()
        child.stdin.write(b"\\n")
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        sampled()
    """
    usage = measure(python(script, sampled), tmp_path, limit_s=LIMIT_S)
    assert usage.cpu_by_role["jvm"] > 0.1
    assert usage.cpu_by_role["workers"] == 0


def test_disk_is_the_highest_size_at_one_moment(tmp_path: Path, sampled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "DISK_INTERVAL_S", 0.0)
    script = f"""
        path = {str(tmp_path / "large")!r}
        with open(path, "wb") as out: out.write(os.urandom(3_000_000))
        sampled(2)
        os.remove(path)
    """
    usage = measure(python(script, sampled), tmp_path, limit_s=LIMIT_S)
    assert usage.disk >= 3_000_000
    assert disk_bytes(tmp_path) < 100_000


def test_a_command_that_does_not_end_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = tmp_path / "pid"

    class Started(subprocess.Popen[bytes]):
        """Its time begins when it has started what it starts."""

        def wait(self, timeout: float | None = None) -> int:
            while timeout is not None and self.poll() is None and not (reported.exists() and reported.read_text()):
                time.sleep(0.01)
            return super().wait(timeout)

    monkeypatch.setattr(processes.subprocess, "Popen", Started)
    script = f"""
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"], start_new_session=True)
        open({str(reported)!r}, "w").write(str(child.pid))
        time.sleep(3600)
    """
    with pytest.raises(CommandFailedError, match="not over after 2 s"):
        measure(python(script), tmp_path, limit_s=2)
    assert read_process(int(reported.read_text())) is None
