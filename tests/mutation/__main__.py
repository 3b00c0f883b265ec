"""Plant faults in a copy of a checkout, all at once, each with a switch, and see which its tests find, in forks.
RESULTS has a line of JSON for each fault, RESULTS.recording for each test; interrupted runs are continued."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutation.faults import Fault, chosen, same_fault
from tests.mutation.trees import Tree

ROOT = Path(__file__).resolve().parent.parent.parent
VERDICTS = ("default", "whole", "nothing", "not default", "not run", "gone")
""""not default": the whole suite has not run yet."""
COMMANDS = {
    "run": "plant 300 faults, and run the default tests that reach them",
    "whole": "run all other tests for the faults that these do not find",
    "again": "the same faults in this checkout, known finders first: RESULTS NEW",
    "show": "figures of a run",
}


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The last row of each fault."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [*{row["number"]: row for row in rows}.values()]


def fault_of(row: dict[str, Any]) -> Fault:
    return Fault(**row["fault"])


def fresh(fault: Fault) -> dict[str, Any]:
    """The values of a row that say that a fault is to be planted."""
    return {"verdict": "not run", "name": fault.name, "fault": asdict(fault)}


def moved(row: dict[str, Any]) -> dict[str, Any]:
    """The row of the same fault in this checkout."""
    fault = same_fault(ROOT, fault_of(row))
    return {**row, "verdict": "gone"} if fault is None else {**row, **fresh(fault)}


def note(results: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows; the last one of a fault counts."""
    with results.open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def serve(tree: Tree, rows: Sequence[dict[str, Any]], results: Path, tests: Sequence[str], *, whole: bool) -> None:
    """Run tests for planted faults, and add rows to the results."""
    folder = tree.folder.parent
    recording = results.with_name(f"{results.name}.recording")
    plan = {"rows": rows, "whole": whole, "results": str(results.absolute()), "recording": str(recording.absolute())}
    (folder / "plan").write_text(json.dumps(plan))
    (folder / "on").write_text("")
    arguments = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.mutation.server", f"--basetemp={folder}/t"]
    environment = {**os.environ, "PYTHONPATH": str(tree.folder), "CI": "true", "KAFKASNIFF_MUTATION": f"{folder}/plan"}
    if whole:
        known = folder / "known"
        recorded = [json.loads(line) for line in recording.read_text().splitlines()]
        known.write_text("".join(f"{row['name']}\n" for row in recorded if row["passed"]))
        arguments += ["--beyond", str(known)]
        environment["KAFKASNIFF_ALL"] = "1"
    subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *(tests or ["tests"])],
        cwd=tree.folder, env=environment, stdin=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Figures by room, and the faults that the default tests do not find."""
    rooms: dict[str, Counter[str]] = {}
    for row in rows:
        for room in (fault_of(row).room, "all"):
            rooms.setdefault(room, Counter())[row["verdict"]] += 1
    print(f"{'room':12}", "planted", *VERDICTS)
    for room, counts in sorted(rooms.items(), key=lambda one: (one[0] == "all", one[0])):
        print(f"{room:12} {counts.total():7}", *(f"{counts[verdict]:{len(verdict)}}" for verdict in VERDICTS))
    for row in rows:
        if row["verdict"] != "default":
            print(f"{row['verdict']}: {row['name']} {' '.join(row['by'])}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in COMMANDS.items():
        one = commands.add_parser(name, help=text)
        one.add_argument("results", type=Path)
        if name == "run":
            one.add_argument("--count", type=int, default=300)
            one.add_argument("--seed", type=int, default=1)
            one.add_argument("--room", action="append", default=[], help="plant only in this room (repeatable)")
        if name == "again":
            one.add_argument("new", type=Path)
        if name != "show":
            one.add_argument("--tests", nargs="+", help="only these files and folders")
    options = parser.parse_args()
    results: Path = options.results
    before = rows_of(results)
    if options.command == "show":
        show(before)
        return
    with tempfile.TemporaryDirectory(prefix="ksm-") as name:
        tree = Tree(ROOT, Path(name), Path(sys.executable))
        if options.command == "run" and not before:
            faults = tree.fitting(chosen(ROOT, options.count, options.seed, options.room))
            note(results, [{"number": n, "by": [], "files": [], **fresh(fault)} for n, fault in faults.items()])
        if options.command == "again":
            results = options.new
            if not results.exists():
                note(results, [moved(row) for row in before])
        rows = [row for row in rows_of(results) if row["verdict"] != "gone"]
        faults = {row["number"]: found for row in rows if (found := same_fault(ROOT, fault_of(row)))}
        tree.plant(faults)
        whole = options.command == "whole"
        wanted = "not default" if whole else "not run"
        left = [row for row in rows if row["verdict"] == wanted and row["number"] in faults]
        serve(tree, left, results, options.tests, whole=whole)
    show(rows_of(results))


if __name__ == "__main__":
    main()
