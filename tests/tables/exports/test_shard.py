"""A shard of a run: its checkpoints, resuming from any of them, and checkpoints that do not fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafkasniff.model import Problem
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.checkpoint import Carried
from kafkasniff.tables.exports import shard as module
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import CHECKPOINT, Hooks, ReadingProgress, ShardResult, ShardTask, parts, run_shard
from kafkasniff.tables.exports.staged import DamagedRunError, StagedTable
from kafkasniff.tables.exports.staging import first_states
from kafkasniff.tables.rows import TABLE_NAMES
from tests.choice import one_in
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.craft.write import write_rotated
from tests.tables.exports.exported import Rows
from tests.tables.exports.stored import KilledError


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The crafted conversations in three files: connections span all of them."""
    return write_rotated(tmp_path_factory.mktemp("rotated"), mixed())


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small captures are not read together: a part for the packets of each, and an empty one after it."""
    monkeypatch.setattr(module, "FEW_BYTES", 0)


def task_of(captures: Sequence[Path], folder: Path, options: ExportOptions | None = None, **more: Any) -> ShardTask:
    options = options or ExportOptions()
    (state,) = first_states(Carried(), 1, options, {}, sessions=False)
    return ShardTask(
        folder=open_own_folder(folder, make=True) / "shard-00000",
        options=options,
        paths=tuple(map(str, captures)),
        state=state,
        **{"names": (), "order": 0, "checkpoint_seconds": 0.0, **more},
    )


def rows(result: ShardResult) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for table in TABLE_NAMES:
        batches = StagedTable([*result.staged, result.unfinished], table)._batches
        found[table] = sorted((row for one in batches for row in one.to_pylist()), key=repr)
    return found


@pytest.fixture(scope="module")
def whole(captures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """The rows of a run without checkpoints in between."""
    found = run_shard(task_of(captures, tmp_path_factory.mktemp("whole"), checkpoint_seconds=1e9), Hooks())
    assert len(found.staged) == 1
    assert len(rows(found)["exchanges"]) == 24
    return rows(found)


def test_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batch(mixed())
    monkeypatch.setattr(module, "MAX_PART_ROWS", 8)
    assert [len(part) for part in parts(whole)][:3] == [8, 8, 8]
    assert [len(part) for part in parts(whole, iter([0.5, 1.0, *itertools.repeat(2.0, 99)]))][:4] == [4, 8, 16, 16]
    monkeypatch.setattr(module, "MAX_PART_ROWS", 1 << 20)
    monkeypatch.setattr(module, "MAX_PART_BYTES", 2_000)
    found = list(parts(whole))
    # A part has the packet that exceeds the bound, of 1,448 bytes at most.
    assert len(found) > 5
    assert max(int(part.length.sum()) for part in found) <= 2_000 + 1_448
    numbers = [number for part in found for number in part.number.tolist()]
    assert numbers == whole.number.tolist()


def test_checkpoints_change_no_row(captures: list[Path], whole: dict[str, Rows], tmp_path: Path) -> None:
    """With a checkpoint after each capture."""
    found = run_shard(task_of(captures, tmp_path), Hooks())
    assert [one.name for one in found.staged] == ["staged-00000", "staged-00001", "staged-00002"]
    assert rows(found) == whole
    assert not found.broken
    assert found.order == len(mixed())
    assert found.summary.requests == 24


def killed_after(task: ShardTask, parts: int) -> None:
    seen = itertools.count(1)

    def part() -> None:
        if next(seen) == parts:
            raise KilledError

    with pytest.raises(KilledError):
        run_shard(task, Hooks(part=part))


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize(("after", "done"), one_in(2, [(1, 0), (3, 1), (5, 2)], 1))
def test_a_killed_run_is_resumed(
    captures: list[Path], whole: dict[str, Rows], tmp_path: Path, after: int, done: int
) -> None:
    """It reads only the captures that were not read completely. Each has a part of packets, and an empty one."""
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(captures[0].read_bytes()[:-3])
    problem = Problem("capture-cut", "it ends within a packet", capture="old.pcap")
    for some, problems in ((captures, ()), ([cut, *captures[1:]], (problem,))):
        task = task_of(some, tmp_path / f"{len(problems)}", problems=problems)
        killed_after(task, after)
        opened: list[ReadingProgress] = []
        found = run_shard(task, Hooks(opened=opened.append))
        sizes = [path.stat().st_size for path in some]
        assert [one.bytes_total for one in opened] == [sum(sizes[done:])]
        # The capture is still truncated, and problems of others are reported once.
        assert found.broken == bool(problems)
        reported = [row["capture"] for row in rows(found)["problems"] if row["kind"] == "capture-cut"]
        assert reported.count("old.pcap") == len(problems)
        if not problems:
            assert rows(found) == whole
            assert found.summary.requests == 24
        assert len(opened) == 1
        again = run_shard(task, Hooks(opened=opened.append))
        assert (rows(again), again.order, len(opened)) == (rows(found), found.order, 1), "a finished shard was read"


def changed(folder: Path, **changes: Any) -> None:
    path = folder / "shard-00000" / CHECKPOINT
    path.write_bytes(msgspec.msgpack.encode({**msgspec.msgpack.decode(path.read_bytes()), **changes}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"done": [0, 1, 5]}, "belongs to other captures"),
        ({"done": [1, 0]}, "belongs to other captures"),
        ({"rows": 5}, "rows are staged, not 5"),
        ({"segments": 1}, "rows are staged, not"),
        ({"segments": 1 << 40}, "is damaged"),
        ({"segments": -1}, "is damaged"),
        ({"order": -1}, "is damaged"),
        ({"state": b"nothing"}, "is damaged"),
        ({"done": "all"}, "is damaged"),
        ({}, "other options"),
    ],
    ids=str,
)
def test_checkpoints_that_do_not_fit(
    captures: list[Path], tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    # The writer of the file must not decide whether secrets are shown.
    options = ExportOptions(show_secrets=reason == "other options")
    run_shard(task_of(captures, tmp_path, options=options), Hooks())
    changed(tmp_path, **changes)
    with pytest.raises(DamagedRunError, match=reason):
        run_shard(task_of(captures, tmp_path), Hooks())
