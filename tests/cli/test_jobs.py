"""`decode --jobs`: threads and real processes, and what becomes of them."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks import small_messages
from kafkasniff import lines_ahead
from kafkasniff.capture import pcap
from kafkasniff.cli import pipeline
from kafkasniff.cli.environment import Exit
from kafkasniff.native import feed, kernel, lines
from kafkasniff.processes import can_fork
from tests.choice import DEEP
from tests.cli.console import Result, kafkasniff
from tests.craft import disturb
from tests.craft.samples import mixed
from tests.craft.write import write_rotated

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = sorted((ROOT / "captures").glob("*.pcap*"))
needs_kernel = pytest.mark.skipif(kernel() is None, reason="no native kernel here")
pytestmark = [
    pytest.mark.skipif(not can_fork(), reason="this system cannot fork"),
    # In one worker: each that has some of them makes a large capture.
    pytest.mark.xdist_group("jobs"),
]

Process = subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many windows: more than are on their way at a time."""
    path = tmp_path_factory.mktemp("captures") / "large.pcap"
    small_messages.write(path, connections=50, wanted=20_000)
    return path


def equal(found: Result, expected: Result) -> None:
    assert found.code == expected.code
    assert found.err == expected.err
    assert found.out == expected.out


@pytest.mark.parametrize(
    "options",
    [
        ("--format", "json"),
        (),
        ("-v", "--color", "always"),
        ("--format", "json", "--api", "Produce", "--since", "+0.001s", "--two-pass"),
        ("--format", "json", "-c", "7"),
        ("-c", "30", "--errors"),
        ("-q", "--port", "9092", "--no-records"),
    ],
)
def test_the_output_is_that_of_one_process(tmp_path: Path, options: tuple[str, ...]) -> None:
    captures = write_rotated(tmp_path, disturb.reused(mixed(), Random(1)))
    cut = captures[-1].read_bytes()
    captures[-1].write_bytes(cut[:-5])
    expected = kafkasniff("decode", *options, *captures)
    assert expected.out
    # Seven messages are there before the reader comes to the cut.
    assert expected.code == (Exit.OK if "7" in options else Exit.BROKEN)
    for jobs in (2, 5) if DEEP else (2 + 3 * (len(options) % 2),):
        equal(kafkasniff("decode", "--jobs", jobs, *options, *captures), expected)


@pytest.mark.parametrize("options", [("--format", "json"), (), ("--format", "json", "-c", "9000")])
def test_many_windows(large: Path, options: tuple[str, ...]) -> None:
    expected = kafkasniff("decode", *options, large)
    assert expected.out.count(b"\n") > 8_000
    equal(kafkasniff("decode", "--jobs", 3, *options, large), expected)


@needs_kernel
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
@pytest.mark.parametrize("options", [("--format", "json"), ()], ids=["json", "text"])
def test_threads(path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither how many threads there are nor how much they take at a time changes a byte."""
    expected = kafkasniff("decode", "--jobs", 1, *options, path)
    ways = [(jobs, rows, size) for jobs in (2, 3, 4) for rows in (7, 64, 65_536) for size in (700, 512 << 10)]
    place = CAPTURES.index(path)
    for jobs, rows, size in ways if DEEP else (ways[place % len(ways)], ways[(7 * place + 4) % len(ways)]):
        monkeypatch.setattr(pipeline, "FIRST_ROWS", min(rows, 512))
        monkeypatch.setattr(pipeline, "MAX_ROWS", rows)
        monkeypatch.setattr(lines_ahead, "TASK_BYTES", size)
        equal(kafkasniff("decode", "--jobs", jobs, *options, path), expected)


class BrokenError(Exception):
    """What nobody expects."""


@needs_kernel
@pytest.mark.parametrize(
    ("place", "name"), [(feed.Feed, "feed"), (lines.JsonLines, "_write"), (pcap.PcapParser, "_scan")]
)
def test_what_a_thread_raises(large: Path, place: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the run as anywhere else, and no thread is left."""
    before, works = threading.active_count(), getattr(place, name)

    def fails(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise BrokenError
        return works(*arguments, **options)

    monkeypatch.setattr(place, name, fails)
    result = kafkasniff("decode", "--format", "json", "--jobs", 2, large)
    assert result.code == Exit.INTERNAL
    assert result.err.startswith("kafkasniff: internal error: BrokenError")
    assert threading.active_count() == before


@needs_kernel
def test_a_damaged_capture(large: Path, tmp_path: Path) -> None:
    """What a thread finds while it reads is reported as ever, behind the lines of what was read before."""
    damaged = bytearray(gzip.compress(large.read_bytes()))
    damaged[len(damaged) // 2 :] = bytes(1000)
    path = tmp_path / "damaged.pcap.gz"
    path.write_bytes(damaged)
    expected = kafkasniff("decode", "--format", "json", "--jobs", 1, path)
    assert expected.out
    assert expected.code != Exit.OK
    equal(kafkasniff("decode", "--format", "json", "--jobs", 2, path), expected)


def test_a_file_as_output(large: Path, tmp_path: Path) -> None:
    for jobs in (1, 2):
        assert kafkasniff("decode", "-q", "--jobs", jobs, "-o", tmp_path / str(jobs), large).code == 0
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_standard_input_is_read_by_one_process(capture: Path) -> None:
    data = capture.read_bytes()
    equal(kafkasniff("decode", "--jobs", 4, "-", stdin=data), kafkasniff("decode", "-", stdin=data))


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    result = kafkasniff("decode", "--jobs", 2, tmp_path / "none.pcap")
    assert result.code == Exit.CAPTURE
    assert result.err.count("\n") == 1


@pytest.fixture(params=["threads", "processes"])
def busy(request: pytest.FixtureRequest, large: Path) -> Iterator[Process]:
    """A run whose reader does not read, so that it waits in the midst, with threads or with two processes more."""
    # Filters read messages as objects.
    options = [] if request.param == "threads" else ["--filter", "size > 0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkasniff", "decode", "--jobs", "2", "--format", "json", *options, str(large)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    process.stdout.read(10)
    yield process
    process.kill()
    process.communicate()


def workers(process: Process) -> list[int]:
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in pids]


def gone(pids: list[int], seconds: float = 20) -> bool:
    """Whether no process has any of these numbers within so many seconds."""
    end = time.monotonic() + seconds
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")


@needs_proc
@pytest.mark.parametrize("busy", ["processes"], indirect=True)
def test_a_worker_that_dies(busy: Process) -> None:
    pids = workers(busy)
    assert len(pids) == 2
    os.kill(pids[1], signal.SIGKILL)
    _, error = busy.communicate(timeout=60)
    assert busy.returncode == Exit.UNAVAILABLE
    assert error.decode() == (
        "kafkasniff: a worker process was killed (SIGKILL), as the kernel does when memory runs out: "
        "give --memory a lower SIZE, use fewer --jobs, or provide more memory\n"
    )
    assert gone(pids)


@needs_proc
@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, Exit.SIGINT), (signal.SIGTERM, Exit.SIGTERM), (signal.SIGHUP, Exit.SIGHUP)],
)
def test_interrupted(busy: Process, signum: int, code: int) -> None:
    pids = workers(busy)
    # As the terminal does it: to all of them.
    for pid in (*pids, busy.pid) if signum != signal.SIGTERM else (busy.pid,):
        os.kill(pid, signum)
    out, error = busy.communicate(timeout=60)
    assert busy.returncode == code
    assert error.startswith(b"kafkasniff: interrupted: ")
    assert error.count(b"\n") == 1
    assert out.endswith(b"}\n")
    assert gone(pids)


@needs_proc
def test_a_reader_that_goes_away(busy: Process) -> None:
    pids = workers(busy)
    assert busy.stdout is not None
    busy.stdout.close()
    assert busy.wait(60) == Exit.OK
    assert busy.stderr is not None
    assert busy.stderr.read() == b""
    assert gone(pids)


@needs_proc
@pytest.mark.parametrize("busy", ["processes"], indirect=True)
def test_no_worker_outlives_the_first_process(busy: Process) -> None:
    pids = workers(busy)
    busy.kill()
    assert gone(pids)
