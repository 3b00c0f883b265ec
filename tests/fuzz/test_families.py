"""Each family of parsers on its seeds and on inputs made from them; and the watch and the mutator themselves.

`make fuzz FUZZ=quick` runs all families in processes of their own, guided by coverage where atheris is installed.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.choice import fewer
from tests.conftest import ROOT
from tests.fuzz import watch
from tests.fuzz.__main__ import _options, _planned, main
from tests.fuzz.crowd import ALONE, Inputs, crowds, from_file, size_of, taker, to_file
from tests.fuzz.engine import FOUND, _locate, replay
from tests.fuzz.families import FAMILIES, Family, family
from tests.fuzz.mutate import inputs
from tests.fuzz.tally import Tally
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
    take = watched(taker(found), found.MEGABYTES, size_of)
    dear: int = getattr(found, "DEAR", 1)
    given = [*seeds[:: max(1, dear * len(seeds) // fewer(12, 60))], b"", b"\0", b"\xff" * 50]
    made = inputs(seeds, found.WORDS, count=COUNT // dear, seed=7, max_length=found.MAX_LENGTH)
    for crowd in (*crowds(found, given), *crowds(found, list(made))):
        take(crowd)


@pytest.mark.extended
@pytest.mark.parametrize("name", FAMILIES)
def test_inputs_from_hypothesis(name: str) -> None:
    """Hypothesis shrinks what it finds."""
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


class Strange:
    """A family that rejects some inputs."""

    MAX_LENGTH = 10
    MEGABYTES = 10
    WORDS: Sequence[bytes] = ()
    TOGETHER = 4

    def __init__(self) -> None:
        self.given: list[tuple[bytes, ...]] = []

    def seeds(self) -> list[bytes]:
        return []

    def one_input(self, data: bytes) -> None:
        self.given.append((data,))
        assert data != b"bad"

    def many_inputs(self, given: Inputs) -> None:
        self.given.append(tuple(given))
        assert b"bad" not in given
        assert not {b"he", b"she"} <= set(given)


def test_inputs_that_are_given_together() -> None:
    found = Strange()
    all_of_them = [b"%d" % number for number in range(ALONE + 6)]
    for crowd in crowds(found, all_of_them):
        taker(found)(crowd)
    assert found.given == [*((data,) for data in all_of_them[:ALONE]), tuple(all_of_them[5:9]), tuple(all_of_them[9:])]
    lone = family("filters")
    assert [len(crowd) for crowd in crowds(lone, all_of_them)] == [1] * len(all_of_them)


@pytest.mark.parametrize(
    ("crowd", "kept"), [([b"a", b"bad", b"b"], b"bad"), ([b"he", b"she"], to_file([b"he", b"she"])), ([b"bad"], b"bad")]
)
def test_the_failing_input_of_several_is_found(tmp_path: Path, crowd: list[bytes], kept: bytes) -> None:
    found = Strange()
    with pytest.raises(AssertionError):
        taker(found)(crowd)
    with pytest.raises(SystemExit) as ended:
        _locate(tmp_path, found, crowd)
    assert ended.value.code == FOUND
    (path,) = (path for path in tmp_path.iterdir() if path.suffix != ".json")
    assert path.read_bytes() == kept
    assert path.name.startswith("crash-" if kept == b"bad" else "crowd-")
    assert from_file(to_file(crowd)) == crowd
    assert Tally.read(tmp_path).findings == 1


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.fuzz", *arguments, "--folder", str(folder)]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.extended
def test_the_command_imports_no_parser() -> None:
    """Else a guided run would not measure its coverage."""
    code = "import sys, tests.fuzz.__main__; print([name for name in sys.modules if name.startswith('kafkasniff')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).strip() == "[]"


@pytest.mark.extended
def test_runs_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run continues after the one before, up to the requested number."""
    for until in ("120", "150"):
        ended = command(tmp_path, "compression", "--until", until, "--unguided")
        assert ended.returncode == 0, ended.stdout
        assert "nothing found" in ended.stdout
        assert any((tmp_path / "compression" / "seeds").iterdir())
        assert Tally.read(tmp_path / "compression").unguided == int(until)
    options = ["compression", "--folder", str(tmp_path)]
    assert _planned(_options([*options, "--until", "150"]), ["compression"], quick=False, guided=False) == []
    (run,) = _planned(_options(options), ["compression"], quick=False, guided=False)
    assert run.executions == 1_000_000 - 150
    assert main([*options, "--tally"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("| `compression` | 0 | 150 | ")


def test_an_input_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"\2\xff\xff\xff\xff\xff\x0f")
    replay("compression", path)
    together = tmp_path / "crowd-of-two"
    together.write_bytes(to_file([path.read_bytes(), b""]))
    replay("compression", together)
