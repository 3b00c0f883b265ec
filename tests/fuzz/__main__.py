"""`python -m tests.fuzz`: fuzz families of parsers, each in a process of its own, and say how far it came."""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.fuzz.engine import COUNTED, INTERRUPTED, Run, has_atheris, replay, run
from tests.fuzz.families import FAMILIES

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "fuzz"
HAS_WHEELS: Final = sys.platform == "linux" and platform.machine() == "x86_64" and sys.version_info < (3, 15)
"""There are wheels of atheris; as in pyproject.toml."""
EXECUTIONS: Final = 1_000_000
QUICK_SECONDS: Final = 1
"""For each family in `quick`. Preparing a family takes several times as long."""


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("families", nargs="+", choices=(*FAMILIES, "all", "quick"), metavar="FAMILY", help="or all")
    parser.add_argument("--executions", type=int, default=0, help=f"inputs of each family, at most ({EXECUTIONS:,})")
    parser.add_argument("--seconds", type=int, default=0, help="seconds of each family, at most")
    parser.add_argument("--seed", type=int, default=1, help="other inputs than those of other seeds")
    parser.add_argument("--jobs", type=int, help="families at a time (default 1; quick: 2)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for corpora and findings (default build/fuzz)")
    parser.add_argument("--unguided", action="store_true", help="without a look at coverage: several times as fast")
    parser.add_argument("--input", type=Path, help="give this input to the family, nothing else")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _command(what: Run) -> list[str]:
    return [
        *(sys.executable, "-m", "tests.fuzz", what.name, "--child", "--executions", str(what.executions)),
        *("--seconds", str(what.seconds), "--seed", str(what.seed), "--folder", str(what.folder)),
        *(() if what.guided else ("--unguided",)),
    ]


class _Runs:
    """The processes of a run, which end when this one is asked to."""

    def __init__(self) -> None:
        self._children: set[subprocess.Popen[bytes]] = set()
        self._guard = threading.RLock()
        self.ended = False

    def end(self, *_signal: object) -> None:
        """Have them say how far they came; no other family is begun."""
        with self._guard:
            self.ended = True
            for child in self._children:
                child.terminate()

    def family(self, what: Run) -> bool:
        """Run a family in a process of its own, with its output in a file; whether it found nothing."""
        what.folder.mkdir(parents=True, exist_ok=True)
        log = what.folder / "log"
        begin = time.monotonic()
        with log.open("wb") as stream:
            with self._guard:
                if self.ended:
                    return True
                child = subprocess.Popen(_command(what), stdout=stream, stderr=stream, cwd=ROOT)
                self._children.add(child)
            code = child.wait()
            with self._guard:
                self._children.discard(child)
        said = log.read_text(errors="replace")
        counted = re.findall(rf"{re.escape(COUNTED)}\s*(\d+)", said)
        found = code not in (0, INTERRUPTED, -signal.SIGTERM) if self.ended else code != 0
        executions = f"{int(counted[-1]):>12,} inputs" if counted else "      ? inputs"
        result = f"ended with {code}, see {log}" if found else "nothing found"
        print(f"{what.name:<12}{executions}{time.monotonic() - begin:>8.0f} s   {result}", flush=True)
        if found:
            print("\n".join(said.splitlines()[-25:]), flush=True)
        return not found


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; 1 where something was found."""
    options = _options(arguments)
    quick = "quick" in options.families
    whole = quick or "all" in options.families
    names = FAMILIES if whole else tuple(options.families)
    if options.input is not None:
        for name in names:
            replay(name, options.input)
        return 0
    guided = has_atheris() and not options.unguided
    seconds = options.seconds or (QUICK_SECONDS if quick else 0)
    executions = options.executions or (0 if seconds else EXECUTIONS)
    if options.child:
        (name,) = names
        run(Run(name, executions, seconds, options.seed, options.folder, guided))
    if not (guided or options.unguided):
        if os.environ.get("KAFKASNIFF_REQUIRE_ALL") and HAS_WHEELS:
            print("atheris is not installed, and KAFKASNIFF_REQUIRE_ALL is set", file=sys.stderr)
            return 1
        print("atheris is not installed: inputs are made without a look at coverage (pip install -e '.[fuzz]')")
    runs = _Runs()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, runs.end)
    planned = [Run(name, executions, seconds, options.seed, options.folder / name, guided) for name in names]
    # Half of a quick run passes while the families begin. The last family takes the longest, so it begins first.
    with ThreadPoolExecutor(options.jobs or (2 if quick else 1)) as pool:
        results = list(pool.map(runs.family, planned[::-1] if quick else planned))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
