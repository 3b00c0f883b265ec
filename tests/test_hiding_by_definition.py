"""What is hidden is decided by definitions: the modules that hide payload and secrets hold no API numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkasniff.kafka.dissectors import api, api_keys
from tests.conftest import ROOT

PACKAGE = ROOT / "kafkasniff"
HIDING = [
    PACKAGE / "payload.py",
    PACKAGE / "kafka" / "secrets.py",
    PACKAGE / "kafka" / "record_fields.py",
    PACKAGE / "kafka" / "embedded" / "any_records.py",
    *sorted((PACKAGE / "blanking").glob("*.py")),
]
KEYS = frozenset({"api_key", "key"})
"""Names under which these modules have the number of an API."""
NOT_OF_APIS = frozenset({"_OLD_HEADS", "_PROXY_HEADS"})
"""Tables of other numbers: sizes of headers by magic, by the family of a proxy's addresses."""
NUMBERED = frozenset({api(key).name.upper() for key in api_keys()} | {"PRODUCE", "FETCH", "ENVELOPE", "API_VERSIONS"})


def api_numbers(source: str) -> Iterator[str]:
    """Places where a module compares an API's number with one, keeps a table by such numbers, or imports one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            if any(_name(one) in KEYS for one in parts) and not any(_is_none(one) for one in parts):
                others = [one for one in parts if _name(one) not in KEYS]
                if any(_is_number(one) or (_name(one) or "").isupper() for one in others):
                    yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = _name(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
            if target not in NOT_OF_APIS and node.value is not None and _has_table(node.value):
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.lineno}: {one.name}" for one in node.names if one.name.strip("_") in NUMBERED)


def _name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_number(node: ast.AST | None) -> bool:
    """A number, or a collection or a pair that begins with one."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return bool(node.elts) and _is_number(node.elts[0])
    return isinstance(node, ast.Constant) and type(node.value) is int


def _has_table(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if isinstance(node, ast.Set | ast.List | ast.Tuple) and _is_number(node):
            return True
        if isinstance(node, ast.Dict) and node.keys and _is_number(node.keys[0]):
            return True
    return False


@pytest.mark.parametrize("path", HIDING, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_module_that_hides_knows_an_api_by_its_number(path: Path) -> None:
    assert list(api_numbers(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "_WITH_RECORDS: Final = frozenset({0, 1, 59, 78})",
        "_WITH_RECORDS = {(0, 'request'), (1, 'response')}",
        "_NAMES = {58: '_request'}",
        "if api_key == 58: pass",
        "if message.api_key in (0, 1): pass",
        "if key == _ENVELOPE: pass",
        "if key not in _WITH_RECORDS: pass",
        "from kafkasniff.kafka.message import PRODUCE",
        "from kafkasniff.entities import ENVELOPE",
    ],
)
def test_it_would_be_found(source: str) -> None:
    assert list(api_numbers(source))
