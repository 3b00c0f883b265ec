from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.capture.formats.pcap import Interface
from kafkasniff.capture.live.frames import Frames
from kafkasniff.capture.write.capture_writer import packet_blocks
from kafkasniff.capture.write.output_files import CaptureFiles, Rotation
from kafkasniff.errors import OutputError, UsageError
from tests.capture.fake_interface import raw_packets
from tests.capture.files import START
from tests.capture.reading import Result, collect

ETHERNET = (Interface(1, 0, "eth0", 262_144),)


NOON = 43_200.0
"""1970-01-01 12:00 UTC."""


def files(
    name: Path,
    rotation: Rotation,
    *,
    now: Sequence[float] = (NOON,),
    counts: Sequence[tuple[int, int]] = ((0, 0),),
    said: list[str] | None = None,
) -> CaptureFiles:
    """`now` and `counts`: what the clock and the kernel say, which the test may change."""
    failed = ([] if said is None else said).append
    return CaptureFiles(str(name), ETHERNET, rotation, counts=lambda: list(counts), failed=failed, clock=lambda: now[0])


def write(target: CaptureFiles, *sizes: int) -> None:
    """Write packets of these sizes; the bytes of each repeat its size."""
    target.write(
        packet_blocks(Frames.plain(raw_packets([(bytes([size % 251]) * size, size, START) for size in sizes])))
    )


def read(path: Path) -> Result:
    with open_captures([path]) as source:
        result = collect(source)
    assert not source.broken
    return result


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize(
    ("count", "kept"),
    [
        (None, ["x.cap", *(f"x.cap{number}" for number in range(1, 13))]),
        (1, ["x.cap"]),
        (2, ["x.cap0", "x.cap1"]),
        (10, [f"x.cap{number}" for number in range(10)]),
        (11, [f"x.cap{number:02}" for number in range(11)]),
    ],
)
def test_names_by_size_are_those_of_tcpdump(count: int | None, kept: list[str], tmp_path: Path) -> None:
    """As `tcpdump -C 1 -W count` names 13 files; the later ones replace the first ones."""
    with files(tmp_path / "x.cap", Rotation(size=1_000, files=count)) as target:
        for number in range(13):
            write(target, 1_000 + number)
    assert names(tmp_path) == sorted(kept)
    found = sorted(size for name in kept for size in sizes(tmp_path / name))
    assert found == [1_000 + number for number in range(13)][-len(kept) :]


def sizes(path: Path) -> list[int]:
    from scapy.utils import RawPcapReader

    with RawPcapReader(str(path)) as reader:
        return [len(data) for data, _ in reader]


@pytest.mark.parametrize("together", [True, False])
def test_a_packet_opens_a_file_when_the_current_one_exceeds_the_size(together: bool, tmp_path: Path) -> None:
    """As in tcpdump, for any batches of packets: a file exceeds the size by less than one packet."""
    with files(tmp_path / "x", Rotation(size=1_000)) as target:
        sizes = [300] * 10
        if together:
            write(target, *sizes)
        else:
            for size in sizes:
                write(target, size)
    assert names(tmp_path) == ["x", "x1", "x2", "x3"]
    assert [read(tmp_path / name).packets for name in names(tmp_path)] == [3, 3, 3, 1]
    assert target.packets == 10
    assert target.made == 4


def test_files_are_private_to_their_owner_and_replace_existing_ones(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"something older")
    path.chmod(0o644)
    with path.open("rb") as older, files(path, Rotation()) as target:
        write(target, 60)
        assert path.stat().st_mode & 0o777 == 0o600
        assert older.read() == b"something older"
    assert read(path).packets == 1


def test_existing_names_that_are_not_files_are_kept(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "link", Path("/dev/null"), tmp_path / "missing" / "x"):
        if path.name == "link":
            path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OutputError, match="cannot write"):
            files(path, Rotation())
    assert not (tmp_path / "elsewhere").exists()


def test_files_by_time(tmp_path: Path) -> None:
    now = [NOON]
    with files(tmp_path / "%H%M%S.cap", Rotation(seconds=60), now=now) as target:
        for wait in (25, 25, 25, 25, 325, 0):
            write(target, 60)
            now[0] += wait
    assert names(tmp_path) == ["120000.cap", "120115.cap", "120705.cap"]
    assert [read(tmp_path / name).packets for name in names(tmp_path)] == [3, 2, 1]


def test_files_by_time_and_size_with_a_ring(tmp_path: Path) -> None:
    now = [NOON]
    with files(tmp_path / "%M.cap", Rotation(size=500, seconds=60, files=3), now=now) as target:
        for _ in range(4):
            write(target, 400, 400)
            now[0] += 45
    assert names(tmp_path) == ["01.cap1", "01.cap2", "01.cap3"]
    with files(tmp_path / "%M.dump", Rotation(seconds=60, files=2), now=now) as target:
        for _ in range(4):
            write(target, 400)
            now[0] += 60
    assert len([name for name in names(tmp_path) if name.endswith(".dump")]) == 2


@pytest.mark.parametrize(
    ("name", "rotation"), [("x", Rotation(files=3)), ("x", Rotation(seconds=5)), ("100%%", Rotation(seconds=5))]
)
def test_invalid_rotations(name: str, rotation: Rotation, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        files(tmp_path / name, rotation)
    assert names(tmp_path) == []


def test_each_file_counts_its_own_losses(tmp_path: Path) -> None:
    counts = [(0, 0)]
    with files(tmp_path / "x", Rotation(size=100), counts=counts) as target:
        write(target, 600)
        counts[0] = 10, 4
        write(target, 600)
        write(target, 600)
        counts[0] = 30, 9
    found = [read(tmp_path / name) for name in names(tmp_path)]
    reported = [found[place].problem("capture-loss").detail for place in (0, 2)]
    assert [re.findall(r" (\d+) packets", detail) for detail in reported] == [["4"], ["5"]]
    assert found[1].notes == []


@pytest.mark.parametrize("room", [0, 1, 50, 91, 92, 93, 500])
def test_a_full_disk_leaves_a_whole_file(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    target = files(tmp_path / "x", Rotation(), said=said)
    write(target, 60, 61)
    left = room
    real = os.write

    def full(descriptor: int, data: memoryview) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = real(descriptor, data[:left])
        left -= taken
        return taken

    monkeypatch.setattr("kafkasniff.capture.write.output_files.os.write", full)
    write(target, *[60] * 10)
    assert target.broken
    write(target, 60)
    target.close()
    (line,) = said
    assert line.startswith(f"cannot write {tmp_path / 'x'}: No space left on device")
    result = read(tmp_path / "x")
    assert (result.packets, target.packets, result.kinds) == (2, 2, [])


def test_a_full_disk_at_the_end_or_at_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    said: list[str] = []
    target = files(tmp_path / "x", Rotation(size=100), said=said)
    write(target, 600)
    with monkeypatch.context() as patch:
        patch.setattr("kafkasniff.capture.write.output_files.os.write", full)
        target.close()
    assert len(said) == 1
    assert read(tmp_path / "x").packets == 1
    with monkeypatch.context() as patch:
        patch.setattr("kafkasniff.capture.write.output_files.os.write", full)
        with pytest.raises(OutputError, match="No space left"):
            files(tmp_path / "y", Rotation())


def test_a_pipe_is_written_to_unless_files_rotate(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OutputError, match="it exists and is not a file"):
        files(pipe, Rotation(size=1000))
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(pipe.read_bytes)
        with files(pipe, Rotation()) as target:
            write(target, 100)
            target.close()
        assert reading.result()[:4] == b"\x0a\x0d\x0d\x0a"
