"""`decode --jobs`, the default number of processes, and lines that the kernel writes: nothing changes a byte."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks import small_messages
from kafkasniff.capture.formats import pcap
from kafkasniff.cli.environment import Exit
from kafkasniff.cli.running import pipeline
from kafkasniff.cli.running import sources as module
from kafkasniff.cli.running.sources import JOB_BYTES, MAX_USUAL_JOBS, usual_jobs
from kafkasniff.engine import lines_ahead
from kafkasniff.engine.inspector import Inspector
from kafkasniff.native import lines
from kafkasniff.runtime.threads import Task
from tests.choice import DEEP, fewer, in_turn, one_in
from tests.cli.console import kafkasniff
from tests.conftest import shipped_captures
from tests.craft import disturb
from tests.craft.samples import mixed
from tests.craft.write import write_rotated

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = sorted((ROOT / "captures").glob("*.pcap*"))
# In one worker, since each worker that runs one of these makes a large capture.
pytestmark = pytest.mark.xdist_group("jobs")

Process = subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many windows, more than can wait at a time."""
    path = tmp_path_factory.mktemp("captures") / "large.pcap"
    small_messages.write(path, connections=20, wanted=fewer(4_000, 20_000))
    return path


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
def test_the_output_matches_that_of_one_thread(tmp_path: Path, options: tuple[str, ...]) -> None:
    captures = write_rotated(tmp_path, disturb.reused(mixed(), Random(1)))
    cut = captures[-1].read_bytes()
    captures[-1].write_bytes(cut[:-5])
    expected = kafkasniff("decode", *options, *captures)
    assert expected.out
    # Seven messages are shown before the reader reaches the truncated end.
    assert expected.code == (Exit.OK if "7" in options else Exit.BROKEN)
    for jobs in (2, 5) if DEEP else (2 + 3 * (len(options) % 2),):
        assert kafkasniff("decode", "--jobs", jobs, *options, *captures) == expected


@pytest.mark.parametrize(
    ("name", "form"), in_turn(one_in(20, [path.name for path in CAPTURES]), ["json", "text"], 2, with_all=4)
)
def test_threads(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the number of threads nor the size of their work units changes a byte."""
    path, options = ROOT / "captures" / name, ("--format", form)
    expected = kafkasniff("decode", "--jobs", 1, *options, path)
    ways = [(jobs, rows, size) for jobs in (2, 3, 4) for rows in (7, 64, 65_536) for size in (700, 512 << 10)]
    place = CAPTURES.index(path)
    some = [ways[place % len(ways)], ways[(7 * place + 4) % len(ways)]]
    for jobs, rows, size in ways if DEEP else some[: fewer(1, 2)]:
        monkeypatch.setattr(pipeline, "FIRST_ROWS", min(rows, 512))
        monkeypatch.setattr(pipeline, "MAX_ROWS", rows)
        monkeypatch.setattr(lines_ahead, "TASK_BYTES", size)
        assert kafkasniff("decode", "--jobs", jobs, *options, path) == expected


class BrokenError(Exception):
    """An unexpected error."""


@pytest.mark.parametrize(("place", "name"), [(lines.JsonLines, "_write"), (pcap.PcapParser, "_scan")])
def test_an_exception_in_a_thread(large: Path, place: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the run as in the main thread, and no thread is left."""
    before, works = threading.active_count(), getattr(place, name)

    def fails(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise BrokenError
        return works(*arguments, **options)

    def run(task: Task[Any], number: int) -> bool:
        # The first thread to come does the work. On a busy machine that may be the main one each time.
        if threading.current_thread() is threading.main_thread():
            task._done.wait(1)
        return begins(task, number)

    begins = Task.run
    monkeypatch.setattr(Task, "run", run)
    monkeypatch.setattr(place, name, fails)
    result = kafkasniff("decode", "--format", "json", "--jobs", 2, large)
    assert result.code == Exit.INTERNAL
    assert result.err.startswith("kafkasniff: internal error: BrokenError")
    assert threading.active_count() == before


def test_a_damaged_capture(large: Path, tmp_path: Path) -> None:
    """Problems found by a thread are reported as usual, after the lines of everything read before."""
    damaged = bytearray(gzip.compress(large.read_bytes()))
    damaged[len(damaged) // 2 :] = bytes(1000)
    path = tmp_path / "damaged.pcap.gz"
    path.write_bytes(damaged)
    expected = kafkasniff("decode", "--format", "json", "--jobs", 1, path)
    assert expected.out
    assert expected.code != Exit.OK
    assert kafkasniff("decode", "--format", "json", "--jobs", 2, path) == expected


@pytest.fixture(params=[[], ["--filter", "has request.topics"]], ids=" ".join)
def busy(request: pytest.FixtureRequest, large: Path) -> Iterator[Process]:
    """A run whose reader does not read, so that it blocks midway."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkasniff", "decode", "--jobs", "2", "--format", "json", *request.param, str(large)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    process.stdout.read(10)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.extended
def test_interrupted(busy: Process) -> None:
    os.kill(busy.pid, signal.SIGTERM)
    out, error = busy.communicate(timeout=60)
    assert busy.returncode == Exit.SIGTERM
    assert error.startswith(b"kafkasniff: interrupted: ")
    assert error.count(b"\n") == 1
    assert out.endswith(b"}\n")


@pytest.mark.extended
def test_a_reader_that_closes(busy: Process) -> None:
    busy.stdout.close()
    assert busy.wait(60) == Exit.OK
    assert busy.stderr.read() == b""


def sparse(path: Path, size: int) -> str:
    with path.open("wb") as file:
        file.truncate(size)
    return str(path)


@pytest.mark.parametrize(
    ("cores", "sizes", "expected"),
    [
        (4, [], 1),
        (4, [JOB_BYTES - 1], 1),
        (4, [2 * JOB_BYTES - 1], 1),
        (4, [2 * JOB_BYTES], 2),
        (4, [JOB_BYTES] * 3, 3),
        (4, [100 * JOB_BYTES], 4),
        (1, [100 * JOB_BYTES], 1),
        (64, [100 * JOB_BYTES], MAX_USUAL_JOBS),
    ],
)
def test_by_size_and_cores(
    cores: int, sizes: list[int], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_cores", lambda: cores)
    assert usual_jobs([sparse(tmp_path / str(number), size) for number, size in enumerate(sizes)]) == expected


def test_inputs_that_are_not_files_are_read_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cores", lambda: 4)
    large = sparse(tmp_path / "large", 100 * JOB_BYTES)
    os.mkfifo(tmp_path / "pipe")
    for other in ("-", str(tmp_path / "pipe"), str(tmp_path / "none"), str(tmp_path)):
        assert usual_jobs([large, other]) == 1
    assert usual_jobs([large]) == 4


FORMS: dict[str, list[str]] = {
    "text": [],
    "json": ["--format", "json"],
    "filtered": ["--filter", "size >= 40"],
    "filtered by responses": ["--filter", "latency_ms > 1", "--format", "json"],
    "filtered by bodies": ["--filter", "body.topics"],
}


def _words(lines: bytes) -> list[list[bytes]]:
    """Lines without padding: that of a request that waits for its response depends on what is decided before it."""
    return [line.split() for line in lines.splitlines()]


def _shown(capture: Any, *options: object) -> tuple[bytes, str, int]:
    done = kafkasniff("decode", capture, *options)
    return done.out, done.err, done.code


@pytest.mark.parametrize(("capture", "form"), in_turn(one_in(12, shipped_captures()), FORMS, 5, with_all=10))
def test_a_count_stops_after_exactly_so_many_messages(capture: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = FORMS[form]
    monkeypatch.setattr(pipeline, "FEW", 0)
    whole, _, _ = _shown(capture, *options)
    counts = one_in(2, [1, 2, 5, 40, 10_000])
    found = [_shown(capture, *options, "-c", count) for count in counts]
    monkeypatch.setattr(Inspector, "write_lines", lambda *_, **_named: False)
    for count, one in zip(counts, found, strict=True):
        assert one == _shown(capture, *options, "-c", count)
        if form == "filtered":
            assert _words(whole)[: len(_words(one[0]))] == _words(one[0])
        else:
            assert whole.startswith(one[0])
        if "json" in options:
            shown = sum(line.startswith((b'{"type":"request"', b'{"type":"response"')) for line in one[0].splitlines())
            assert shown == count or (shown < count and one[0] == whole)
