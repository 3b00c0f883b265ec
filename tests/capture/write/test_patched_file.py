"""A file that may be overwritten until it appears complete under its name."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.write import patched_file
from kafkasniff.capture.write.patched_file import FILE_MODE, PatchedFile
from kafkasniff.errors import OutputError

actions = st.lists(st.tuples(st.sampled_from(["append", "settle", "patch"]), st.binary(max_size=6), st.integers(0, 99)))


@given(actions)
def test_against_bytes_in_memory(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes, int]]) -> None:
    path, expected = tmp_path_factory.mktemp("patched") / "out", bytearray()
    with PatchedFile(str(path)) as file:
        for action, data, number in steps:
            if action == "append":
                assert file.append(data) == len(expected)
                expected += data
            elif action == "settle":
                file.settle(everything=True)
                assert file.settled == len(expected)
            elif data and len(data) <= len(expected):
                # A patch lies on one side of the border.
                low, high = (0, file.settled) if number % 2 else (file.settled, len(expected))
                if high - low >= len(data):
                    at = low + number % (high - low - len(data) + 1)
                    file.patch(at, data)
                    expected[at : at + len(data)] = data
                    assert file.read(at, len(data)) == data
            assert file.size == len(expected)
        assert not path.exists()
        file.commit()
    assert path.read_bytes() == expected
    assert os.listdir(path.parent) == ["out"]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before")
    path.chmod(0o644)
    with PatchedFile(str(path)) as file:
        file.append(b"after")
        assert path.read_bytes() == b"before"
        file.commit()
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == FILE_MODE


def test_without_a_commit_nothing_is_left(tmp_path: Path) -> None:
    with PatchedFile(str(tmp_path / "out")) as file:
        file.append(b"data")
        file.settle(everything=True)
        assert len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == []
    file.close()


def test_recent_data_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patched_file, "KEPT", 10)
    with PatchedFile(str(tmp_path / "out")) as file:
        file.append(bytes(10))
        file.settle()
        assert file.settled == 0
        file.append(b"\1")
        file.settle()
        assert file.settled == 11


@pytest.mark.parametrize("name", ["missing/out", "", "folder"])
def test_what_cannot_be_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match=r"^cannot write "):
        PatchedFile(str(tmp_path / name))
    assert os.listdir(tmp_path) == ["folder"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Another user could have put it there for a name that can be guessed."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    (tmp_path / f".out.{os.getpid()}.partial").symlink_to(victim)
    with pytest.raises(OutputError):
        PatchedFile(str(tmp_path / "out"))
    assert victim.read_bytes() == b"untouched"


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with PatchedFile(str(tmp_path / "out")) as file:
        file.append(b"data")
        monkeypatch.setattr(os, "pwrite", fails)
        with pytest.raises(OutputError, match="No space left on device"):
            file.commit()
    assert os.listdir(tmp_path) == []
