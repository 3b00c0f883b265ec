"""Really full disks: a file system of a few kilobytes in a private mount namespace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from tests.capture.fake_interface import Captured, FakeInterface, captured
from tests.choice import in_turn
from tests.cli.console import kafkasniff
from tests.conftest import missing
from tests.craft.samples import mixed
from tests.craft.write import LINKS, link_bytes
from tests.tables.exports.exported import Rows, tables

pytestmark = pytest.mark.root
FULL = "No space left on device"


class Disk:
    """A small file system. `path` leads into it, even from other namespaces."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self.path = Path(f"/proc/{process.pid}/root{folder}")

    def resize(self, kilobytes: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
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
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "done\n":
                missing("mount namespaces need root or CAP_SYS_ADMIN")
            yield Disk(process, folder)
        finally:
            process.stdin.close()
            process.wait(timeout=120)


@pytest.mark.parametrize("jobs", [1, 2])
def test_decode(jobs: int, capture: Path, disk: Disk) -> None:
    path = disk.path / "lines"
    arguments = ["decode", "--format", "json", "--jobs", jobs, capture]
    whole = kafkasniff(*arguments)
    assert whole.code == 0
    result = kafkasniff(*arguments, "-o", path)
    assert result.code == Exit.UNAVAILABLE
    assert result.err == f"kafkasniff: {path} is incomplete\nkafkasniff: cannot write {path}: {FULL}\n"
    written = path.read_bytes()
    assert 0 < len(written) < len(whole.out)
    assert whole.out.startswith(written)


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


def packets() -> list[Captured]:
    return [(*link_bytes(packet, LINKS["ethernet"]), packet.time_ns) for packet in mixed()]


@pytest.fixture
def interface(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(name: str, capture: int, **_: Any) -> FakeInterface:
        return FakeInterface(name, capture, packets(), (11,))

    monkeypatch.setattr("kafkasniff.capture.live.live.InterfaceSocket", opened)
    monkeypatch.setattr("kafkasniff.capture.live.live.JOIN_BYTES", 0)


def live(*options: object) -> Any:
    return kafkasniff("live", "-i", "eth0", "--format", "json", "--duration", "0.3", *options)


@pytest.mark.parametrize("rotation", [(), ("-C", "4k"), ("-C", "4k", "-W", "2")])
def test_live_files(rotation: tuple[str, ...], interface: None, disk: Disk) -> None:
    """The file has only whole packets, and the output is complete."""
    whole = live()
    result = live("-w", disk.path / "kept", "--write-all", *rotation)
    assert result.out == whole.out
    if "-W" in rotation:  # room for two
        assert result.code == 0
    else:
        assert result.code == Exit.UNAVAILABLE
        assert result.err.count(FULL) == 1
    kept: list[Captured] = []
    for path in sorted(disk.path.iterdir(), key=lambda path: (len(path.name), path.name)):
        if path.stat().st_size:
            kept += captured(path)
            assert kafkasniff("decode", path).code == 0
    assert kept
    assert {*kept} <= {*packets()}
    if not rotation:
        assert kept == packets()[: len(kept)]


def test_live_tables(interface: None, disk: Disk, tmp_path: Path) -> None:
    folder = disk.path / "out"
    result = live("-q", "--export", folder)
    assert result.code == Exit.UNAVAILABLE
    assert result.err == f"kafkasniff: cannot write {folder}: {FULL}\n"
    assert not (folder / "manifest.json").exists()
    assert not list(folder.glob("*/date=*/*.parquet"))
    disk.resize(20_000)
    assert live("-q", "--export", folder).code == 0
    assert json.loads((folder / "manifest.json").read_bytes())["runs"] == 1
