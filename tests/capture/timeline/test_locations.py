"""Finding captures: paths, folders, patterns, and an object store that moto plays on this machine."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from threading import Barrier
from typing import NoReturn

import msgspec
import pytest

from kafkasniff.capture.timeline.locations import (
    READ_AT_ONCE,
    Location,
    captures_among,
    find_captures,
    for_each,
    list_captures,
    listed,
    open_capture,
)
from kafkasniff.capture.timeline.parts import plan_captures, read_split
from kafkasniff.errors import CaptureError, UsageError
from tests.capture.reading import Row
from tests.capture.segments import numbers
from tests.capture.timelines import expected, placed_rows
from tests.object_store import CAPTURE, boto3_client, bucket

__all__ = ["bucket"]

PAYLOAD = Row._fields.index("payload")


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


def test_a_folder_holds_captures_and_other_things(folder: Path) -> None:
    assert found(folder, "") == ["a.pcap", "b.pcap", "z.pcap.gz"]


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


def test_in_the_order_given_and_each_once(folder: Path) -> None:
    assert found(folder, "z.pcap.gz", "a.pcap", "?.pcap") == ["z.pcap.gz", "a.pcap", "b.pcap"]


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
        ("a.pcap", False),
        ("b.pcap", False),
        ("empty.pcap", False),
        ("notes.txt", True),
        ("x.gz", True),
        ("z.pcap.gz", False),
        ("notes.txt", False),
    ]
    assert {file.doubtful for file in list_captures([str(folder)])} == {True}
    # The same in two steps. A file that is named counts, whatever a look at its folder says.
    answers = [not file.doubtful for file in files]
    named = [Path(file.name).name for file in captures_among(files, answers)]
    assert named == ["a.pcap", "b.pcap", "empty.pcap", "z.pcap.gz", "notes.txt"]
    with pytest.raises(CaptureError, match="contains neither captures"):
        captures_among(files, [file.folder is None for file in files])


@pytest.mark.parametrize("order", [1, -1])
def test_a_folder_whose_only_capture_is_named_too(folder: Path, tmp_path: Path, order: int) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("a.pcap", "notes.txt"):
        (other / name).write_bytes((folder / name).read_bytes())
    paths = [str(other), str(other / "a.pcap")][::order]
    assert [file.path for file in find_captures(paths)] == [str(other / "a.pcap")]


def test_all_files_of_a_folder(folder: Path) -> None:
    names = [Path(file.name).name for file in listed(str(folder))]
    assert names == ["a.pcap", "b.pcap", "empty.pcap", "notes.txt", "x.gz", "z.pcap.gz"]
    assert [Path(file.name).name for file in listed(str(folder / "*.txt"))] == ["notes.txt"]
    with pytest.raises(CaptureError, match="cannot be listed"):
        listed(str(folder / "none"))


def test_addresses_in_parts() -> None:
    location = Location.of("s3a://key:secret@bucket/day/*.pcap?region=x&endpoint_override=y")
    assert location == Location("s3://key:secret@bucket", "/day/*.pcap", "?region=x&endpoint_override=y")
    assert location.name == "s3://bucket/day/*.pcap"
    assert location.at("/day/a.pcap").uri == "s3://key:secret@bucket/day/a.pcap?region=x&endpoint_override=y"
    assert Location.of("hdfs://name:8020/x").root == "hdfs://name:8020"
    # A question mark may be a pattern.
    assert Location.of("s3://bucket/a?.pcap") == Location("s3://bucket", "/a?.pcap", "")
    assert Location.of("a?=b") == Location("", "a?=b", "")


@pytest.mark.parametrize("address", ["nosuch://host/a.pcap", "s3:///a.pcap"])
def test_addresses_that_lead_nowhere(address: str) -> None:
    with pytest.raises(CaptureError, match="cannot be reached"):
        find_captures([address])


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


def test_parts_of_a_capture_in_an_object_store(bucket: str, tmp_path: Path) -> None:
    files = find_captures([bucket.format("day-1")])
    plan = plan_captures(files, open_capture, split_size=2_000)
    assert len(plan.splits) > 3
    rows = [
        row for split in plan.splits for row in placed_rows(read_split(split, open_capture(plan.files[split.capture])))
    ]
    paths = []
    for file in files:
        path = tmp_path / file.name.rpartition("/")[2]
        path.write_bytes(gzip.compress(CAPTURE) if path.suffix == ".gz" else CAPTURE)
        paths.append(path)
    assert [row for _, row in sorted(rows)] == expected(paths).rows
    assert sorted(numbers([row[PAYLOAD] for _, row in rows]))[::3] == list(range(40))


def test_an_object_that_is_not_there(bucket: str) -> None:
    for path, reported in [
        ("day-1/z.pcap", "cannot be opened"),
        ("none/*.pcap", r"cannot be listed|no file matches"),
        ("*/z", "no file matches"),
    ]:
        with pytest.raises(CaptureError, match=reported) as error:
            find_captures([bucket.format(path)])
        assert "endpoint_override" not in str(error.value)
        assert "\n" not in str(error.value)


def test_what_fails_far_away_is_not_taken_for_a_damaged_capture(bucket: str) -> None:
    (file,) = find_captures([bucket.format("day-2/a.pcap")])
    gone = open_capture(type(file)(file.name, file.path.replace("day-2/a", "day-2/gone"), file.size))
    with pytest.raises(CaptureError, match=r"day-2/gone\.pcap: cannot be read"):
        gone(0, 100)


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


def test_remote_files_are_looked_at_at_the_same_time() -> None:
    """Each call waits until all others have begun: one after the other, they would never end."""
    begun = Barrier(READ_AT_ONCE, timeout=30)

    def wait(number: int) -> int:
        begun.wait()
        return number * number

    assert list(for_each(wait, range(READ_AT_ONCE), remote=True)) == [number * number for number in range(READ_AT_ONCE)]


def test_local_files_are_looked_at_in_turn_and_no_further_than_needed() -> None:
    seen: list[int] = []
    results = for_each(seen.append, range(9), remote=False)
    next(results)
    next(results)
    assert seen == [0, 1]


def test_names_in_an_object_store_are_taken_as_they_are(bucket: str) -> None:
    client = boto3_client(bucket)
    for key in ("odd names/a b.pcap", "odd names/50%25.pcap"):
        client.put_object(Bucket="captures", Key=key, Body=CAPTURE)
    files = find_captures([bucket.format("odd names")])
    assert [Path(file.name).name for file in files] == ["50%25.pcap", "a b.pcap"]
    assert all(open_capture(file)(0, len(CAPTURE)) == CAPTURE for file in files)
