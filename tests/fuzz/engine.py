"""Runs one family in this process: guided by coverage with atheris, or with the mutator of `mutate`. Its folder has
`seeds/` of this run, `corpus/` of all runs, and `crash-…` for each input that broke a promise."""

from __future__ import annotations

import hashlib
import importlib.util
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from tests.fuzz.families import Family, family
from tests.fuzz.mutate import inputs
from tests.fuzz.watch import watched

FOUND: Final = 77
"""Exit code after an input that broke a promise, same as libFuzzer's."""
INTERRUPTED: Final = 72
"""libFuzzer's exit code when it was asked to end."""
COUNTED: Final = "stat::number_of_executed_units:"
"""The text before the number of inputs in the output."""
ADDRESS_SPACE: Final = 6 << 30
"""Address space of a run in bytes: a larger request gets a MemoryError, which is a finding."""


class Run(NamedTuple):
    name: str
    executions: int
    """Inputs; 0: as many as the time allows."""
    seconds: int
    """Seconds; 0: as long as the inputs take."""
    seed: int
    folder: Path
    guided: bool
    """By coverage."""


def has_atheris() -> bool:
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
    """Give the input of a file to a family's parsers; raises their exceptions."""
    found = family(name)
    watched(found.one_input, found.MEGABYTES)(path.read_bytes())


def _seeded(found: Family, folder: Path) -> list[bytes]:
    """The seeds, written down and given to the parsers once, so that imports and first uses are done."""
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
    traceback.print_exc()
    path = folder / f"crash-{hashlib.sha1(data).hexdigest()}"
    path.write_bytes(data)
    print(f"the input is in {path}", file=sys.stderr, flush=True)
    sys.exit(FOUND)


def _guided(what: Run) -> NoReturn:
    early = sorted(name for name in sys.modules if name.partition(".")[0] == "kafkasniff")
    if early:
        raise RuntimeError(f"imported before atheris can measure their coverage: {', '.join(early)}")
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with atheris.instrument_imports(include=["kafkasniff"]):
        found = family(what.name)
        # Imported inside, since much is imported on first use only.
        _seeded(found, what.folder)
    words = what.folder / "words"
    words.write_text("".join(f'"{_quoted(word)}"\n' for word in found.WORDS))
    arguments = [
        *(sys.argv[0], f"-runs={what.executions or -1}", f"-max_total_time={what.seconds}"),
        # libFuzzer accepts 32 bits, and takes 0 for the time of day.
        f"-seed={1 + what.seed % (1 << 31)}",
        *(f"-max_len={found.MAX_LENGTH}", f"-dict={words}", f"-artifact_prefix={what.folder}/"),
        # Watched by us, more exactly and by CPU time.
        *("-timeout=600", "-rss_limit_mb=0", "-print_final_stats=1", "-verbosity=1"),
        *(str(what.folder / "corpus"), str(what.folder / "seeds")),
    ]
    atheris.Setup(arguments, watched(found.one_input, found.MEGABYTES))
    atheris.Fuzz()
    sys.exit(0)


def _quoted(word: bytes) -> str:
    """A word in the syntax of libFuzzer's dictionaries."""
    return "".join(f"\\x{byte:02x}" for byte in word)


def _unguided(what: Run) -> NoReturn:
    begin = time.monotonic()
    ended = False

    def end(_signal: int, _frame: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    found = family(what.name)
    # Inputs that added coverage in other runs are worth changing here, too.
    seeds = [*_seeded(found, what.folder), *(path.read_bytes() for path in sorted((what.folder / "corpus").iterdir()))]
    take = watched(found.one_input, found.MEGABYTES)
    count = 0
    for data in inputs(seeds, found.WORDS, seed=what.seed, max_length=found.MAX_LENGTH):
        over = what.seconds and time.monotonic() - begin >= what.seconds
        if ended or over or (what.executions and count >= what.executions):
            break
        try:
            take(data)
        except Exception:
            _keep(what.folder, data)
        count += 1
    print(COUNTED, count, file=sys.stderr, flush=True)
    sys.exit(0)
