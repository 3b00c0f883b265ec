"""Copies of a checkout in which all faults of a run are planted, each with a switch."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.mutation.faults import Fault

KERNEL_FOLDER = "kafkasniff/kernel"
SWITCHES = "kafkasniff/_planted.py"
_SWITCHES_ZIG = """
pub export var kafkasniff_planted: [{count}]u8 = @splat(0);
pub export var kafkasniff_reached: [{count}]u8 = @splat(0);
pub inline fn on(number: usize) bool {{
    kafkasniff_reached[number] = 1;
    return kafkasniff_planted[number] != 0;
}}
"""
_IMPORT = "from kafkasniff._planted import planted as _is_planted"
_ERROR = re.compile(r"(\w+\.zig):(\d+):\d+: (?:error|note)")


class Tree:
    """A copy of the files of a checkout in `folder/tree`, with numbered faults and the compiled kernel."""

    def __init__(self, checkout: Path, folder: Path, python: Path) -> None:
        self.folder = folder / "tree"
        self.python = python
        self._sources: dict[str, bytes] = {}
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=checkout, capture_output=True, check=True
        ).stdout
        names = [name for name in os.fsdecode(listed).split("\0") if name]
        names += [path.relative_to(checkout).as_posix() for path in (checkout / "kafkasniff/native").glob("kernel.*")]
        for name in dict.fromkeys(names):
            source, target = checkout / name, self.folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def fitting(self, shares: Iterable[tuple[int, Sequence[Fault]]]) -> dict[int, Fault]:
        """So many of each sequence; others replace those that overlap others or do not compile."""
        found: list[Fault] = []
        for count, candidates in shares:
            chosen, left = list[Fault](), list(candidates)
            while len(chosen) < count and left:
                while len(chosen) < count and left:
                    one = left.pop(0)
                    same = [other for other in chosen if other.path == one.path]
                    if all(other.end <= one.start or one.end <= other.start for other in same):
                        chosen.append(one)
                misfits = self._misfits(chosen)
                chosen = [one for one in chosen if one not in misfits]
            found += sorted(chosen)
        return dict(enumerate(found))

    def plant(self, faults: dict[int, Fault]) -> None:
        """Write the faults and their switches, and compile the kernel."""
        kernel = any(fault.path.endswith(".zig") for fault in faults.values())
        switches = Path(__file__).with_name("switches.py").read_text()
        for old, new in (
            ('FOLDER = ""', f'FOLDER = "{self.folder.parent}"'),
            ("COUNT = 0", f"COUNT = {max(faults) + 1}"),
            ("KERNEL = False", f"KERNEL = {kernel}"),
        ):
            switches = switches.replace(old, new, 1)
        (self.folder / SWITCHES).write_text(switches)
        self._write(faults)
        if kernel and (errors := self._compiled()):
            raise RuntimeError(errors)

    def _misfits(self, faults: Sequence[Fault]) -> list[Fault]:
        if faults[0].path.endswith(".zig"):
            self._write(dict(enumerate(faults)))
            places = {(f"{KERNEL_FOLDER}/{name}", int(line)) for name, line in _ERROR.findall(self._compiled())}
            return [fault for fault in faults if (fault.path, fault.line) in places]
        found = []
        for fault in faults:
            try:
                compile(_with_fault(self._source(fault.path), 0, fault), fault.path, "exec")
            except SyntaxError:
                found.append(fault)
        return found

    def _source(self, path: str) -> bytes:
        return self._sources.setdefault(path, (self.folder / path).read_bytes())

    def _write(self, faults: dict[int, Fault]) -> None:
        changed = {path: self._source(path) for path in {*self._sources} | {fault.path for fault in faults.values()}}
        # From the end, so that earlier places stay where they are.
        for number, fault in sorted(faults.items(), key=lambda one: -one[1].start):
            changed[fault.path] = _with_fault(changed[fault.path], number, fault)
        for path, source in changed.items():
            is_changed = path.endswith(".py") and source != self._sources[path]
            (self.folder / path).write_bytes(_with_import(source) if is_changed else source)
        if any(path.endswith(".zig") for path in changed):
            (self.folder / KERNEL_FOLDER / "planted.zig").write_text(_SWITCHES_ZIG.format(count=max(faults) + 1))

    def _compiled(self) -> str:
        done = subprocess.run(
            [self.python, "hatch_build.py"], cwd=self.folder, capture_output=True, text=True, check=False
        )
        return done.stderr if done.returncode else ""


def _with_fault(source: bytes, number: int, fault: Fault) -> bytes:
    if fault.path.endswith(".zig"):
        switched = f'(if (@import("planted.zig").on({number})) {fault.new} else {fault.old})'
    elif fault.is_statement:
        switched = f"if not _is_planted({number}): {fault.old}"
    else:
        switched = f"(({fault.new}) if _is_planted({number}) else ({fault.old}))"
    return source[: fault.start] + switched.encode() + source[fault.end :]


def _with_import(source: bytes) -> bytes:
    """The module with an import after its docstring, on no line of its own."""
    end = b""
    for statement in ast.parse(source).body:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_docstring and not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            break
        end = b"".join(source.splitlines(keepends=True)[: statement.end_lineno])
    return end.rstrip(b"\n") + (b"; " if end else b"") + _IMPORT.encode() + b"\n" + source[len(end) :]
