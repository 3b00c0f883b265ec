from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.processes import CommandFailedError
from benchmarks.timing import Run, in_turn, median, ratio, timed


def python(script: str) -> list[str]:
    return [sys.executable, "-S", "-c", script]


def test_resources_of_a_process(tmp_path: Path) -> None:
    held = bytearray(b"x") * 150_000_000
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint('over')"
    run = timed(python(burn), tmp_path / "output")
    assert 0.3 <= run.cpu < 5
    assert run.wall >= 0.3
    assert run.written == len(b"over\n")
    # What the measuring process holds does not count, though Linux would count it in a child that it starts.
    assert 1_000_000 < run.resident < 100_000_000
    large = timed(python("bytearray(b'x') * 90_000_000"), tmp_path / "output")
    assert 90_000_000 < large.resident < len(held)


def test_children_count(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {burn!r}])"
    assert timed(python(script), tmp_path / "output").cpu >= 0.3


def test_stdin_is_empty(tmp_path: Path) -> None:
    timed(python("import sys; print(len(sys.stdin.read()))"), tmp_path / "output")
    assert (tmp_path / "output").read_text() == "0\n"


def test_a_cut_capture_is_no_failure(tmp_path: Path) -> None:
    assert timed(python("raise SystemExit(4)"), tmp_path / "output").written == 0


@pytest.mark.parametrize(
    "command", [python("import sys; sys.exit('it went wrong')"), ["/no/such/program", "it went wrong"]]
)
def test_a_failure_is_reported(command: list[str], tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError, match="it went wrong"):
        timed(command, tmp_path / "output")


@pytest.mark.parametrize("warm", [True, False])
def test_commands_run_in_turn_in_an_empty_folder(warm: bool, tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    looked = []

    def command(name: str, size: int) -> list[str]:
        path = folder / "written"
        return python(
            f"import pathlib; p = pathlib.Path({str(path)!r}); assert not p.exists(); p.write_bytes(bytes({size})); "
            f"open({str(log)!r}, 'a').write({name!r}); print('x')"
        )

    def look(name: str, where: Path, number: int) -> None:
        looked.append((name, number, (where / "output").read_text(), (where / "written").stat().st_size))

    runs = in_turn({"a": command("a", 10), "b": command("b", 20)}, folder, 2, look, warm=warm)
    assert log.read_text() == ("ababab" if warm else "abab")
    assert [run.written for run in runs["a"]] == [12, 12]
    assert [run.written for run in runs["b"]] == [22, 22]
    numbers = [0, 1, 2] if warm else [1, 2]
    assert looked == [entry for n in numbers for entry in (("a", n, "x\n", 10), ("b", n, "x\n", 20))]
    assert not folder.exists()


def test_a_failing_command_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError):
        in_turn({"a": python("raise SystemExit(1)")}, tmp_path / "run", 1)
    assert not (tmp_path / "run").exists()


def test_ratios_are_of_medians() -> None:
    ours = [Run(cpu, cpu * 2, 0, 0) for cpu in (1.0, 2.0, 90.0)]
    theirs = [Run(cpu, 1.0, 0, 0) for cpu in (4.0, 3.0, 8.0, 5.0)]
    assert median(ours, "cpu") == 2.0
    assert median(theirs, "cpu") == 4.5
    assert ratio(ours, theirs, "cpu") == pytest.approx(2 / 4.5)
    assert ratio(ours, theirs, "wall") == 4.0
