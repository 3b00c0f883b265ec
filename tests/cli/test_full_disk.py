"""Really full disks: a file system of a few kilobytes in a private mount namespace."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from tests.choice import in_turn
from tests.cli.console import kafkasniff
from tests.conftest import missing
from tests.tables.exports.exported import Rows, tables

pytestmark = [pytest.mark.root, pytest.mark.extended]
FULL = "No space left on device"


class Disk:
    """A small file system. `path` leads into it, even from other namespaces."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self.path = Path(f"/proc/{process.pid}/root{folder}")

    def resize(self, kilobytes: int) -> None:
        self._process.stdin.write(f"{kilobytes}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


@pytest.fixture
def disk(tmp_path: Path, require_tool: Callable[[str], str]) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    # Ends at the end of its stdin.
    script = (
        'mount -t tmpfs -o size=16k tmpfs "$1" && echo done; '
        'while read -r size; do mount -o "remount,size=${size}k" "$1" && echo done; done'
    )
    words = [require_tool("unshare"), "--mount", "sh", "-c", script, "sh", str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline() != "done\n":
                missing("mount namespaces need root or CAP_SYS_ADMIN")
            yield Disk(process, folder)
        finally:
            process.stdin.close()
            process.wait(timeout=120)


@pytest.fixture(scope="module")
def whole(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """The tables of an export that had enough room."""
    folder = tmp_path_factory.mktemp("whole")
    assert kafkasniff("export", capture, "-q", "-o", folder).code == 0
    return tables(folder)


@pytest.mark.parametrize(("size", "jobs"), in_turn([20, 60, 100], [1, 2], 2))
def test_export_and_once_more(jobs: int, size: int, capture: Path, disk: Disk, whole: dict[str, Rows]) -> None:
    """Wherever the disk fills up, only whole tables remain, and the next run needs only room."""
    disk.resize(size)
    folder = disk.path / "out"
    result = kafkasniff("export", capture, "-o", folder, "--jobs", jobs)
    assert result.code == Exit.UNAVAILABLE
    assert result.err == f"kafkasniff: cannot write {folder}: {FULL}\n"
    assert not (folder / "manifest.json").exists()
    assert not list(folder.glob("*/date=*/*.parquet"))
    disk.resize(20_000)
    assert kafkasniff("export", capture, "-q", "-o", folder, "--jobs", jobs).code == 0
    assert tables(folder) == whole
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []
