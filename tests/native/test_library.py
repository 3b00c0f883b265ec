"""Finding the library: what `--version` says of it, and when it is not used."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkasniff.native import library
from tests.cli.console import kafkasniff
from tests.native.kernel_and_walker import the_kernel

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources and of the library, in which things may be changed."""
    the_kernel()
    sources = shutil.copytree(ROOT / "kafkasniff" / "kernel", tmp_path / "kernel")
    (tmp_path / "native").mkdir()
    shutil.copy(ROOT / "kafkasniff" / "native" / library.FILE, tmp_path / "native")
    monkeypatch.setattr(library, "_HERE", tmp_path / "native")
    monkeypatch.setattr(library, "_SOURCES", sources)
    library._find.cache_clear()
    yield tmp_path
    library._find.cache_clear()


def test_it_is_found(elsewhere: Path) -> None:
    assert library.kernel() is not None
    assert library.kernel_note().startswith("native kernel ")


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KAFKASNIFF_KERNEL", "0")
    assert library.kernel() is None
    assert kafkasniff("--version").code == 0
    assert "(no native kernel: KAFKASNIFF_KERNEL=0)" in capsys.readouterr().out


def test_version_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    the_kernel()
    assert kafkasniff("--version").code == 0
    assert "(native kernel " in capsys.readouterr().out


def test_it_is_not_used_with_other_sources(elsewhere: Path) -> None:
    with (elsewhere / "kernel" / "walk.zig").open("a") as file:
        file.write("// changed\n")
    assert library.kernel() is None
    assert "other sources" in library.kernel_note()


def test_it_is_not_used_with_another_interface(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "ABI", library.ABI + 1)
    assert library.kernel() is None
    assert "interface" in library.kernel_note()


def test_a_file_that_is_not_a_library(elsewhere: Path) -> None:
    (elsewhere / "native" / library.FILE).write_bytes(b"no library")
    assert library.kernel() is None
    assert "cannot be loaded" in library.kernel_note()


def test_without_it(elsewhere: Path) -> None:
    (elsewhere / "native" / library.FILE).unlink()
    assert library.kernel() is None
    assert "not built" in library.kernel_note()


def test_without_its_sources_it_is_used(elsewhere: Path) -> None:
    shutil.rmtree(elsewhere / "kernel")
    assert library.kernel() is not None


# -- programs
