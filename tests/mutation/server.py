"""pytest plugin (`-p tests.mutation.server`): collects once, then runs tests for one fault after the other, each in a
fork in which switches are on. The file that KAFKASNIFF_MUTATION names says what to do."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

NEAR_SECONDS = 5.0
"""CPU time of the tests that run for one fault alone, the nearest first; the rest run for many faults together."""
SILENT_SECONDS = 60
"""Without the end of a test; its usual time comes on top, ten times."""
CPU_SECONDS = 5
MEMORY = 6 << 30
OF_KERNEL = {"native", "engine"}
"""Rooms of which many tests compare the kernel with Python."""
RETRIED = 12
"""Tests that failed for many faults together, and run again for each of them."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    plan = json.loads(Path(os.environ["KAFKASNIFF_MUTATION"]).read_text())
    server = _Server(session.items, plan)
    # Otherwise each fork copies what the collector of garbage looks at.
    gc.freeze()
    server.serve()
    return True


class _Server:
    def __init__(self, items: Sequence[pytest.Item], plan: dict[str, Any]) -> None:
        self.switches = importlib.import_module("kafkasniff._planted")
        self.at_import = set(self.switches.REACHED)
        self.items = {item.nodeid: item for item in items}
        self.plan = plan
        self.folder = Path(self.switches.FOLDER)
        self.recorded: dict[str, dict[str, Any]] = {}

    def serve(self) -> None:
        left = {row["number"]: row for row in self.plan["rows"]}
        if self.plan["whole"]:
            self.together(left, self.items.values(), "whole")
            return
        for number, row in [*left.items()]:
            known = [self.items[name] for name in row["by"] if name in self.items]
            if known and self.alone(number, row, known):
                del left[number]
        rest: dict[str, pytest.Item] = {}
        for wave in self.waves(left.values()):
            self.record(wave)
            for number, row in [*left.items()]:
                near, far = self.near(row["fault"]["path"], [one for one in self.reaching(number) if one in wave])
                if self.alone(number, row, near):
                    del left[number]
                else:
                    rest.update((item.nodeid, item) for item in far)
        for number, row in [*left.items()]:
            if number in self.at_import and self.anew(number, row):
                del left[number]
        self.together(left, [item for name, item in self.items.items() if name in rest], "default")

    def waves(self, rows: Collection[dict[str, Any]]) -> Iterable[set[pytest.Item]]:
        """The tests of the mirrored rooms; all others, if these leave something.

        Where an earlier run knows which files reach the faults, only these.
        """
        names = {row["fault"]["path"].split("/")[1] for row in rows}
        rooms = tuple(f"tests/{name}/" for name in names | (OF_KERNEL if "kernel" in names else set()))
        if all(row["files"] for row in rows):
            files = (*rooms, *(file for row in rows for file in row["files"]))
            self.items = {name: item for name, item in self.items.items() if name.startswith(files)}
        own = {item for name, item in self.items.items() if name.startswith(rooms)}
        if rows:
            yield own
        if rows:
            yield {*self.items.values()} - own

    def record(self, items: Collection[pytest.Item]) -> None:
        """Which faults tests reach, how long they take, and which fail anyway."""
        path = Path(self.plan["recording"])
        lines = path.read_text().splitlines() if path.exists() else []
        known = {row["name"]: row for row in map(json.loads, lines)}
        new = (item for name, item in self.items.items() if name not in known and item in items)
        for group in _grouped(new, _folder):
            rows = self.noting(group, ())
            with path.open("a") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in rows)
            known.update((row["name"], row) for row in rows)
        self.recorded = {name: row for name, row in known.items() if name in self.items}
        gc.freeze()

    def reaching(self, number: int) -> list[pytest.Item]:
        return [self.items[name] for name, row in self.recorded.items() if row["passed"] and number in row["reached"]]

    def near(self, path: str, items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
        """The tests of the module that mirrors a file and of its neighbours, the quickest first; and the others.

        One case of each function comes before all other cases, which likely find the same.
        """
        parts = Path(path).with_suffix("").parts[1:]

        def rank(group: Sequence[pytest.Item]) -> tuple[int, float]:
            own = Path(_file(group[0]).replace("/test_", "/")).with_suffix("").parts[1:]
            shared = sum(one == other for one, other in zip(own, parts, strict=False))
            return -shared - 5 * (own == parts), self.seconds(group) / len(group)

        spent = 0.0
        found: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
        ranked = [item for group in sorted(_grouped(items, _file), key=rank) for item in group]
        cases = [sorted(group, key=lambda one: self.seconds([one])) for group in _grouped(ranked, _function)]
        first, others = [group[0] for group in cases], [item for group in cases for item in group[1:]]
        for item in (*sorted(first, key=lambda one: self.seconds([one]) > 1), *others):
            spent += self.seconds([item])
            found[spent > NEAR_SECONDS].append(item)
        return found

    def seconds(self, items: Iterable[pytest.Item]) -> float:
        return sum((self.recorded[item.nodeid]["seconds"] for item in items), 0.0)

    def alone(self, number: int, row: dict[str, Any], items: Sequence[pytest.Item], verdict: str = "default") -> bool:
        """Whether one of these tests finds a fault, twice unless it died."""
        begin = _cpu()
        while items:
            rows = self.forked(items, {number}, stop=True)
            if not rows or rows[-1]["passed"]:
                break
            failed = [item.nodeid for item in items].index(rows[-1]["name"])
            if rows[-1]["died"] or not self.forked([items[failed]], {number}, stop=True)[-1]["passed"]:
                self.add(row, verdict, [rows[-1]["name"]], begin)
                return True
            items = items[failed + 1 :]
        return False

    def anew(self, number: int, row: dict[str, Any]) -> bool:
        """The same for a fault whose code runs when modules are imported: in a new process."""
        begin = _cpu()
        near, _ = self.near(row["fault"]["path"], [self.items[name] for name in self.recorded])
        files = [*dict.fromkeys(_file(item) for item in near)]
        (self.folder / "on").write_text(str(number))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "--tb=no", "-rfE", *files],
            stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        (self.folder / "on").write_text("")
        failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if done.returncode:
            self.add(row, "default", failed or ["exit"], begin)
        return bool(done.returncode)

    def together(self, left: dict[int, dict[str, Any]], items: Iterable[pytest.Item], verdict: str) -> None:
        """Run tests with all these faults; those that fail then run for each that they reach."""
        failed: list[dict[str, Any]] = []
        for group in _grouped(items, _folder):
            wrong = [row for row in self.noting(group, left) if not row["passed"]]
            right = self.noting([self.items[row["name"]] for row in wrong], ())
            passes = {row["name"] for row in right if row["passed"]}
            failed += [row for row in wrong if row["name"] in passes]
        for number, row in left.items():
            begin = _cpu()
            # First one of each function: other cases likely fail for the same fault.
            names = [one["name"] for one in failed if number in one["reached"] or one["died"]]
            cases = _grouped([self.items[name] for name in names], _function)
            if not self.alone(number, row, [case[0] for case in cases][:RETRIED], verdict):
                self.add(row, "nothing" if verdict == "whole" else "not default", [], begin)

    def add(self, row: dict[str, Any], verdict: str, by: Sequence[str], begin: float) -> None:
        files = sorted({_file(item) for item in self.reaching(row["number"])}) or row["files"]
        found = {**row, "verdict": verdict, "by": by, "files": files, "seconds": round(_cpu() - begin, 1)}
        with Path(self.plan["results"]).open("a") as stream:
            stream.write(json.dumps(found) + "\n")
        print(f"{verdict:12} {row['name'][:110]}  {' '.join(by)[:120]}", file=sys.__stderr__, flush=True)

    def noting(self, items: Sequence[pytest.Item], on: Collection[int]) -> list[dict[str, Any]]:
        """Run all of these tests, and note what they reach."""
        found: list[dict[str, Any]] = []
        while items:
            (self.folder / "reached").write_text("")
            rows = self.forked(items, on, stop=False)
            (self.folder / "reached").unlink()
            found += rows
            items = items[len(rows) :] if rows else []
        return found

    def forked(self, items: Sequence[pytest.Item], on: Collection[int], *, stop: bool) -> list[dict[str, Any]]:
        """Run tests in a fork with these faults; a row for each, the last one for a test in which the fork died."""
        progress = self.folder / "progress"
        progress.write_text("")
        (self.folder / "on").write_text(" ".join(map(str, on)))
        if (child := os.fork()) == 0:
            try:
                os.setpgid(0, 0)
                limit = int(
                    CPU_SECONDS + 10 * max(self._usual(item) for item in items) + 3 * sum(map(self._usual, items))
                )
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
                self.switches.switch_on(frozenset(on))
                self._run(items, progress, stop=stop)
            finally:
                os._exit(0)
        size, heard = 0, time.monotonic()
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            time.sleep(0.02)
            if progress.stat().st_size > size:
                size, heard = progress.stat().st_size, time.monotonic()
            begun = progress.read_text().splitlines()[-1:] if time.monotonic() - heard > SILENT_SECONDS else []
            usual = self._usual(self.items[json.loads(begun[0])["name"]]) if begun else 0
            if begun and time.monotonic() - heard > SILENT_SECONDS + 10 * usual:
                os.killpg(child, signal.SIGKILL)
                heard = time.monotonic()
        # Processes that a test started would otherwise continue.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        (self.folder / "on").write_text("")
        rows = {row["name"]: row for row in map(json.loads, progress.read_text().splitlines())}
        return [*rows.values()]

    def _usual(self, item: pytest.Item) -> float:
        return float(self.recorded.get(item.nodeid, {}).get("wall", 1))

    def _run(self, items: Sequence[pytest.Item], progress: Path, *, stop: bool) -> None:
        reached = self.folder / "reached"
        for item, following in zip(items, [*items[1:], None], strict=True):
            row: dict[str, Any] = {"name": item.nodeid, "passed": False, "died": True, "reached": []}
            with progress.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            self.switches.REACHED.clear()
            if reached.exists():
                reached.write_text("")
            cpu, wall = _cpu(), time.perf_counter()
            reports = runtestprotocol(item, nextitem=following, log=False)
            if self.switches.KERNEL:
                self.switches.note_kernel()
            found = {int(line) for line in reached.read_text().splitlines()} if reached.exists() else set()
            row |= {"passed": not any(report.failed for report in reports), "died": False, "reached": sorted(found)}
            row |= {"seconds": round(_cpu() - cpu, 3), "wall": round(time.perf_counter() - wall, 3)}
            with progress.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            if stop and not row["passed"]:
                item.session._setupstate.teardown_exact(None)
                return


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _folder(item: pytest.Item) -> str:
    return "/".join(_file(item).split("/")[:2])


def _grouped(items: Iterable[pytest.Item], key: Callable[[pytest.Item], str]) -> list[list[pytest.Item]]:
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return [*found.values()]


def _cpu() -> float:
    return sum(os.times()[:4])
