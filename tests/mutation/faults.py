"""Faults: one small change of one place in a Python function or a line of Zig.

The kinds are the usual mutation operators: comparisons, connectives, arithmetic, constants, conditions, and statements
that are dropped. A fault names its bytes, so that it can be planted in any tree that has the same file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

PACKAGE = "kafkasniff"
KERNEL = "kernel"

_COMPARISONS: dict[type[ast.cmpop], tuple[bytes, bytes]] = {
    ast.Lt: (b"<", b"<="),
    ast.LtE: (b"<=", b"<"),
    ast.Gt: (b">", b">="),
    ast.GtE: (b">=", b">"),
    ast.Eq: (b"==", b"!="),
    ast.NotEq: (b"!=", b"=="),
    ast.Is: (b"is", b"is not"),
    ast.IsNot: (b"is not", b"is"),
    ast.In: (b"in", b"not in"),
    ast.NotIn: (b"not in", b"in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[bytes, bytes]] = {
    ast.Add: (b"+", b"-"),
    ast.Sub: (b"-", b"+"),
    ast.Mult: (b"*", b"//"),
    ast.FloorDiv: (b"//", b"*"),
    ast.LShift: (b"<<", b">>"),
    ast.RShift: (b">>", b"<<"),
    ast.BitAnd: (b"&", b"|"),
    ast.BitOr: (b"|", b"&"),
}
_ZIG = [
    (rb"(?<=[\w)\]]) (<) (?=[\w(@-])", b"<="),
    (rb"(?<=[\w)\]]) (<=) (?=[\w(@-])", b"<"),
    (rb"(?<=[\w)\]]) (>) (?=[\w(@-])", b">="),
    (rb"(?<=[\w)\]]) (>=) (?=[\w(@-])", b">"),
    (rb"(?<=[\w)\]?]) (==) ", b"!="),
    (rb"(?<=[\w)\]?]) (!=) ", b"=="),
    (rb" (and) ", b"or"),
    (rb" (or) ", b"and"),
    (rb"(?<=[\w)\]]) (\+) ", b"-"),
    (rb"(?<=[\w)\]]) (-) ", b"+"),
    (rb" \+= (1);", b"2"),
    (rb"(?:return|=) (true);", b"false"),
    (rb"(?:return|=) (false);", b"true"),
]
# Tests of these say nothing of the program: text for people, representations, typing.
_LEFT_OUT_FUNCTIONS = {"__repr__", "__str__"}


@dataclass(frozen=True, order=True)
class Fault:
    """Replacement of `old` by `new` at a byte `offset` of a file (path relative to the tree)."""

    path: str
    offset: int
    old: bytes
    new: bytes
    line: int

    @property
    def room(self) -> str:
        """The folder, or the module, below the package."""
        return self.path.split("/")[1].removesuffix(".py")

    @property
    def name(self) -> str:
        """Place and change, for people."""
        return f"{self.path}:{self.line} {self.old.decode()!r} -> {self.new.decode()!r}"

    def planted(self, source: bytes) -> bytes:
        """`source` with the fault. Raises ValueError where the file is another one."""
        if source[self.offset : self.offset + len(self.old)] != self.old:
            raise ValueError(f"{self.path} is not the file that the fault was made for")
        return source[: self.offset] + self.new + source[self.offset + len(self.old) :]


class _Places:
    """Byte offsets of the lines and columns that `ast` reports."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def fault(self, offset: int, old: bytes, new: bytes) -> Fault:
        return Fault(self.path, offset, old, new, self.source.count(b"\n", 0, offset) + 1)

    def whole(self, node: ast.expr | ast.stmt, new: bytes) -> Fault:
        start = self.start(node)
        return self.fault(start, self.source[start : self.end(node)], new)

    def between(self, one: ast.expr, other: ast.expr, old: bytes, new: bytes) -> Iterator[Fault]:
        """The operator between two operands, unless a bracket or a comment makes the place unclear."""
        start, end = self.end(one), self.start(other)
        gap = self.source[start:end]
        found = [match.start() for match in re.finditer(rb"(?<![\w<>=!*/])" + re.escape(old) + rb"(?![\w<>=*/])", gap)]
        if len(found) == 1 and b"#" not in gap:
            yield self.fault(start + found[0], old, new)


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
    if isinstance(statement, ast.AugAssign) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Await)
    ):
        yield places.whole(statement, b"pass")
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute | ast.Subscript):
        yield places.whole(statement, b"pass")
    if isinstance(statement, ast.If | ast.While) and not isinstance(statement.test, ast.Constant):
        start, end = places.start(statement.test), places.end(statement.test)
        yield places.whole(statement.test, b"not (" + places.source[start:end] + b")")
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _statement_faults(places, child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            for inner in child.body:
                yield from _statement_faults(places, inner)
        elif isinstance(child, ast.expr) and not _is_annotation(statement, child):
            for expression in ast.walk(child):
                yield from _expression_faults(places, expression)


def _is_annotation(statement: ast.stmt, child: ast.expr) -> bool:
    return isinstance(statement, ast.AnnAssign) and child is statement.annotation


def _expression_faults(places: _Places, node: ast.AST) -> Iterator[Fault]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for operator, one, other in zip(node.ops, operands, operands[1:], strict=False):
            yield from places.between(one, other, *_COMPARISONS[type(operator)])
    elif isinstance(node, ast.BoolOp):
        change = (b"and", b"or") if isinstance(node.op, ast.And) else (b"or", b"and")
        for one, other in zip(node.values, node.values[1:], strict=False):
            yield from places.between(one, other, *change)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield from places.between(node.left, node.right, *_ARITHMETIC[type(node.op)])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield places.whole(node, b"bool(" + places.source[places.start(node.operand) : places.end(node.operand)] + b")")
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield places.whole(node, b"False" if node.value else b"True")
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield places.whole(node, str(node.value + 1).encode())


def zig_faults(path: str, source: bytes) -> list[Fault]:
    """All faults that can be planted in a file of the kernel; some may not compile."""
    found = []
    offset = 0
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        code = line.partition(b"//")[0]
        left_out = (b'"' in code) or any(word in code for word in (b"assert", b"comptime", b"@import", b"test "))
        if code.strip() and not left_out:
            for pattern, new in _ZIG:
                for match in re.finditer(pattern, code):
                    found.append(Fault(path, offset + match.start(1), match[1], new, number))
        offset += len(line)
    return sorted(set(found))


def all_faults(tree: Path) -> dict[str, list[Fault]]:
    """By room, all faults that can be planted in the package of a tree."""
    found: dict[str, list[Fault]] = {}
    for path in sorted((tree / PACKAGE).rglob("*")):
        name = path.relative_to(tree).as_posix()
        if path.suffix == ".py":
            faults = python_faults(name, path.read_bytes())
        elif path.suffix == ".zig":
            faults = zig_faults(name, path.read_bytes())
        else:
            continue
        for fault in faults:
            found.setdefault(fault.room, []).append(fault)
    return found


def chosen(tree: Path, count: int, seed: int, rooms: list[str]) -> list[Fault]:
    """Some `count` faults, by the rooms' numbers of lines, at least three of each; the same ones for the same seed.

    Raises ValueError for a room that does not exist.
    """
    by_room = all_faults(tree)
    unknown = sorted(set(rooms) - set(by_room))
    if unknown:
        raise ValueError(f"no such room: {', '.join(unknown)}; there are {', '.join(sorted(by_room))}")
    by_room = {room: faults for room, faults in by_room.items() if not rooms or room in rooms}
    random = Random(seed)
    for faults in by_room.values():
        random.shuffle(faults)
    lines = {room: _lines(tree, room) for room in by_room}
    shares = {room: max(3, round(count * lines[room] / sum(lines.values()))) for room in by_room}
    return sorted(fault for room, faults in by_room.items() for fault in faults[: shares[room]])


def _lines(tree: Path, room: str) -> int:
    place = tree / PACKAGE / room
    paths = [path for ending in ("*.py", "*.zig") for path in place.rglob(ending)] or [place.with_suffix(".py")]
    return sum(path.read_bytes().count(b"\n") for path in paths)
