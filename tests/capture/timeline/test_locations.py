"""Finding captures: paths, folders, patterns, and an object store that moto plays on this machine."""

from __future__ import annotations

import gzip
import lzma
import os
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.capture.timeline.locations import (
    captures_among,
    find_captures,
    list_captures,
    open_capture,
    with_folders,
)
from kafkasniff.errors import CaptureError, UsageError
from tests.object_store import CAPTURE, boto3_client, bucket

__all__ = ["bucket"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.pcap", "a.pcap", "day-1/c.pcap", "day-2/c.pcap", "day-2/d.pcapng", "day-[2]/e.pcap"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(CAPTURE)
    (tmp_path / "z.pcap.gz").write_bytes(gzip.compress(CAPTURE))
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"no capture"))
    (tmp_path / "notes.txt").write_text("no capture, but long enough to be taken for one")
    (tmp_path / "empty.pcap").write_bytes(b"")
    for hidden in (".hidden.pcap", "_temporary.pcap"):
        (tmp_path / hidden).write_bytes(CAPTURE)
    return tmp_path


def found(folder: Path, *paths: str) -> list[str]:
    files = find_captures([str(folder / path) for path in paths])
    assert all(Path(file.path).stat().st_size == file.size for file in files)
    return [os.path.relpath(file.name, folder) for file in files]


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*.pcap", ["a.pcap", "b.pcap", "empty.pcap"]),
        ("[ab].pcap", ["a.pcap", "b.pcap"]),
        ("?.pcap", ["a.pcap", "b.pcap"]),
        ("day-?/*.pcap*", ["day-1/c.pcap", "day-2/c.pcap", "day-2/d.pcapng"]),
        ("*/d.*", ["day-2/d.pcapng"]),
        ("day-[[]2]/*", ["day-[2]/e.pcap"]),
    ],
)
def test_patterns(folder: Path, pattern: str, files: list[str]) -> None:
    assert found(folder, pattern) == files


def test_a_file_uri_and_a_path_from_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [file.path for file in find_captures([f"file://{folder}/a.pcap"])] == [f"{folder}/a.pcap"]
    monkeypatch.chdir(folder)
    (by_pattern,) = find_captures(["a.*"])
    (by_name,) = find_captures(["a.pcap"])
    assert by_pattern == by_name
    assert (by_name.name, by_name.path) == ("a.pcap", f"{folder}/a.pcap")
    monkeypatch.chdir("/")
    assert open_capture(by_name)(0, 4) == CAPTURE[:4]


def test_what_is_not_there(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    for path, reported in [
        ("c.pcap", "cannot be opened .No such file or directory"),
        ("*.cap", "no file matches"),
        ("none", "contains neither captures"),
        ("none/*/x", "no file matches"),
        ("a.pcap/x", "cannot be opened .Not a directory"),
    ]:
        with pytest.raises(CaptureError, match=reported) as error:
            find_captures([str(folder / path)])
        assert str(folder / path) in str(error.value)
    with pytest.raises(UsageError):
        find_captures([])


def test_files_are_listed_without_opening_any(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opens(*_: object) -> NoReturn:
        raise AssertionError("opened")

    with monkeypatch.context() as patch:
        patch.setattr("kafkasniff.capture.timeline.locations.open_capture", opens)
        files = list_captures([str(folder), str(folder / "notes.txt")], by_name=True)
    assert [(Path(file.name).name, file.doubtful) for file in files] == [
        *(("a.pcap", False), ("b.pcap", False), ("empty.pcap", False), ("notes.txt", True), ("x.gz", True)),
        *(("z.pcap.gz", False), ("notes.txt", False)),
    ]
    assert {file.doubtful for file in list_captures([str(folder)])} == {True}
    # The same in two steps. A file that is named counts, whatever a look at its folder says.
    answers = [not file.doubtful for file in files]
    named = [Path(file.name).name for file in captures_among(files, answers)]
    assert named == ["a.pcap", "b.pcap", "empty.pcap", "z.pcap.gz", "notes.txt"]
    with pytest.raises(CaptureError, match="contains neither captures"):
        captures_among(files, [file.folder is None for file in files])


@pytest.mark.extended
@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("day-2/a.pcap", ["day-2/a.pcap"]),
        ("day-1", ["day-1/a.pcap", "day-1/b.pcap", "day-1/c.pcap.gz"]),
        ("day-1/", ["day-1/a.pcap", "day-1/b.pcap", "day-1/c.pcap.gz"]),
        ("day-*/[a].pcap", ["day-1/a.pcap", "day-2/a.pcap"]),
        ("*/?.pcap", ["day-1/a.pcap", "day-1/b.pcap", "day-2/a.pcap"]),
    ],
)
def test_captures_in_an_object_store(bucket: str, path: str, keys: list[str]) -> None:
    files = find_captures([bucket.format(path)])
    assert [file.name for file in files] == [f"s3://captures/{key}" for key in keys]
    assert all("endpoint_override" in file.path for file in files)
    for file in files:
        read_at = open_capture(file)
        start = CAPTURE[:4] if file.name.endswith("p") else b"\x1f\x8b"
        assert read_at(0, len(start)) == start
        assert read_at(file.size - 3, 10) == read_at(0, file.size)[-3:]


@pytest.mark.extended
def test_an_object_that_was_replaced_is_not_taken_for_the_one_that_was_planned(bucket: str) -> None:
    client = boto3_client(bucket)
    (file,) = find_captures([bucket.format("day-2/a.pcap")])
    first = open_capture(file)
    assert first.version is None
    first(0, 4)
    planned = msgspec.structs.replace(file, version=first.version)
    assert open_capture(planned)(0, len(CAPTURE)) == CAPTURE
    client.put_object(Bucket="captures", Key="day-2/a.pcap", Body=CAPTURE[:-1] + b"x")
    again = open_capture(planned)
    for _ in range(2):
        with pytest.raises(CaptureError, match=r"day-2/a\.pcap: was changed after it was planned; repeat the run"):
            again(0, 4)
    client.put_object(Bucket="captures", Key="day-2/a.pcap", Body=CAPTURE)


def test_content_decides_what_is_a_capture(folder: Path) -> None:
    (folder / "empty.pcap").unlink()
    (folder / "packed").write_bytes(lzma.compress(CAPTURE))
    os.mkfifo(folder / "pipe.pcap")
    names = ["a.pcap", "b.pcap", "packed", "z.pcap.gz"]
    assert with_folders([str(folder)]) == [str(folder / name) for name in names]
    with open_captures([folder]) as source:
        assert sum(batch.packets for batch in source) == 4 * 40
    # Files, folders, addresses and patterns mix in their order.
    inner = str(folder / "day-1" / "c.pcap")
    assert with_folders(["-", inner, str(folder)]) == ["-", inner, *with_folders([str(folder)])]
    listed = with_folders([f"file://{folder}/b.pcap", f"{folder}/?.pcap*"])
    assert [Path(path).name for path in listed] == ["b.pcap", "a.pcap", "b.pcap", "z.pcap.gz"]
    # A file of that name is not a pattern.
    odd = folder / "[1].pcap"
    odd.write_bytes(CAPTURE)
    assert with_folders([str(odd)]) == [str(odd)]
    with pytest.raises(CaptureError, match="no file matches"):
        with_folders([f"{folder}/*.cap"])
    # Whether a remote capture is there is not asked yet.
    assert with_folders(["s3://bucket/a.pcap"]) == ["s3://bucket/a.pcap"]
