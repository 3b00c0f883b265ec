"""Hostile folders: an export into one writes, moves and removes nothing outside of it."""

from __future__ import annotations

import ast
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.errors import UsageError
from kafkasniff.tables.exports.live import LiveExport
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.target import ExportFolder
from tests.tables.exports.exported import CAPTURES, cut, files, manifest, named_files, run, tables

ROOT = Path(__file__).resolve().parents[3]
CAPTURE = CAPTURES / "java-group-share.pcap"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "home" / ".bashrc"
    path.parent.mkdir()
    path.write_text("mine")
    return path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "out"
    run([CAPTURE], folder)
    return folder


def prepared(exported: Path, folder: Path, *, path: str | None = None, state: str | None = None) -> Any:
    shutil.copytree(exported, folder, dirs_exist_ok=True)
    reported = manifest(folder)
    if path is not None:
        reported["tables"]["exchanges"]["files"][0]["path"] = path
    if state is not None:
        reported["state"] = state
    return reported


FOREIGN = ["../../victim", "exchanges/date=2026-11-21/../../../home/.bashrc", "manifest.json"]
"""More of them: test_manifest.py."""


@pytest.mark.parametrize("path", FOREIGN)
@pytest.mark.parametrize("where", ["path", "state"])
def test_a_commit_with_targets_outside(where: str, path: str, exported: Path, tmp_path: Path, victim: Path) -> None:
    """The targets to which `.partial/manifest.json` renames files could be any of the user's files."""
    out = tmp_path / "out"
    reported = prepared(exported, out, **{where: path})
    (out / "manifest.json").unlink()
    (out / ".partial" / "exchanges").mkdir(parents=True)
    (out / ".partial" / "manifest.json").write_text(json.dumps(reported))
    (tmp_path / "victim").write_text("theirs")
    with pytest.raises(UsageError, match=r"\.partial/manifest\.json names"):
        run([CAPTURE], out)
    assert victim.read_text() == "mine"
    assert not (out / "manifest.json").exists()


@pytest.mark.parametrize("place", ["exchanges", "exchanges/date=2026-11-21", "state", ".partial", ".staged"])
def test_a_symbolic_link_instead_of_a_folder(place: str, tmp_path: Path) -> None:
    """Files of unfinished rows, old states, `.partial` and `.staged` are removed, but not through a link."""
    parts = cut(CAPTURE, (0.5,), tmp_path)
    out = tmp_path / "out"
    run(parts[:1], out)
    outside = tmp_path / "outside"
    if (out / place).exists():
        shutil.move(out / place, outside)
    outside.mkdir(exist_ok=True)
    (outside / "date=2026-11-21").mkdir(exist_ok=True)
    for name in ("date=2026-11-21/part-00009-00000.parquet", "part-00009-00000.parquet", "run-00009.state", "file"):
        (outside / name).write_text("mine")
    (out / place).symlink_to(outside)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="is a symbolic link, not a folder: remove it"):
        run(parts, out)
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["run.json.new", "shard-00000/checkpoint.new"])
def test_temporary_files_follow_no_link(name: str, tmp_path: Path, victim: Path) -> None:
    """A plan that may be resumed, and a link with the temporary name of a file."""
    parts = cut(CAPTURE, (0.5,), tmp_path)
    out = tmp_path / "out"
    with ExportFolder(out):
        pass
    (out / ".partial" / "shard-00000").mkdir(parents=True)
    (out / ".partial" / name).symlink_to(victim)
    run(parts, out)
    run(parts, tmp_path / "one")
    assert victim.read_text() == "mine"
    assert tables(out) == tables(tmp_path / "one")
    assert files(out) == named_files(out)


@pytest.mark.parametrize("kind", ["a FIFO", "a symbolic link"])
def test_only_regular_files_are_read(kind: str, tmp_path: Path, victim: Path) -> None:
    for number, name in enumerate(["manifest.json", ".partial/run.json", ".partial/manifest.json"]):
        out = tmp_path / str(number)
        (out / ".partial").mkdir(parents=True)
        if kind == "a FIFO":
            os.mkfifo(out / name)
        else:
            (out / name).symlink_to(victim)
        with pytest.raises(UsageError, match=f"{kind}, not a file: remove it"):
            run([CAPTURE], out)
        assert victim.read_text() == "mine"


def test_a_live_capture_follows_no_link(tmp_path: Path, victim: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".staged").symlink_to(victim.parent)
    with pytest.raises(UsageError, match=r"\.staged is a symbolic link"):
        LiveExport(out, ExportOptions(), "eth7")
    assert victim.read_text() == "mine"


# -- no other module opens files

WRITERS = ("tables/exports", "tables/parquet.py", "spark", "analysis")
FORBIDDEN = {
    "os": {"open", "rename", "replace", "remove", "unlink", "rmdir", "removedirs", "mkdir", "makedirs", "link"}
    | {"symlink", "truncate", "mkfifo", "mknod", "chmod", "chown", "utime", "renames", "fdopen"},
    "shutil": {"rmtree", "move", "copy", "copyfile", "copytree", "copy2"},
    "tempfile": {"TemporaryDirectory", "NamedTemporaryFile", "mkdtemp", "mkstemp"},
    "pa": {"OSFile", "memory_map", "create_memory_map", "output_stream", "input_stream"},
    "pq": {"write_table", "read_table", "write_to_dataset", "ParquetDataset"},
    "ds": {"write_dataset"},
}
METHODS = {"mkdir", "rename", "unlink", "rmdir", "write_bytes", "write_text", "touch", "symlink_to", "hardlink_to"}
METHODS |= {"read_bytes", "read_text", "chmod", "open"}
ALLOWED = {
    "analysis/compaction.py": "a temporary folder for DuckDB, and an export, which opens its files confined",
    "analysis/detectors/registry.py": "the same captures",
    "analysis/sql/database.py": "texts of the package",
    "analysis/sql/question.py": "texts of the package, and a temporary folder for DuckDB",
    "tables/exports/captures.py": "captures, which the user names",
    "tables/exports/target.py": "the temporary folder of a run, which it opens confined",
    "spark/lakehouse.py": "an export, which opens its files confined",
    "spark/session.py": "a SPARK_HOME and a JAVA_HOME in folders of their own",
    "spark/shipping.py": "an archive of the package",
    "spark/table_rows.py": "the output of a task",
    "spark/tasks.py": "the temporary folder of a task, which it opens confined",
}


def calls(path: Path) -> set[str]:
    """Calls in a module that open, make, move or remove files by a path."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            found.add("open")
        elif isinstance(called, ast.Attribute):
            module = called.value.id if isinstance(called.value, ast.Name) else None
            renames = called.attr == "replace" and len(node.args) == 1 and not node.keywords
            if called.attr in FORBIDDEN.get(module or "", ()):
                found.add(f"{module}.{called.attr}")
            elif module not in FORBIDDEN and (called.attr in METHODS or renames):
                found.add(f".{called.attr}")
    return found


def test_no_other_module_reaches_files() -> None:
    package = ROOT / "kafkasniff"
    modules = [
        path for name in WRITERS for path in ([package / name] if "." in name else (package / name).rglob("*.py"))
    ]
    assert len(modules) > 50
    found = {path.relative_to(package).as_posix(): calls(path) for path in modules}
    assert {name: made for name, made in found.items() if made and name not in ALLOWED} == {}
    assert {name for name in ALLOWED if not found[name]} == set(), "no longer needed"
    confined = {f"os.{name}" for name in ("open", "rename", "unlink", "rmdir", "mkdir")}
    assert calls(package / "runtime" / "confined_files.py") >= confined
