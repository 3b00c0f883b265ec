"""Write a baseline with one build, compare another build with it.

    python -m tests.baseline write BASELINE [--python PYTHON] [--keep]
    python -m tests.baseline compare BASELINE [--python PYTHON] [--keep]

BASELINE is a folder: inputs (captures and 300 disturbed variants) and hashes of text, `-v`, JSON, CSV, the rows of all
tables, `check`, `stats`, `timing`, `security` and `audit`, for three sizes of batches. PYTHON is the interpreter of the
environment that has the build. With `--keep` the outputs are kept, too, and a comparison prints the first lines that
differ. Differences that are intended have a line in `tests/baseline/differences.txt`: input, output (both may be
patterns), and the reason. Exit code 1: something else differs.

Outputs that depend on the size of batches are differences in themselves: all sizes must have the same hash.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.baseline.inputs import VARIANTS, make_inputs

WORKER = Path(__file__).with_name("worker.py")
INTENDED = Path(__file__).with_name("differences.txt")
OUTPUTS = ("text", "verbose", "json", "csv", "tables", "check", "stats", "timing", "security", "audit")
CHUNKS = (700, 20_000, 4 << 20)
"""Bytes of a capture that become one batch: about a packet, a few, and all."""

Key = tuple[str, str, int]


def hashes(folder: Path, tasks: list[dict[str, Any]], options: argparse.Namespace, kept: Path | None) -> dict[Key, str]:
    """The hash of each task's output, by some processes side by side."""
    shares = [tasks[number :: options.jobs] for number in range(options.jobs)]
    if kept is not None:
        kept.mkdir(exist_ok=True)

    def work(share: list[dict[str, Any]]) -> list[dict[str, Any]]:
        command = [str(options.python), "-P", str(WORKER), *([str(kept)] if kept is not None else [])]
        lines = "".join(json.dumps(task) + "\n" for task in share)
        done = subprocess.run(command, cwd=folder / "inputs", input=lines, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the worker failed:\n{done.stderr[-3000:]}")
        first, *answers = map(json.loads, done.stdout.splitlines())
        print(f"{len(answers)} outputs of {first['kafkasniff']}", file=sys.stderr)
        return answers

    with ThreadPoolExecutor(options.jobs) as pool:
        answers = [answer for share in pool.map(work, shares) for answer in share]
    return {(answer["input"], answer["output"], answer["chunk"]): answer["hash"] for answer in answers}


def tasks_for(names: Iterable[str], outputs: Iterable[str]) -> list[dict[str, Any]]:
    """A task for each input, output and size of batches."""
    wanted = list(outputs)
    return [
        {"input": name, "output": output, "chunk": chunk} for name in names for output in wanted for chunk in CHUNKS
    ]


def uneven(found: dict[Key, str]) -> list[tuple[str, str]]:
    """Inputs and outputs whose hashes depend on the size of batches."""
    by_output: dict[tuple[str, str], set[str]] = {}
    for (name, output, _), value in found.items():
        by_output.setdefault((name, output), set()).add(value)
    return sorted(key for key, values in by_output.items() if len(values) > 1)


def write(options: argparse.Namespace) -> int:
    """Make the inputs, and write the hashes of one build."""
    folder = options.folder
    names = _chosen(make_inputs(folder / "inputs", options.variants), options)
    kept = folder / "outputs" if options.keep else None
    found = hashes(folder, tasks_for(names, options.only or OUTPUTS), options, kept)
    rows = [[*key, value] for key, value in sorted(found.items())]
    (folder / "hashes.json").write_text(json.dumps(rows, indent=0))
    for name, output in uneven(found):
        print(f"depends on batches: {name} {output}")
    print(f"{len(found)} outputs of {len(names)} inputs in {folder}")
    return 0


def intended() -> list[tuple[str, str, str]]:
    """Patterns of inputs and outputs that may differ, with the reasons."""
    lines = [line for line in INTENDED.read_text().splitlines() if line and not line.startswith("#")]
    return [(name, output, reason) for name, output, reason in (line.split(maxsplit=2) for line in lines)]


def compare(options: argparse.Namespace) -> int:
    """Print what differs from the baseline and is not intended."""
    folder = options.folder
    before = {
        (name, output, chunk): value for name, output, chunk, value in json.loads((folder / "hashes.json").read_text())
    }
    wanted = {output for _, output, _ in before} & set(options.only or OUTPUTS)
    names = _chosen(dict.fromkeys(name for name, _, _ in before), options)
    kept = folder / "compared" if options.keep else None
    now = hashes(folder, tasks_for(names, [output for output in OUTPUTS if output in wanted]), options, kept)
    differing = sorted(key for key, value in now.items() if before[key] != value)
    patterns = intended()
    used: Counter[str] = Counter()
    unintended = []
    for key in differing:
        reason = next((reason for name, output, reason in patterns if _matches(key, name, output)), None)
        if reason is None:
            unintended.append(key)
        else:
            used[reason] += 1
    for key in unintended:
        print("differs:", *key)
        for line in first_difference(folder, key) if options.keep else ():
            print("   ", line)
    for name, output in uneven(now):
        print(f"depends on batches: {name} {output}")
    for reason, count in used.items():
        print(f"intended, {count} outputs: {reason}")
    for _, _, reason in patterns:
        if reason not in used:
            print(f"no output differs for the reason: {reason}")
    print(f"{len(now)} outputs compared, {len(unintended)} differ and are not intended")
    return 1 if unintended or uneven(now) else 0


def _chosen(names: Iterable[str], options: argparse.Namespace) -> list[str]:
    patterns = options.inputs or ["*"]
    return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def _matches(key: Key, name: str, output: str) -> bool:
    return fnmatch.fnmatch(key[0], name) and fnmatch.fnmatch(key[1], output)


def first_difference(folder: Path, key: Key) -> Iterator[str]:
    """The first lines that differ, shortened."""
    file = ".".join(map(str, key))
    one, other = ((folder / name / file) for name in ("outputs", "compared"))
    if not one.exists():
        return
    pairs = zip_longest(*(path.read_text(errors="replace").splitlines() for path in (one, other)))
    for number, (old, new) in enumerate(pairs, 1):
        if old != new:
            yield f"line {number}, before: {(old or '')[:600]}"
            yield f"line {number}, now:    {(new or '')[:600]}"
            return


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.baseline", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("command", choices=["write", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--keep", action="store_true", help="keep outputs (some GB), and show what differs")
    parser.add_argument("--only", action="append", choices=OUTPUTS, help="only this output (repeatable)")
    parser.add_argument("--inputs", action="append", metavar="PATTERN", help="only inputs of this name (repeatable)")
    parser.add_argument("--variants", type=int, default=VARIANTS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    return write(options) if options.command == "write" else compare(options)


if __name__ == "__main__":
    sys.exit(main())
