"""Captures that tasks look at: what the driver gets to know of them, and what that costs."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from benchmarks.delayed_store import CAPTURE, CREDENTIALS, delayed_store
from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import read_notes
from kafkasniff.errors import CaptureError
from kafkasniff.spark.options import PIPELINE
from kafkasniff.spark.source import PacketQuery, look_at_captures, parts_of, plan_looked_at, read_part
from kafkasniff.tables.exports.captures import Exported
from tests.capture.timelines import make_captures

CAPTURES = Path(__file__).parents[2] / "captures"


def mixed(folder: Path) -> list[str]:
    """Captures of all kinds, and files that are not captures."""
    paths = make_captures(folder, 8, damage=True)
    packed, empty, other = (folder / name for name in ("packed.pcap.gz", "empty.pcap", "other.pcap"))
    packed.write_bytes(gzip.compress((CAPTURES / "java-telemetry.pcap").read_bytes(), 0))
    empty.write_bytes(b"")
    other.write_bytes(b"no capture at all, but long enough")
    return [*map(str, paths), str(packed), str(empty), str(CAPTURES / "librdkafka-ipv6-ns.pcapng"), str(other)]


def exported(paths: Sequence[str]) -> Exported:
    """An export of some captures, and of the beginning of another."""
    captures = [one.look.capture for one in look_at_captures(None, find_captures(paths), 1 << 20, Exported())]
    return Exported(captures[:1], captures[1:])


@pytest.mark.parametrize("in_tasks", [False, pytest.param(True, marks=pytest.mark.extended)], ids=["threads", "tasks"])
def test_what_is_found_of_captures(
    in_tasks: bool, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkasniff.spark.source.FEW_BYTES", -1)
    paths = mixed(tmp_path)
    begin = tmp_path / "begin.pcap"
    begin.write_bytes(Path(paths[1]).read_bytes()[:-100])
    done = exported([str(begin), paths[2]])
    files = find_captures(paths)
    found = look_at_captures(None, files, 5_000, done)
    if in_tasks:
        assert look_at_captures(request.getfixturevalue("spark"), files, 5_000, done) == found
    assert [msgspec.structs.replace(one.file, version=None) for one in found] == files
    assert [one.look.grown for one in found] == [False, True] + [False] * (len(files) - 2)
    flawed = [Path(one.file.path).name for one in found if one.look.flaw is not None]
    assert flawed == ["empty.pcap", "other.pcap"]
    # Captures that are bad, have grown or are in the export are not walked.
    unread = [Path(one.file.path).name for one in found if not one.pieces]
    assert sorted(unread) == sorted([*flawed, *(Path(path).name for path in paths[1:3])])
    assert max(len(one.pieces) for one in found) > 1
    with pytest.raises(CaptureError, match=r"empty\.pcap: is empty"):
        plan_looked_at(look_at_captures(None, files, 5_000))


def test_a_capture_that_changes_while_it_is_planned_has_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pcap"
    shutil.copy(CAPTURE, path)
    read = os.pread

    def changed(descriptor: int, size: int, offset: int, /) -> bytes:
        os.utime(path, ns=(offset, offset))
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", changed)
    with pytest.raises(CaptureError, match=r"a\.pcap: was changed while it was planned; repeat the run"):
        look_at_captures(None, find_captures([str(path)]), 40_000)


@pytest.fixture
def store_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def address(port: int) -> str:
    """With keys: Spark's workers know the environment of their start only."""
    return f"s3://key:secret@b/day?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"


@pytest.mark.extended
@pytest.mark.usefixtures("store_keys")
def test_a_small_remote_capture_takes_one_request_besides_that_for_its_size() -> None:
    with delayed_store(50, 0.0, CAPTURE.read_bytes()) as (port, stopped):
        looked_at = look_at_captures(None, find_captures([address(port)], by_name=True), 128 << 20, Exported())
        captures = plan_looked_at(looked_at)
        assert read_notes(captures, open_capture) == []
        (part,) = parts_of(captures, 128 << 20)
        rows = sum(batch.num_rows for batch in read_part(part, PacketQuery(PIPELINE)))
        found = stopped()
    assert rows == sum(split.packets for split in captures.splits) > 0
    # Half of them to plan, half to read.
    assert found["GET"] == 100
    assert found["HEAD"] <= 102
