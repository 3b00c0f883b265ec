"""Runs one family in this process: guided by coverage with atheris, or with the mutator of `mutate`.

The inputs of a run are in a folder: `seeds/` (made again by each run), `corpus/` (inputs that added coverage, kept
between runs), `crash-…` for each input that broke a promise, and `crowd-…` for inputs that only did so together.
`tally.json` next to them adds up the runs.
"""

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

from tests.fuzz.crowd import Inputs, crowds, from_file, size_of, taker, to_file
from tests.fuzz.families import Family, family
from tests.fuzz.mutate import inputs
from tests.fuzz.tally import Tally
from tests.fuzz.watch import watched

__all__ = ["COUNTED", "FOUND", "INTERRUPTED", "Run", "has_atheris", "replay", "run"]

FOUND: Final = 77
"""Exit code after an input that broke a promise, same as libFuzzer's."""

INTERRUPTED: Final = 72
"""libFuzzer's exit code when it was asked to end."""

COUNTED: Final = "stat::number_of_executed_units:"
"""The text before the number of inputs in the output."""

ADDRESS_SPACE: Final = 6 << 30
"""Address space of a run in bytes: a larger request gets a MemoryError, which is a finding."""

_CHUNK: Final = 500
"""Inputs between two looks at the clock, and between two writes of the tally."""

_CROWD: Final = "crowd-"
"""Prefix of the names of files that hold several inputs."""


class Run(NamedTuple):
    """The options of a run."""

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
    """Give the inputs of a file to a family's parsers; raises their exceptions."""
    found = family(name)
    content = path.read_bytes()
    given = from_file(content) if path.name.startswith(_CROWD) else [content]
    watched(taker(found), found.MEGABYTES, size_of)(given)


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
            _keep(folder, [data])
    return seeds


def _keep(folder: Path, given: Inputs) -> NoReturn:
    """Save inputs that broke a promise, and exit."""
    traceback.print_exc()
    content = given[0] if len(given) == 1 else to_file(given)
    path = folder / f"{'crash-' if len(given) == 1 else _CROWD}{hashlib.sha1(content).hexdigest()}"
    path.write_bytes(content)
    print(f"the input is in {path}", file=sys.stderr, flush=True)
    tally = Tally.read(folder)
    tally.findings += 1
    tally.write(folder)
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
        sys.argv[0],
        f"-runs={what.executions or -1}",
        f"-max_total_time={what.seconds}",
        # libFuzzer accepts 32 bits, and takes 0 for the time of day.
        f"-seed={1 + (what.seed + Tally.read(what.folder).guided) % (1 << 31)}",
        f"-max_len={found.MAX_LENGTH}",
        f"-dict={words}",
        f"-artifact_prefix={what.folder}/",
        # Watched by us, more exactly and by CPU time.
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
    seeds = _seeded(found, what.folder)
    # Inputs that added coverage in other runs are worth changing here, too.
    seeds += [path.read_bytes() for path in sorted((what.folder / "corpus").iterdir())]
    take = watched(taker(found), found.MEGABYTES, size_of)
    tally = Tally.read(what.folder)
    had, had_seconds = tally.unguided, tally.unguided_seconds
    count = 0
    while (
        not ended
        and (count < what.executions or not what.executions)
        and (time.monotonic() - begin < what.seconds or not what.seconds)
    ):
        size = min(_CHUNK, what.executions - count) if what.executions else _CHUNK
        # Continue where the earlier runs ended: no two chunks are made with the same numbers.
        seed = f"{what.seed}-{had + count}"
        for given in crowds(
            found, list(inputs(seeds, found.WORDS, count=size, seed=seed, max_length=found.MAX_LENGTH))
        ):
            if ended:
                break
            try:
                take(given)
            except Exception:
                _locate(what.folder, found, given)
            count += len(given)
        tally.unguided, tally.unguided_seconds = had + count, had_seconds + time.process_time()
        tally.write(what.folder)
    print(COUNTED, count, file=sys.stderr, flush=True)
    sys.exit(0)


def _locate(folder: Path, found: Family, given: Inputs) -> NoReturn:
    """Save the input that breaks a promise, or all if only all do; called within the exception's handler."""
    one_input = watched(found.one_input, found.MEGABYTES)
    for data in given if len(given) > 1 else ():
        try:
            one_input(data)
        except Exception:
            _keep(folder, [data])
    _keep(folder, given)
