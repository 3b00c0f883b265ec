"""Faults: one small change of one place in a Python function or a line of Zig, by the usual mutation operators. All are
planted at once, each with a switch: so a fault is a whole expression or statement."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

PACKAGE = "kafkasniff"
KERNEL = "kernel"

CHANGES = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "and": "or", "or": "and",
    "is": "is not", "is not": "is", "in": "not in", "not in": "in", "+": "-", "-": "+", "*": "//", "//": "*",
    "<<": ">>", ">>": "<<", "&": "|", "|": "&", "true": "false", "false": "true", "1": "2",
}  # fmt: skip
"""Operators and constants, and what replaces them."""
_ZIG = re.compile(rb" (<=?|>=?|==|!=|and|or|\+|-) | \+= (1);|(?:return|=) (true|false);")
_ZIG_LEFT_OUT = (b'"', b"assert", b"comptime", b"@import", b"test ", b"for (", b"fn ")
_LEFT_OUT_FUNCTIONS = {"__repr__", "__str__"}
"""Tests of these say nothing of the program."""
KERNEL_SHARE = 1 / 6
"""The kernel's share of all faults: its lines run more often than those of Python."""


@dataclass(frozen=True, order=True)
class Fault:
    """Replacement of the expression or statement `old` at a byte `start` of a file (path relative to the tree)."""

    path: str
    start: int
    old: str
    new: str
    line: int
    code: str
    """That line."""
    is_statement: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.old.encode())

    @property
    def room(self) -> str:
        """The folder, or the module, below the package."""
        return self.path.split("/")[1].removesuffix(".py")

    @property
    def name(self) -> str:
        same = next((at for at, (one, other) in enumerate(zip(self.old, self.new, strict=False)) if one != other), 0)
        begin = max(0, same - 30)
        old, new = (" ".join(text[begin : same + 40].split()) for text in (self.old, self.new))
        return f"{self.path}:{self.line} {old!r} -> {new!r}"


class _Places:
    """Byte offsets of the lines and columns that `ast` reports."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        return (self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def fault(self, node: ast.expr | ast.stmt, new: str) -> Fault:
        start, number = self.span(node)[0], node.lineno
        code = self.source[self.starts[number - 1] : self.starts[number]].decode().strip()
        return Fault(self.path, start, self.text(node), new, number, code, isinstance(node, ast.stmt))

    def operators(self, node: ast.expr, *operands: ast.expr) -> Iterator[Fault]:
        """Another operator between two operands each."""
        first, last = self.span(node)
        for one, other in pairwise(operands):
            start, end = self.span(one)[1], self.span(other)[0]
            gap = self.source[start:end]
            old = gap.strip(b"() \n")
            place = start + gap.find(old)
            if new := CHANGES.get(old.decode()):
                changed = self.source[first:place] + new.encode() + self.source[place + len(old) : last]
                yield self.fault(node, changed.decode())


def python_faults(path: str, source: bytes) -> list[Fault]:
    """All faults that can be planted in the functions of a module."""
    places = _Places(path, source)
    found: list[Fault] = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name not in _LEFT_OUT_FUNCTIONS:
            for statement in function.body:
                found.extend(_statement_faults(places, statement))
    return sorted(set(found))


def _statement_faults(places: _Places, statement: ast.stmt) -> Iterator[Fault]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Raise | ast.Assert):
        return
    if (
        isinstance(statement, ast.AugAssign)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Await))
        or (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute | ast.Subscript))
    ):
        yield places.fault(statement, "pass")
    if isinstance(statement, ast.If | ast.While) and not isinstance(statement.test, ast.Constant):
        yield places.fault(statement.test, f"not ({places.text(statement.test)})")
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _statement_faults(places, child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            for inner in child.body:
                yield from _statement_faults(places, inner)
        elif isinstance(child, ast.expr) and not (
            isinstance(statement, ast.AnnAssign) and child is statement.annotation
        ):
            yield from _expression_faults(places, child)


def _expression_faults(places: _Places, node: ast.AST) -> Iterator[Fault]:
    if isinstance(node, ast.JoinedStr):
        return  # Python 3.11 does not know the places within.
    if isinstance(node, ast.Compare):
        yield from places.operators(node, node.left, *node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield from places.operators(node, *node.values)
    elif isinstance(node, ast.BinOp):
        yield from places.operators(node, node.left, node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield places.fault(node, f"bool({places.text(node.operand)})")
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield places.fault(node, str(not node.value))
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield places.fault(node, str(node.value + 1))
    for child in ast.iter_child_nodes(node):
        yield from _expression_faults(places, child)


def zig_faults(path: str, source: bytes) -> list[Fault]:
    """All faults that can be planted in a file of the kernel; some may not compile."""
    found = []
    offset = 0
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        code = line.partition(b"//")[0]
        if not any(word in code for word in _ZIG_LEFT_OUT):
            for match in _ZIG.finditer(code):
                first, last = match.span(match.lastindex or 0)
                if span := _zig_expression(code, first):
                    start, end = span
                    changed = code[start:first] + CHANGES[code[first:last].decode()].encode() + code[last:end]
                    old, whole = code[start:end].decode(), line.decode().strip()
                    found.append(Fault(path, offset + start, old, changed.decode(), number, whole))
        offset += len(line)
    return sorted(set(found))


def _zig_expression(code: bytes, place: int) -> tuple[int, int] | None:
    """The brackets or the right side, on one line, that a place is in."""
    start, depth = place, 0
    while True:
        start -= 1
        if start < 0 or (not depth and code[start] in b"{|;"):
            return None
        if not depth and (
            code[start] in b"([,"
            or code[start - 1 : start + 1] == b".."
            or (code[start] == b"="[0] and code[start - 1] not in b"=<>!" and code[start + 1] != b"="[0])
            or code[start - 6 : start + 1] == b"return "
        ):
            break
        depth += (code[start] in b")]") - (code[start] in b"([")
    start += 1 + (code[start : start + 2] == b"=>")
    end, depth = place, 0
    while depth or (code[end] not in b")],;" and code[end : end + 2] != b".."):
        depth += (code[end] in b"([") - (code[end] in b")]")
        end += 1
        if end >= len(code) or code[end] in b"{":
            return None
    return start + len(code[start:end]) - len(code[start:end].lstrip()), end


def faults_of(path: str, source: bytes) -> list[Fault]:
    return (python_faults if path.endswith(".py") else zig_faults)(path, source)


def chosen(tree: Path, count: int, seed: int, rooms: list[str]) -> Iterator[tuple[int, list[Fault]]]:
    """For each room, the number of faults to plant, and its faults in an order that the seed gives; more than needed.

    Numbers follow the lines of the rooms, at least two of each. Raises ValueError for a room that does not exist.
    """
    by_room: dict[str, list[Fault]] = {}
    lines: Counter[str] = Counter()
    for path in sorted((tree / PACKAGE).rglob("*")):
        if path.suffix in {".py", ".zig"}:
            source = path.read_bytes()
            room = path.relative_to(tree / PACKAGE).parts[0].removesuffix(".py")
            by_room.setdefault(room, []).extend(faults_of(path.relative_to(tree).as_posix(), source))
            lines[room] += source.count(b"\n")
    unknown = sorted(set(rooms) - set(by_room))
    if unknown:
        raise ValueError(f"no such room: {', '.join(unknown)}; there are {', '.join(sorted(by_room))}")
    random = Random(seed)
    python = sum(lines.values()) - lines[KERNEL]
    for room, faults in by_room.items():
        random.shuffle(faults)
        share = KERNEL_SHARE if room == KERNEL else (1 - KERNEL_SHARE) * lines[room] / python
        if faults and (not rooms or room in rooms):
            yield max(2, round(count * share)), faults


def same_fault(tree: Path, fault: Fault) -> Fault | None:
    """The same fault in another version of the file, the one at the nearest line; None if the code is gone."""
    path = tree / fault.path
    found = faults_of(fault.path, path.read_bytes()) if path.exists() else []
    same = [one for one in found if (one.old, one.new, one.code) == (fault.old, fault.new, fault.code)]
    return min(same, key=lambda one: (abs(one.line - fault.line), abs(one.start - fault.start)), default=None)
