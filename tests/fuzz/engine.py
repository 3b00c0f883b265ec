"""Runs one family in this process: guided by coverage with atheris, or with the mutator of `mutate`.

The inputs that a run keeps stand in a folder: `seeds/` (made anew by each run), `corpus/` (what coverage found worth
keeping, carried from run to run), and `crash-…` for each input that broke a promise.
"""

from __future__ import annotations

import hashlib
import importlib.util
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from tests.fuzz.families import Family, family
from tests.fuzz.mutate import inputs
from tests.fuzz.watch import watched

__all__ = ["COUNTED", "FOUND", "Run", "has_atheris", "replay", "run"]

FOUND: Final = 77
"""Exit code after an input that broke a promise, as libFuzzer's."""

COUNTED: Final = "stat::number_of_executed_units:"
"""What stands in front of the number of inputs in the output."""

ADDRESS_SPACE: Final = 6 << 30
"""Bytes of address space of a run: what asks for more at once gets a MemoryError, which is a finding."""

_CHUNK: Final = 500
"""Inputs between two looks at the clock."""


class Run(NamedTuple):
    """What a run is to do."""

    name: str
    executions: int
    """Inputs; 0: as many as the seconds allow."""
    seconds: int
    """Seconds; 0: as many as the inputs take."""
    seed: int
    folder: Path
    guided: bool
    """By coverage."""


def has_atheris() -> bool:
    """Whether runs are guided by coverage."""
    return importlib.util.find_spec("atheris") is not None


def run(what: Run) -> NoReturn:
    """Run a family; exits with 0, or with FOUND."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))
    for place in ("seeds", "corpus"):
        (what.folder / place).mkdir(parents=True, exist_ok=True)
    if what.guided:
        _guided(what)
    _unguided(what)


def replay(name: str, path: Path) -> None:
    """Give one input to a family's parsers; raises what they raise."""
    found = family(name)
    watched(found.one_input, found.MEGABYTES)(path.read_bytes())


def _seeded(found: Family, folder: Path) -> list[bytes]:
    """The seeds, written down, and given to the parsers once: what they import and make on first use is there then."""
    for old in (folder / "seeds").iterdir():
        old.unlink()
    seeds = found.seeds()
    for data in seeds:
        (folder / "seeds" / hashlib.sha1(data).hexdigest()).write_bytes(data)
        try:
            found.one_input(data)
        except Exception:
            _keep(folder, data)
    return seeds


def _keep(folder: Path, data: bytes) -> NoReturn:
    """Write down an input that broke a promise, and end."""
    traceback.print_exc()
    path = folder / f"crash-{hashlib.sha1(data).hexdigest()}"
    path.write_bytes(data)
    print(f"the input is in {path}", file=sys.stderr, flush=True)
    sys.exit(FOUND)


def _guided(what: Run) -> NoReturn:
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with atheris.instrument_imports(include=["kafkasniff"]):
        found = family(what.name)
        # Within, since much is imported on first use only.
        _seeded(found, what.folder)
    words = what.folder / "words"
    words.write_text("".join(f'"{_quoted(word)}"\n' for word in found.WORDS))
    arguments = [
        sys.argv[0],
        f"-runs={what.executions or -1}",
        f"-max_total_time={what.seconds}",
        f"-seed={what.seed}",
        f"-max_len={found.MAX_LENGTH}",
        f"-dict={words}",
        f"-artifact_prefix={what.folder}/",
        # Watched here, more exactly and by CPU time.
        "-timeout=600",
        "-rss_limit_mb=0",
        "-print_final_stats=1",
        "-verbosity=1",
        str(what.folder / "corpus"),
        str(what.folder / "seeds"),
    ]
    atheris.Setup(arguments, watched(found.one_input, found.MEGABYTES))
    atheris.Fuzz()
    sys.exit(0)


def _quoted(word: bytes) -> str:
    """A word as libFuzzer's dictionaries have it."""
    return "".join(f"\\x{byte:02x}" for byte in word)


def _unguided(what: Run) -> NoReturn:
    found = family(what.name)
    seeds = _seeded(found, what.folder)
    # What coverage found worth keeping in other runs is worth changing here, too.
    seeds += [path.read_bytes() for path in sorted((what.folder / "corpus").iterdir())]
    one_input = watched(found.one_input, found.MEGABYTES)
    begin = time.monotonic()
    count = 0
    while (count < what.executions or not what.executions) and (
        time.monotonic() - begin < what.seconds or not what.seconds
    ):
        size = min(_CHUNK, what.executions - count) if what.executions else _CHUNK
        for data in inputs(seeds, found.WORDS, count=size, seed=what.seed + count, max_length=found.MAX_LENGTH):
            count += 1
            try:
                one_input(data)
            except Exception:
                _keep(what.folder, data)
    print(COUNTED, count, file=sys.stderr, flush=True)
    sys.exit(0)
