"""Tests mirror the package: `tests/a/` tests `kafkasniff/a/`. Names of modules and classes say what they are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import kafkasniff
from tests.conftest import ROOT

PACKAGE = ROOT / "kafkasniff"
OTHERS = {
    "benchmarks": "mirrors benchmarks/",
    "baseline": "compares all outputs of two builds",
    "captures": "the shipped captures",
    "craft": "makes packets and messages",
    "evidence": "what others read from the shipped captures",
    "fuzz": "fuzzes every parser",
    "golden": "what the program prints for the shipped captures",
    "integration": "real brokers and clients",
    "oracle": "the readable specification of the stream engine",
    "mutation": "plants faults, to see that tests find them",
    "vectors": "messages that Kafka's classes wrote",
}
"""Folders of tests that mirror no folder of the package."""


def sources() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def test_folders_of_tests_mirror_the_package() -> None:
    folders = {path.parent.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    mirrors = {folder for folder in folders - {"."} if folder.split("/")[0] not in OTHERS}
    assert {folder for folder in mirrors if not (PACKAGE / folder).is_dir()} == set()
    rooms = {path.parent.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/*.py")}
    assert rooms - {folder.split("/")[0] for folder in mirrors} == set(), "rooms without tests"


def test_the_design_lists_every_room() -> None:
    table = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("\n## Rooms\n")[2].partition("\n## ")[0]
    cells = (row.split(" | ")[0] for row in table.splitlines() if row.startswith("| `"))
    listed = [name for cell in cells for name in re.findall(r"`([\w./]+)`", cell)]
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(one.suffix in (".py", ".zig") for one in path.iterdir()))
    }
    assert sorted(listed) == sorted((there | {"dissectors/"}) - {"__init__.py", "__main__.py"})


def test_names_are_unique_and_descriptive() -> None:
    places: dict[str, list[str]] = {}
    for path, source in sources().items():
        assert Path(path).stem not in {"utils", "util", "helpers", "helper", "common", "misc"}
        for name in re.findall(r"^ *class ([A-Za-z]\w*)(?:\(.*|:)$", source, re.M):
            places.setdefault(name, []).append(path)
    assert len(places) > 100
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_scapy_is_imported_in_one_file_only() -> None:
    """Its licence (GPL-2.0-only) allows neither more nor less."""
    importers = set()
    for path, source in sources().items():
        for node in ast.walk(ast.parse(source)) if "scapy" in source else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.partition(".")[0] == "scapy" for name in names):
                importers.add(path)
    assert importers == {"kafkasniff/capture/link/scapy_layers.py"}


def test_the_package_is_typed() -> None:
    assert (Path(kafkasniff.__file__).parent / "py.typed").exists()
