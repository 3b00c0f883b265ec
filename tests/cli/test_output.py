from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest

from kafkasniff.cli.output import BAR_WIDTH, DELAY, INTERVAL, Output, Progress
from kafkasniff.errors import OutputError
from tests.cli.console import environment


def test_a_reader_that_closed_is_not_an_output_error() -> None:
    class Gone(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError), Output(environment(stdout=Gone())) as output:
        output.write(b"x")


def test_a_file_left_by_an_exception_is_reported_as_incomplete(tmp_path: Path) -> None:
    err, path = io.StringIO(), tmp_path / "out"

    def fail_midway() -> None:
        with Output(environment(stderr=err), str(path)) as output:
            output.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_midway()
    assert err.getvalue() == f"kafkasniff: {path} is incomplete\n"
    assert path.read_bytes() == b"half"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux only")
def test_a_disk_that_fills_up_at_the_last_moment() -> None:
    err = io.StringIO()
    with pytest.raises(OutputError, match="No space"), Output(environment(stderr=err), "/dev/full") as output:
        output.write(b"x")
    assert err.getvalue() == "kafkasniff: /dev/full is incomplete\n"


@dataclasses.dataclass
class Source:
    bytes_read: int
    bytes_total: int | None


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bar_with_rate_and_time_left() -> None:
    clock, stderr = Clock(), io.StringIO()
    source = Source(0, 100_000_000)
    progress = Progress(environment(stderr=stderr, clock=clock), source)
    progress.update()
    clock.now += DELAY / 2
    progress.update()
    assert stderr.getvalue() == ""
    clock.now = 101.0
    source.bytes_read = 25_000_000
    progress.update()
    bar = "#" * round(BAR_WIDTH / 4)
    assert stderr.getvalue() == f"\r[{bar:.<{BAR_WIDTH}}]  25% 25.0 MB/s, 3 s left\x1b[K"
    clock.now += INTERVAL / 2
    progress.update()
    assert stderr.getvalue().count("\r") == 1
    progress.clear()
    progress.clear()
    assert stderr.getvalue().endswith("\x1b[K\r\x1b[K")
    assert stderr.getvalue().count("\r") == 2


def test_a_pipe_has_no_end() -> None:
    clock, stderr = Clock(), io.StringIO()
    progress = Progress(environment(stderr=stderr, clock=clock), Source(4_000_000, None))
    clock.now += 2
    progress.update()
    assert stderr.getvalue() == "\r4.0 MB read, 2.0 MB/s\x1b[K"


def test_a_terminal_that_closes_does_not_end_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    clock = Clock()
    progress = Progress(environment(stderr=Gone(), clock=clock), Source(1, 2))
    clock.now += 1
    progress.update()
    progress.clear()
