"""Each family of parsers on its seeds and on inputs made from them; and the watch and the mutator themselves.

`make fuzz FUZZ=quick` runs all families in processes of their own, guided by coverage where atheris is installed.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from tests.choice import fewer
from tests.conftest import ROOT
from tests.fuzz import watch
from tests.fuzz.engine import FOUND, _seeded, replay
from tests.fuzz.families import FAMILIES, Family, family
from tests.fuzz.mutate import inputs
from tests.fuzz.watch import ExcessError, watched

COUNT = fewer(100, 400)
"""Inputs of each family; `python -m tests.fuzz` makes more. Families with `DEAR` get a part of them."""


@functools.cache
def seeded(name: str) -> tuple[Family, tuple[bytes, ...]]:
    found = family(name)
    return found, tuple(found.seeds())


def test_every_module_of_the_folder_is_a_family() -> None:
    with_inputs = {path.stem for path in Path(__file__).parent.glob("*.py") if "\ndef one_input(" in path.read_text()}
    assert with_inputs == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_seeds_and_changed_seeds(name: str) -> None:
    found, seeds = seeded(name)
    assert len(seeds) >= 20
    assert max(map(len, seeds)) <= found.MAX_LENGTH
    take = watched(found.one_input, found.MEGABYTES)
    dear: int = getattr(found, "DEAR", 1)
    made = inputs(seeds, found.WORDS, seed=7, max_length=found.MAX_LENGTH)
    given = seeds[:: max(1, dear * len(seeds) // fewer(12, 60))]
    for data in (*given, b"", b"\0", b"\xff" * 50, *islice(made, COUNT // dear)):
        take(data)


def test_the_mutator_makes_the_same_inputs_again_and_others_of_other_seeds() -> None:
    def first(seed: int) -> list[bytes]:
        return list(islice(inputs([b"some bytes", b"others"], (b"word",), seed=seed, max_length=50), 200))

    assert first(1) == first(1) != first(2)
    assert len(set(first(1))) > 150
    assert max(map(len, first(1))) <= 50


def test_the_watch_sees_time_out_of_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(data: bytes) -> None:
        end = time.process_time() + 0.05 * len(data)
        while time.process_time() < end:
            pass

    monkeypatch.setattr(watch, "SECONDS", 0.02)
    one_input = watched(slow, 10)
    one_input(b"")
    with pytest.raises(ExcessError, match="of CPU time for an input of 2 bytes"):
        one_input(b"ab")


class Strange:
    """A family that rejects an input."""

    MAX_LENGTH = 10
    MEGABYTES = 10
    WORDS: Sequence[bytes] = ()

    def seeds(self) -> list[bytes]:
        return [b"good", b"bad"]

    def one_input(self, data: bytes) -> None:
        assert data != b"bad"


def test_an_input_that_breaks_a_promise_is_kept(tmp_path: Path) -> None:
    (tmp_path / "seeds").mkdir()
    with pytest.raises(SystemExit) as ended:
        _seeded(Strange(), tmp_path)
    assert ended.value.code == FOUND
    (path,) = tmp_path.glob("crash-*")
    assert path.read_bytes() == b"bad"


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.fuzz", *arguments, "--folder", str(folder)]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.extended
def test_the_command_imports_no_parser() -> None:
    """Else a guided run would not measure its coverage."""
    code = "import sys, tests.fuzz.__main__; print([name for name in sys.modules if name.startswith('kafkasniff')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).strip() == "[]"


@pytest.mark.extended
def test_a_run(tmp_path: Path) -> None:
    ended = command(tmp_path, "compression", "--executions", "120", "--unguided")
    assert ended.returncode == 0, ended.stdout
    assert "120 inputs" in ended.stdout
    assert "nothing found" in ended.stdout
    assert any((tmp_path / "compression" / "seeds").iterdir())


def test_an_input_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"\2\xff\xff\xff\xff\xff\x0f")
    replay("compression", path)
