from __future__ import annotations

import io
from pathlib import Path

import pytest

from kafkasniff.cli.output import Output
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
