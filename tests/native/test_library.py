"""The library: what `--version` says of it, and when it is not used."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.errors import MissingKernelError
from kafkasniff.native import library
from tests.cli.console import kafkasniff

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources and of the library, in which things may be changed."""
    sources = shutil.copytree(ROOT / "kafkasniff" / "kernel", tmp_path / "kernel")
    (tmp_path / "native").mkdir()
    shutil.copy(ROOT / "kafkasniff" / "native" / library.FILE, tmp_path / "native")
    monkeypatch.setattr(library, "_HERE", tmp_path / "native")
    monkeypatch.setattr(library, "_SOURCES", sources)
    library._find.cache_clear()
    yield tmp_path
    library._find.cache_clear()


ADVICE = "install kafkasniff again with pip (docs/packaging.md)"


def refused(note: str) -> None:
    """The kernel is not used, and this says why and what to do."""
    assert library.kernel_note() == note
    with pytest.raises(MissingKernelError) as caught:
        library.kernel()
    assert str(caught.value) == f"{note}; {ADVICE}"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert kafkasniff("--version").code == Exit.OK
    assert f"({library.kernel_note()})" in capsys.readouterr().out
    assert library.kernel_note().startswith("native kernel ")


def test_commands_without_it(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and its exit code. What only reads definitions works."""
    (elsewhere / "native" / library.FILE).unlink()
    note = "no native kernel: not built for this installation"
    capture = ROOT / "captures" / "sarama.pcap"
    for words in (
        ("decode", capture),
        ("check", "-q", capture),
        ("export", "--jobs", "2", "-o", elsewhere / "tables", capture),
    ):
        done = kafkasniff(*words)
        assert (done.code, done.out) == (Exit.UNAVAILABLE, b"")
        assert done.err == f"kafkasniff: {note}; {ADVICE}\n"
    assert kafkasniff("api", "Produce", "9").code == Exit.OK
    assert kafkasniff("--version").code == kafkasniff("decode", "--help").code == Exit.OK
    assert f"({note})" in capsys.readouterr().out


def test_it_is_not_used_with_other_sources(elsewhere: Path) -> None:
    with (elsewhere / "kernel" / "walk.zig").open("a") as file:
        file.write("// changed\n")
    refused("no native kernel: built from other sources")


def test_it_is_not_used_with_another_interface(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "ABI", library.ABI + 1)
    refused(f"no native kernel: its interface is {library.ABI - 1}, not {library.ABI}")


def test_files_that_are_missing_or_wrong(elsewhere: Path) -> None:
    file = elsewhere / "native" / library.FILE
    whole = file.read_bytes()
    for content, said in ((b"no library", "cannot be loaded"), (None, "not built")):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        library._find.cache_clear()
        assert said in library.kernel_note()
        refused(library.kernel_note())
        file.write_bytes(whole)
    # Where there are no sources, as in an installation, nothing shows that it was built from others.
    shutil.rmtree(elsewhere / "kernel")
    library._find.cache_clear()
    assert library.kernel().identity
    assert library.kernel_note().startswith("native kernel ")
