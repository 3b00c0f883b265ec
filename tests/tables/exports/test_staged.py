"""Staged files as memory: pages are released after reading and can be read again."""

from pathlib import Path

from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.exports.staged import MappedFiles
from tests.conftest import missing

SIZE = 8 << 20


def resident(path: Path) -> int:
    """Bytes of a mapped file that are resident in this process, according to the kernel."""
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    except OSError:
        missing("no /proc/self/smaps")
    at = next(number for number, line in enumerate(lines) if line.endswith(str(path)))
    return next(int(line.split()[1]) * 1024 for line in lines[at:] if line.startswith("Rss:"))


def test_pages_are_released_after_reading(tmp_path: Path) -> None:
    path = tmp_path / "staged"
    content = bytes(range(256)) * (SIZE // 256)
    path.write_bytes(content)
    files = MappedFiles()
    buffer = files.view(open_own_folder(tmp_path) / "staged")
    assert buffer.to_pybytes() == content
    assert resident(path) == SIZE
    files.release()
    assert resident(path) == 0
    assert buffer.slice(SIZE - 256).to_pybytes() == bytes(range(256))
    assert 0 < resident(path) < SIZE
