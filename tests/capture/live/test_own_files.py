"""Files that a run reads later, and whether it can."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from kafkasniff.capture.live.dropping import Identity, acting_as
from kafkasniff.capture.live.own_files import PARTS, own_files, unreadable
from tests.conftest import ROOT, missing

STRANGER = Identity(54_321, 7, (7,), "stranger")
ELSEWHERE = {"spark", "report"}
"""Packages that `live` does not import."""
NOT_OF_LIVE = {"grpc", "jinja2", "markupsafe", "py4j", "pyspark", "textual", "textual_serve", "aiohttp", "vl_convert"}


def root() -> None:
    if os.geteuid() != 0:
        missing("becoming somebody else needs root")


def imported() -> set[str]:
    """Packages that modules of kafkasniff import in any function."""
    known = {*sys.stdlib_module_names, "kafkasniff"}
    found = set()
    for path in (ROOT / "kafkasniff").rglob("*.py"):
        if path.relative_to(ROOT / "kafkasniff").parts[0] in ELSEWHERE:
            continue
        source = path.read_text()
        if known.issuperset(re.findall(r"^\s*(?:from|import) (\w+)", source, re.M)):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module)
    return {name for name in found if name.partition(".")[0] not in known}


def test_every_imported_package_is_checked() -> None:
    names = {name for name in imported() if name.partition(".")[0] not in NOT_OF_LIVE}
    assert len(names) > len(PARTS)
    assert [name for name in names if not any(f"{name}.".startswith(f"{part}.") for part in PARTS)] == []


def test_places() -> None:
    found = [os.path.realpath(path) for path in own_files()]
    assert os.path.realpath(sys.executable) in found
    assert str((ROOT / "kafkasniff").resolve()) in found
    assert str((ROOT / "dissectors").resolve()) in found
    for module in (os, importlib.util.find_spec("numpy"), importlib.util.find_spec("pyarrow")):
        origin = module.origin if hasattr(module, "origin") else module.__file__
        assert os.path.realpath(os.path.dirname(origin)) in found
    assert unreadable(own_files()) is None
    assert unreadable(["/nowhere/at/all"]) is None


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A package in a folder, both accessible to everybody."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    package = tmp_path / "package"
    (package / "inner" / "tests").mkdir(parents=True)
    for name in ("__init__.py", "inner/fast.so", "inner/libdata.so.3", "inner/tests/test.py", "inner/000_produce.txt"):
        (package / name).touch()
    return package


@pytest.mark.root
@pytest.mark.parametrize(
    "name", ["__init__.py", "inner", "inner/fast.so", "inner/libdata.so.3", "inner/000_produce.txt", "."]
)
def test_a_file_that_cannot_be_read(name: str, installed: Path) -> None:
    root()
    with acting_as(STRANGER):
        assert unreadable([str(installed)]) is None
    (installed / name).chmod(0o600)
    with acting_as(STRANGER):
        assert unreadable([str(installed)]) == str(installed / name)
    assert unreadable([str(installed)]) is None


@pytest.mark.root
def test_unneeded_files_may_be_closed(installed: Path) -> None:
    root()
    (installed / "inner" / "tests").chmod(0o700)
    (installed / "notes.md").touch(mode=0o600)
    with acting_as(STRANGER):
        assert unreadable([str(installed), str(installed / "notes.py")]) is None
    shutil.rmtree(installed)
    with acting_as(STRANGER):
        assert unreadable([str(installed)]) is None
