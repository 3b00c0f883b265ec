"""Each family of parsers on its seeds and on inputs made of them; and the watch and the mutator themselves."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.fuzz import watch
from tests.fuzz.engine import has_atheris, replay
from tests.fuzz.families import FAMILIES, Family, family
from tests.fuzz.mutate import inputs
from tests.fuzz.watch import ExcessError, watched

COUNT = 150
"""Inputs of each family; `python -m tests.fuzz` makes more."""


@functools.cache
def seeded(name: str) -> tuple[Family, tuple[bytes, ...]]:
    found = family(name)
    return found, tuple(found.seeds())


def test_every_module_of_the_folder_is_a_family() -> None:
    with_inputs = {path.stem for path in Path(__file__).parent.glob("*.py") if "\ndef one_input(" in path.read_text()}
    assert with_inputs == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_seeds(name: str) -> None:
    found, seeds = seeded(name)
    assert len(seeds) >= 20
    assert max(map(len, seeds)) <= found.MAX_LENGTH
    for data in seeds[:: max(1, len(seeds) // 60)]:
        found.one_input(data)
    for data in (b"", b"\0", b"\xff" * 50):
        found.one_input(data)


@pytest.mark.parametrize("name", FAMILIES)
def test_changed_seeds(name: str) -> None:
    found, seeds = seeded(name)
    one_input = watched(found.one_input, found.MEGABYTES)
    for data in inputs(seeds, found.WORDS, count=COUNT, seed=7, max_length=found.MAX_LENGTH):
        one_input(data)


@pytest.mark.parametrize("name", FAMILIES)
def test_inputs_that_hypothesis_makes(name: str) -> None:
    """What it finds it makes small."""
    found, seeds = seeded(name)

    @given(st.sampled_from(seeds), st.integers(0, 1000), st.integers(0, 60), st.binary(max_size=20))
    def try_one(seed: bytes, at: int, cut: int, written: bytes) -> None:
        at %= len(seed) + 1
        found.one_input((seed[:at] + written + seed[at + cut :])[: found.MAX_LENGTH])

    try_one()


def test_the_mutator_makes_the_same_inputs_again_and_others_of_other_seeds() -> None:
    options = {"words": (b"word",), "count": 200, "max_length": 50}
    first = list(inputs([b"some bytes", b"others"], seed=1, **options))  # type: ignore[arg-type]
    assert first == list(inputs([b"some bytes", b"others"], seed=1, **options))  # type: ignore[arg-type]
    assert first != list(inputs([b"some bytes", b"others"], seed=2, **options))  # type: ignore[arg-type]
    assert len(set(first)) > 150
    assert max(map(len, first)) <= 50


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


def test_the_watch_sees_memory_out_of_proportion() -> None:
    """In a process of its own, where what a process had at most begins with what the one that started it had."""
    code = (
        "from tests.fuzz import watch\n"
        "had = watch._peak()\n"
        "one_input = watch.watched(lambda data: b'x' * ((had if data else 0) + (len(data) << 20)), 50)\n"
        "one_input(b'')\n"
        "try:\n    one_input(bytes(100))\nexcept watch.ExcessError as error:\n    print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "MB more for an input of 100 bytes" in ended.stdout


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.fuzz", *arguments, "--folder", str(folder)]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)


def test_a_run(tmp_path: Path) -> None:
    """Guided by coverage where atheris is installed, else not: `.ci/run` has a step of its own that asks for it."""
    unguided = [] if has_atheris() else ["--unguided"]
    ended = command(tmp_path, "compression", "--executions", "300", "--seed", "3", *unguided)
    assert ended.returncode == 0, ended.stdout
    assert "nothing found" in ended.stdout
    folder = tmp_path / "compression"
    assert any((folder / "seeds").iterdir())
    if has_atheris():
        assert any((folder / "corpus").iterdir())


def test_an_input_once_more(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"\2\xff\xff\xff\xff\xff\x0f")
    replay("compression", path)
    assert command(tmp_path, "compression", "--input", str(path)).returncode == 0
