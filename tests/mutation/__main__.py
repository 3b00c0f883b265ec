"""Plant faults in copies of a checkout, and see which of them its tests find.

    python -m tests.mutation record MAP                 which test files run which lines (default tier, with coverage)
    python -m tests.mutation run RESULTS --map MAP      plant 300 faults, one at a time, and run the tests for each
    python -m tests.mutation run RESULTS --room tls --tests tests/tls
    python -m tests.mutation run RESULTS --only-survivors-of OTHER --tree CHECKOUT --python PYTHON
    python -m tests.mutation show RESULTS

Each fault first meets the tests that are nearest to it (those that run its line, the module's own first), for at most
`--budget` seconds by the map. Faults that these do not find are then planted in groups, and the whole suite runs on
each group; tests that fail there run once more for each fault alone. RESULTS has a line of JSON for each fault, and is
continued where a run was interrupted.
"""

from __future__ import annotations

import argparse
import ast
import base64
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from tests.mutation.faults import Fault, chosen
from tests.mutation.trees import Run, Tree, this_python

ROOT = Path(__file__).resolve().parent.parent.parent
NEAR_SECONDS = 240
"""Longest run of the tests near one fault; a fault that makes them last longer is found."""
WHOLE_SECONDS = 3600
MOST_FAILED = 400
RETRIED = 25
"""Tests that failed for a group and run once more for each of its faults."""


class Map:
    """Which test files run which lines; without a recording, the folders of tests that mirror the rooms."""

    def __init__(self, path: Path | None) -> None:
        found = json.loads(path.read_text()) if path is not None else {"lines": {}, "seconds": {}}
        self.lines: dict[str, dict[str, list[str]]] = found["lines"]
        self.seconds: dict[str, float] = found["seconds"]
        self.recorded = path is not None

    def near(self, tree: Path, fault: Fault, budget: float) -> list[str]:
        """Test files that run a fault's line, the likeliest and quickest first, within a budget of seconds."""
        if not self.recorded:
            folder = f"tests/{fault.room if fault.path.endswith('.py') else 'native'}"
            return [name for name in (folder, "tests/test_golden.py") if (tree / name).exists()]
        parts = fault.path.removesuffix(".py").split("/")[1:]

        def rank(name: str) -> tuple[int, float]:
            own = name.removesuffix(".py").replace("/test_", "/").split("/")[1:]
            shared = sum(one == other for one, other in zip(own, parts, strict=False))
            return (-(10 if own == parts else shared), self.seconds.get(name, 0))

        spent, chosen_files = 0.0, []
        for name in sorted(self._covering(tree, fault), key=rank):
            spent += self.seconds.get(name, 0)
            if chosen_files and spent > budget:
                break
            chosen_files.append(name)
        return chosen_files

    def _covering(self, tree: Path, fault: Fault) -> set[str]:
        if fault.path.endswith(".zig"):
            names = {name for file, lines in self.lines.items() if file.startswith("kafkasniff/native/")
                     for found in lines.values() for name in found}  # fmt: skip
            return {name for name in names if name.startswith(("tests/native/", "tests/test_golden", "tests/sinks/"))}
        first, last = _statement_of(tree / fault.path, fault.line)
        lines = self.lines.get(fault.path, {})
        return {name for line in range(first, last + 1) for name in lines.get(str(line), ())}


def _statement_of(path: Path, line: int) -> tuple[int, int]:
    """First and last line of the innermost statement; of compound ones, of their heads."""
    found = (line, line)
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if line <= max(last, node.lineno) and node.lineno >= found[0] - 200:
                found = (node.lineno, max(last, node.lineno))
    return found


class Results:
    """Verdicts, one line of JSON each, written as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            self.rows = [json.loads(line) for line in path.read_text().splitlines()]

    def add(self, fault: Fault, verdict: str, by: Sequence[str], stage: str, seconds: float) -> None:
        row = {"fault": _dumped(fault), "name": fault.name, "verdict": verdict, "by": list(by)[:3], "stage": stage,
               "seconds": round(seconds, 1)}  # fmt: skip
        with self.lock:
            self.rows.append(row)
            with self.path.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            print(f"{len(self.rows):4} {verdict:9} {fault.name[:110]}  {' '.join(row['by'][:1])}", flush=True)

    def of(self, fault: Fault) -> dict[str, Any] | None:
        """The last verdict on a fault."""
        dumped = _dumped(fault)
        return next((row for row in reversed(self.rows) if row["fault"] == dumped), None)


def _dumped(fault: Fault) -> dict[str, Any]:
    return {"path": fault.path, "offset": fault.offset, "line": fault.line,
            "old": base64.b64encode(fault.old).decode(), "new": base64.b64encode(fault.new).decode()}  # fmt: skip


def _loaded(row: dict[str, Any]) -> Fault:
    return Fault(row["path"], row["offset"], base64.b64decode(row["old"]), base64.b64decode(row["new"]), row["line"])


def _verdict(run: Run) -> str:
    return "found" if run.found else "survived"


def _by(run: Run) -> Sequence[str]:
    return run.failed or ([] if not run.found else ["time ran out" if run.code is None else f"exit code {run.code}"])


def run(options: argparse.Namespace) -> None:
    """Both stages."""
    results = Results(options.results)
    if options.only_survivors_of is not None:
        faults = [
            _loaded(row["fault"])
            for row in _last(Results(options.only_survivors_of).rows)
            if row["verdict"] == "survived"
        ]
    else:
        faults = chosen(options.tree, options.count, options.seed, options.room)
    coverage_map = Map(options.map)
    with tempfile.TemporaryDirectory(prefix="kafkasniff-mutation-") as name:
        trees: Queue[Tree] = Queue()
        for number in range(options.jobs):
            trees.put(Tree(options.tree, Path(name) / str(number), options.python))

        def near(fault: Fault) -> None:
            if results.of(fault) is not None:
                return
            tree = trees.get()
            begin = time.monotonic()
            try:
                files = options.tests or coverage_map.near(tree.folder, fault, options.budget)
                with tree.with_faults([fault]) as compiled:
                    if not compiled:
                        results.add(fault, "invalid", (), "near", time.monotonic() - begin)
                    elif not files:
                        results.add(fault, "survived", (), "not run", 0)
                    else:
                        done = tree.tests(files, "-x", seconds=NEAR_SECONDS)
                        results.add(fault, _verdict(done), _by(done), "near", time.monotonic() - begin)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(near, faults))
        if options.whole:
            left = [
                fault
                for fault in faults
                if (row := results.of(fault)) and row["verdict"] == "survived" and row["stage"] != "whole"
            ]
            _in_groups(left, trees.get(), results, options)
    show(results.rows)


def _in_groups(faults: Sequence[Fault], tree: Tree, results: Results, options: argparse.Namespace) -> None:
    """The whole suite on groups of faults, then its failures on each fault alone."""
    environment = {"KAFKASNIFF_ALL": "1"} if options.all else {}
    ignored = _failures(tree, (), environment, options)
    for number in range(0, len(faults), options.group):
        group = faults[number : number + options.group]
        failed = [name for name in _failures(tree, group, environment, options) if name not in ignored]
        for fault in group:
            begin = time.monotonic()
            with tree.with_faults([fault]):
                done = tree.tests(failed[:RETRIED], seconds=NEAR_SECONDS, environment=environment) if failed else None
            by = _by(done) if done is not None else ()
            verdict = _verdict(done) if done is not None else "survived"
            results.add(fault, verdict, by, "whole", time.monotonic() - begin)


def _failures(
    tree: Tree, group: Sequence[Fault], environment: dict[str, str], options: argparse.Namespace
) -> list[str]:
    with tree.with_faults(group):
        done = tree.tests(
            ["tests"], *_workers(options), f"--maxfail={MOST_FAILED}", seconds=WHOLE_SECONDS, environment=environment
        )
    # One of each test function: its other cases would fail for the same fault.
    by_function = {name.partition("[")[0]: name for name in done.failed}
    print(f"{len(group)} faults at once: {len(done.failed)} tests failed (exit code {done.code})", flush=True)
    return list(by_function.values())


def _workers(options: argparse.Namespace) -> tuple[str, ...]:
    return ("-n", str(options.jobs), "--dist", "loadgroup", "--no-loadscope-reorder")


def record(options: argparse.Namespace) -> None:
    """Run the default tier with coverage, and write which files run which lines."""
    with tempfile.TemporaryDirectory(prefix="kafkasniff-mutation-") as name:
        tree = Tree(options.tree, Path(name) / "tree", options.python)
        folder = Path(name) / "recorded"
        done = tree.tests(
            ["tests"], *_workers(options), "-p", "tests.mutation.recording",
            seconds=WHOLE_SECONDS, environment={"KAFKASNIFF_MUTATION_RECORD": str(folder)},
        )  # fmt: skip
        print(done.output[-2000:])
        lines: dict[str, dict[str, set[str]]] = {}
        seconds: Counter[str] = Counter()
        for path in folder.iterdir():
            found = json.loads(path.read_text())
            seconds.update(found["seconds"])
            for file, by_line in found["lines"].items():
                for line, names in by_line.items():
                    lines.setdefault(file, {}).setdefault(line, set()).update(names)
        merged = {file: {line: sorted(names) for line, names in by_line.items()} for file, by_line in lines.items()}
        options.map.write_text(json.dumps({"lines": merged, "seconds": seconds}))


def _last(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The last row of each fault."""
    yield from {json.dumps(row["fault"]): row for row in rows}.values()


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Figures by room, and the faults that nothing found."""
    last = list(_last(rows))
    rooms: dict[str, Counter[str]] = {}
    for row in last:
        rooms.setdefault(_loaded(row["fault"]).room, Counter())[row["verdict"]] += 1
    for room, counts in sorted(rooms.items()):
        print(f"{room:12} {counts['found']:4} found {counts['survived']:4} survived {counts['invalid']:4} invalid")
    total = Counter(row["verdict"] for row in last)
    print(f"{'all':12} {total['found']:4} found {total['survived']:4} survived {total['invalid']:4} invalid")
    for row in last:
        if row["verdict"] == "survived":
            print(f"survived ({row['stage']}): {row['name']}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose tests run (this one)")
    parser.add_argument("--python", type=Path, default=this_python(), help="the interpreter that has its packages")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("map", type=Path)
    one = commands.add_parser("run")
    one.add_argument("results", type=Path)
    one.add_argument("--map", type=Path)
    one.add_argument("--count", type=int, default=300)
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--room", action="append", default=[], help="plant only in this room (repeatable)")
    one.add_argument("--tests", action="append", default=[], help="run these for every fault, whatever they cover")
    one.add_argument("--budget", type=float, default=45, help="seconds of tests near each fault")
    one.add_argument("--whole", action="store_true", help="then the whole suite on what is left, in groups")
    one.add_argument("--group", type=int, default=8)
    one.add_argument("--all", action="store_true", help="with KAFKASNIFF_ALL=1")
    one.add_argument("--only-survivors-of", type=Path)
    one = commands.add_parser("show")
    one.add_argument("results", type=Path)
    options = parser.parse_args()
    if options.command == "record":
        record(options)
    elif options.command == "run":
        run(options)
    else:
        show(Results(options.results).rows)


if __name__ == "__main__":
    main()
