"""Files that stage 1 writes: the rows of stage 2, in windows; nothing is lost where rows are few or wait for a name."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from kafkasniff.capture import open_captures
from kafkasniff.enrich import Catalog
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.errors import KafkasniffError, OutputError
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.spark import record_files
from kafkasniff.spark.record_files import RecordFiles, RecordOutput
from kafkasniff.spark.shared_folder import SharedFolder, share
from kafkasniff.tables.exports.beginning import new_state
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import new_stager, stage, stage_rest
from kafkasniff.tables.rows.file_names import is_table_file, run_of
from kafkasniff.tables.rows.resolve import LearnedNames, Resolver
from kafkasniff.tables.rows.sessions import HeldSessions
from tests.tables.exports.exported import CAPTURES, Rows, StagedRows

OPTIONS = ExportOptions()
EVERYTHING = 1 << 30


def staged(capture: str, piece: int = 7) -> list[pa.RecordBatch]:
    """Staged rows of `records`, in small pieces."""
    kept, state = StagedRows(), new_state(OPTIONS, Catalog(), sessions=False)
    stager = new_stager(state, OPTIONS, None, kept)
    with open_captures([str(CAPTURES / capture)]) as source:
        for batch in source:
            stage(state, stager, batch)
            stager.flush()
    stage_rest(state, stager, kept)
    return [whole.slice(at, piece) for whole in kept.batches["records"] for at in range(0, len(whole), piece)]


@pytest.fixture(scope="module")
def batches() -> list[pa.RecordBatch]:
    """Their messages name topics, so no row waits for a name."""
    return staged("old-message-formats.pcap")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfinedPath]:
    """An output folder. In the end, nothing is left in the one for temporary files."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch))
    partial = open_own_folder(tmp_path / "out", make=True) / ".partial"
    partial.make_folder()
    yield partial
    assert list(scratch.iterdir()) == []


def limited(
    folder: ConfinedPath, *, window: int = EVERYTHING, least: int = 1_000, kind: type[SharedFolder] | None = None
) -> RecordOutput:
    """An output with these limits, as a task gets it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_files, "WINDOW_BYTES", window)
        patch.setattr(record_files, "SMALL_PART", least)
        shared = share(folder)
        output = RecordOutput(OPTIONS, shared if kind is None else kind(shared.path, shared._marker), 4)
    copy: RecordOutput = pickle.loads(pickle.dumps(output))
    return copy


def final(batches: Sequence[pa.RecordBatch]) -> Rows:
    """The rows of `records` of staged ones."""
    resolver = Resolver(LearnedNames(LearnedFacts()), HeldSessions(), repr)
    return [row for batch in batches for done in resolver.rows("records", batch) for row in done.to_pylist()]


@pytest.mark.parametrize("window", [EVERYTHING, pytest.param(2_500, marks=pytest.mark.extended)])
def test_windows_have_all_rows(batches: list[pa.RecordBatch], folder: ConfinedPath, window: int) -> None:
    """Only several windows are worth a process."""
    with RecordFiles(limited(folder, window=window), 3, 9) as files:
        assert sum(len(files.take(batch)) for batch in batches) == 0
        left = files.finish()
        assert (files._process is None) == (window == EVERYTHING)
    assert multiprocessing.active_children() == []
    found: Rows = []
    paths = [report.path for report in files.reports if report.path is not None]
    assert len(paths) > 2 * (window < EVERYTHING)
    for path in paths:
        attempt, _, name = path.partition("/")
        assert (attempt, is_table_file(name, "records"), run_of(name)) == ("attempt-9", True, 4)
        part = pq.ParquetFile(folder.path / path).read().to_pylist()
        keys = [[row[key] for key in ("api", "time", "connection_id", "exchange_id")] for row in part]
        assert keys == sorted(keys)
        found += part
    assert sorted([*found, *final(left)], key=repr) == sorted(final(batches), key=repr)
    assert 0 <= sum(batch.nbytes for batch in left) < 1_000
    days = [msgspec.msgpack.decode(report.days, type=dict[int, int]) for report in files.reports if report.days]
    assert sum(sum(counts.values()) for counts in days) == len(found) > 0
    assert {(report.part, report.open, report.table) for report in files.reports} == {(3, False, "records")}
    # Sorted and written at the same time, in folders of their own.
    assert sorted(path.name for path in folder.path.glob("attempt-9/*")) == ["records"]


def test_rows_whose_topic_may_become_known_go_on(folder: ConfinedPath) -> None:
    """Rows without an id as well as a name do not: no task learns more of them."""
    batch = staged("java-codecs.pcap", piece=1_000)[0]
    names = [None if row % 3 else "orders" for row in range(len(batch))]
    ids = [None if row % 3 == 2 else "AAAAAAAAAAAAAAAAAAAAAQ" for row in range(len(batch))]
    kind = batch.schema.field("topic").type
    for name, values in (("topic", names), ("topic_id", ids)):
        at = batch.schema.get_field_index(name)
        column = pa.array(values, pa.string()).dictionary_encode().cast(kind)
        batch = batch.set_column(at, batch.schema.field(at), column)
    with RecordFiles(limited(folder, least=EVERYTHING), 0, 0) as files:
        waiting = final([files.take(batch)])
        rest = final(files.finish())
    assert len(waiting) == len(range(1, len(batch), 3))
    assert {(row["topic"], row["topic_id"]) for row in waiting} == {(None, "AAAAAAAAAAAAAAAAAAAAAQ")}
    assert {(row["topic"], row["topic_id"] is None) for row in rest} == {("orders", False), (None, True)}
    assert sorted([*waiting, *rest], key=repr) == sorted(final([batch]), key=repr)


class FullDisk(SharedFolder):
    """An output that takes no file."""

    def deliver(self, into: ConfinedPath, files: Sequence[WrittenFile]) -> None:
        raise OutputError("no space left")


class Killed(SharedFolder):
    """Ends the process that uses it, unless that is the one of the task."""

    def deliver(self, into: ConfinedPath, files: Sequence[WrittenFile]) -> None:
        if multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("kind", "window", "message"),
    [
        # In the task for the last window, and in the process.
        (FullDisk, EVERYTHING, "no space left"),
        pytest.param(FullDisk, 2_000, "no space left", marks=pytest.mark.extended),
        pytest.param(Killed, 2_000, "a worker process was killed", marks=pytest.mark.extended),
    ],
)
def test_errors_are_raised(
    batches: list[pa.RecordBatch], folder: ConfinedPath, kind: type[SharedFolder], window: int, message: str
) -> None:
    def all_of_it() -> Iterator[pa.RecordBatch]:
        with RecordFiles(limited(folder, window=window, kind=kind), 0, 0) as files:
            for batch in batches:
                yield files.take(batch)
            yield from files.finish()

    with pytest.raises(KafkasniffError, match=message):
        list(all_of_it())


def test_a_task_that_is_stopped_leaves_nothing(batches: list[pa.RecordBatch], folder: ConfinedPath) -> None:
    """Spark stops a task by closing its generator; files in the output are removed by the driver."""
    with RecordFiles(limited(folder, window=5_000), 0, 0) as files:
        for batch in batches:
            files.take(batch)
