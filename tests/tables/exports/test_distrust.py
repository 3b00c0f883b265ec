"""Leftovers of an interrupted run are checked before use: damaged ones are made again, and that is reported."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.exports.finalise import finish
from kafkasniff.tables.exports.staged import DamagedRunError, check_staged
from kafkasniff.tables.rows.staged import STAGED
from tests.choice import one_in
from tests.tables.exports.exported import CAPTURES, files, manifest, named_files, run, tables

CAPTURE = CAPTURES / "java-group-share.pcap"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "out"
    run([CAPTURE], folder)
    return folder


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was killed after reading its capture and before making its tables."""
    folder = tmp_path_factory.mktemp("interrupted") / "out"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafkasniff.tables.exports.run.finish", killed)
        with pytest.raises(KeyboardInterrupt):
            run([CAPTURE], folder)
    assert (folder / ".partial" / "shard-00000" / "checkpoint").exists()
    return folder


@pytest.fixture
def out(interrupted: Path, tmp_path: Path) -> Path:
    shutil.copytree(interrupted, tmp_path / "out")
    return tmp_path / "out"


def staged(out: Path, table: str = "exchanges") -> Path:
    (path,) = out.glob(f".partial/shard-00000/staged-00000/{table}/*.arrow")
    return path


def batches(path: Path) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        return list(reader)


def write(path: Path, found: list[pa.RecordBatch], compression: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_stream(stream, found[0].schema, options=options) as writer:
        for batch in found:
            writer.write_batch(batch)


def with_column(path: Path, name: str, values: pa.Array) -> None:
    found = batches(path)
    place = found[0].schema.get_field_index(name)
    write(path, [batch.set_column(place, batch.schema.field(place), values[: len(batch)]) for batch in found])


def checkpoint(out: Path, **changes: Any) -> None:
    path = out / ".partial" / "shard-00000" / "checkpoint"
    path.write_bytes(msgspec.msgpack.encode({**msgspec.msgpack.decode(path.read_bytes()), **changes}))


def bad_text(out: Path) -> None:
    """Offsets of a string column that point beyond its data."""
    path = staged(out)
    found = batches(path)[0].slice(0, 2)
    offsets = pa.array([0, 1 << 30, 3], pa.int32()).buffers()[1]
    broken = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"api"))
    columns = [broken if name == "api" else found.column(name) for name in found.schema.names]
    write(path, [pa.RecordBatch.from_arrays(columns, schema=found.schema)])


def bad_index(out: Path) -> None:
    path = staged(out, "records")
    column = pa.DictionaryArray.from_arrays(pa.array([7] * 10_000, pa.int32()), pa.array(["a"]), safe=False)
    with_column(path, "topic", column)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "an empty file": lambda out: staged(out).write_bytes(b""),
    "no Arrow": lambda out: staged(out).write_bytes(b"x" * 1000),
    "cut": lambda out: staged(out).write_bytes(staged(out).read_bytes()[:-8]),
    "a message that is gone": lambda out: write(staged(out), [batch.slice(1) for batch in batches(staged(out))]),
    "a file that is gone": lambda out: staged(out).unlink(),
    "another schema": lambda out: shutil.copy(staged(out, "connections"), staged(out)),
    "compressed": lambda out: write(staged(out), batches(staged(out)), "zstd"),
    "text beyond its data": bad_text,
    "an index beyond its dictionary": bad_index,
    "no lists": lambda out: with_column(
        staged(out), "partitions", pa.nulls(10_000, STAGED["exchanges"].field("partitions").type)
    ),
    "what waits": lambda out: with_column(staged(out), "_pending", pa.array([b"\xc1"] * 10_000)),
    "a body": lambda out: (
        with_column(staged(out), "_pending", pa.array([msgspec.msgpack.encode([{}, True, None])] * 10_000)),
        with_column(staged(out), "request_body", pa.array(["{"] * 10_000)),
    ),
    "another file": lambda out: (staged(out).parent / "notes.txt").write_text("mine"),
    "another table": lambda out: staged(out).parent.rename(staged(out).parents[1] / "colours"),
    "no checkpoint": lambda out: (out / ".partial" / "shard-00000" / "checkpoint").write_bytes(b"x"),
    "rows that are not there": lambda out: checkpoint(out, rows=1),
    "no state": lambda out: checkpoint(out, state=b"x"),
}
"""More of checkpoints: test_shard.py."""


@pytest.mark.parametrize("damage", one_in(4, list(DAMAGE)))
def test_damaged_leftovers_are_made_again(damage: str, out: Path, whole: Path) -> None:
    DAMAGE[damage](out)
    result = run([CAPTURE], out)
    assert not result.resumed
    (notice,) = result.notices
    assert notice.startswith("the interrupted run cannot be resumed and was made again: ")
    assert tables(out) == tables(whole)
    assert files(out) == named_files(out)
    assert manifest(out)["runs"] == 1


@pytest.mark.parametrize("changes", [{"shards": 0}, {"shards": 1 << 20}, {"run": 1 << 70}], ids=str)
def test_numbers_of_a_plan_are_bounded(changes: dict[str, Any], out: Path, whole: Path) -> None:
    """Each shard would be a process."""
    plan = json.loads((out / ".partial" / "run.json").read_text())
    (out / ".partial" / "run.json").write_text(json.dumps({**plan, **changes}))
    assert not run([CAPTURE], out).resumed
    assert tables(out) == tables(whole)


def test_invalid_rows_are_made_again(out: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are complete and of the right types, so that the error appears only when they are put together."""

    def wrong(*_: object, **__: object) -> None:
        raise KeyError("missing")

    calls: list[Callable[..., Any]] = [wrong, finish]

    def first_wrong(*given: Any, **more: Any) -> Any:
        return calls.pop(0)(*given, **more)

    monkeypatch.setattr("kafkasniff.tables.exports.run.finish", first_wrong)
    result = run([CAPTURE], out)
    assert not calls
    assert "its rows are invalid (KeyError('missing'))" in result.notices[0]
    assert tables(out) == tables(whole)


def test_claimed_memory_is_not_allocated(tmp_path: Path) -> None:
    """Compressed buffers begin with their size: 1 EiB."""
    folder = open_own_folder(tmp_path)
    place = tmp_path / "problems"
    place.mkdir(parents=True)
    batch = pa.RecordBatch.from_pylist([{"detail": "x" * 5000}], schema=STAGED["problems"])
    write(place / "00000.arrow", [batch], "zstd")
    data = (place / "00000.arrow").read_bytes()
    size = struct.pack("<q", 5000)
    assert size in data
    (place / "00000.arrow").write_bytes(data.replace(size, struct.pack("<q", 1 << 60)))
    before = pa.total_allocated_bytes()
    with pytest.raises(DamagedRunError, match="it is compressed"):
        check_staged([folder], 1)
    assert pa.total_allocated_bytes() - before < 1 << 20
    write(place / "00000.arrow", [batch])
    check_staged([folder], 1)
