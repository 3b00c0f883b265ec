"""The build hook runs only the compiler that was published."""

from __future__ import annotations

import hashlib
import importlib.machinery
from collections.abc import Callable
from pathlib import Path

import pytest

import hatch_build

FILES = {"zig": b"\x7fELF", "__init__.py": b"", "lib/std/std.zig": b"const x = 1;", "lib/a b": b"c"}


def package(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_the_digest_covers_names_and_contents(tmp_path: Path) -> None:
    text = "".join(sorted(f"{name} {hashlib.sha256(content).hexdigest()}\n" for name, content in FILES.items()))
    found = hatch_build.tree_digest(package(tmp_path))
    assert found == hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "lib" / "__pycache__").mkdir()
    (tmp_path / "lib" / "__pycache__" / "x.pyc").touch()
    assert hatch_build.tree_digest(tmp_path) == found


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "zig").write_bytes(b"\x7fELG"),
        lambda folder: (folder / "lib" / "std" / "new.zig").touch(),
        lambda folder: (folder / "__init__.py").unlink(),
        lambda folder: (folder / "lib" / "a b").rename(folder / "lib" / "b"),
    ],
)
def test_another_compiler_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    folder = package(tmp_path / "ziglang")
    spec = importlib.machinery.ModuleSpec("ziglang", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(hatch_build.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(hatch_build, "this_platform", lambda: "linux-x86_64")
    monkeypatch.setitem(hatch_build.COMPILERS, "linux-x86_64", hatch_build.tree_digest(folder))
    assert hatch_build.compiler() == folder / "zig"
    change(folder)
    with pytest.raises(SystemExit, match=r"is not ziglang==.* as published for this platform$"):
        hatch_build.compiler()
