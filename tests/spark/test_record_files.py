"""Files that stage 1 writes: the rows of stage 2, in windows; nothing is lost where rows are few or wait for a name."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
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
from kafkasniff.tables.exports.staged import StagedFiles
from kafkasniff.tables.exports.staging import new_stager, stage, stage_rest
from kafkasniff.tables.rows.file_names import is_table_file, run_of
from kafkasniff.tables.rows.resolve import LearnedNames, Resolver
from kafkasniff.tables.rows.sessions import HeldSessions
from tests.runtime.test_worker_processes import check_end
from tests.tables.exports.exported import CAPTURES, Rows

OPTIONS = ExportOptions()


class Records:
    """Staged rows of `records`, as they come."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        if table == "records":
            self.batches.append(batch)

    def close(self) -> None:
        pass


def staged(capture: str) -> list[pa.RecordBatch]:
    kept = Records()
    state = new_state(OPTIONS, Catalog(), sessions=False)
    stager = new_stager(state, OPTIONS, None, kept)
    with open_captures([str(CAPTURES / capture)]) as source:
        for batch in source:
            stage(state, stager, batch)
            stager.flush()
    stage_rest(state, stager, kept)
    assert kept.batches
    return kept.batches


@pytest.fixture(scope="module")
def batches() -> list[pa.RecordBatch]:
    """More than one, in small pieces."""
    return [whole.slice(start, 7) for whole in staged("java-codecs.pcap") for start in range(0, len(whole), 7)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfinedPath:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "scratch"))
    partial = open_own_folder(tmp_path / "out", make=True) / ".partial"
    partial.make_folder()
    return partial


def limited(folder: ConfinedPath, monkeypatch: pytest.MonkeyPatch, *, window: int, least: int) -> RecordOutput:
    """An output with these limits, as a task gets it."""
    with monkeypatch.context() as patch:
        patch.setattr(record_files, "WINDOW_BYTES", window)
        patch.setattr(record_files, "SMALL_PART", least)
        output: RecordOutput = pickle.loads(pickle.dumps(RecordOutput(OPTIONS, share(folder), 4)))
    return output


def final(batches: Sequence[pa.RecordBatch]) -> Rows:
    """The rows of `records` of staged ones."""
    resolver = Resolver(LearnedNames(LearnedFacts()), HeldSessions(), repr)
    return [row for batch in batches for done in resolver.rows("records", batch) for row in done.to_pylist()]


def test_windows_have_all_rows(
    batches: list[pa.RecordBatch], folder: ConfinedPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = limited(folder, monkeypatch, window=2_500, least=1_000)
    with RecordFiles(output, 3, 9) as files:
        assert sum(len(files.take(batch)) for batch in batches) == 0
        left = files.finish()
    found: Rows = []
    paths = [report.path for report in files.reports if report.path is not None]
    assert len(paths) > 2
    for path in paths:
        attempt, _, name = path.partition("/")
        assert attempt == "attempt-9"
        assert is_table_file(name, "records")
        assert run_of(name) == 4
        part = pq.ParquetFile(folder.path / path).read().to_pylist()
        keys = [[row[key] for key in ("api", "time", "connection_id", "exchange_id")] for row in part]
        assert keys == sorted(keys)
        found += part
    assert sorted([*found, *final(left)], key=repr) == sorted(final(batches), key=repr)
    assert 0 <= sum(batch.nbytes for batch in left) < 1_000
    days = [msgspec.msgpack.decode(report.days, type=dict[int, int]) for report in files.reports if report.days]
    assert sum(sum(counts.values()) for counts in days) == len(found)
    assert {(report.part, report.open, report.table) for report in files.reports} == {(3, False, "records")}
    # Sorted and written at the same time, in folders of their own.
    assert sorted(path.name for path in folder.path.glob("attempt-9/*")) == ["records"]
    assert not list((folder.path.parent.parent / "scratch").iterdir())


@pytest.mark.parametrize(("window", "has_process"), [(2_500, True), (1 << 30, False)])
def test_only_several_windows_are_worth_a_process(
    batches: list[pa.RecordBatch],
    folder: ConfinedPath,
    monkeypatch: pytest.MonkeyPatch,
    window: int,
    *,
    has_process: bool,
) -> None:
    output = limited(folder, monkeypatch, window=window, least=1_000)
    with RecordFiles(output, 0, 0) as files:
        for batch in batches:
            files.take(batch)
        files.finish()
        assert (files._process is not None) == has_process
    assert sum(report.path is not None for report in files.reports) > has_process
    assert multiprocessing.active_children() == []


def test_few_rows_are_no_file(
    batches: list[pa.RecordBatch], folder: ConfinedPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = limited(folder, monkeypatch, window=1 << 30, least=1 << 30)
    with RecordFiles(output, 0, 0) as files:
        for batch in batches:
            files.take(batch)
        assert final(files.finish()) == final(batches)
    assert files.reports == []
    assert not list(folder.path.glob("attempt-*"))


def test_rows_whose_topic_may_become_known_go_on(folder: ConfinedPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without an id as well as a name do not: no task learns more of them."""
    (batch, *_) = staged("java-codecs.pcap")
    names = [None if row % 3 else "orders" for row in range(len(batch))]
    ids = [None if row % 3 == 2 else "AAAAAAAAAAAAAAAAAAAAAQ" for row in range(len(batch))]
    kind = batch.schema.field("topic").type
    for name, values in (("topic", names), ("topic_id", ids)):
        at = batch.schema.get_field_index(name)
        column = pa.array(values, pa.string()).dictionary_encode().cast(kind)
        batch = batch.set_column(at, batch.schema.field(at), column)
    output = limited(folder, monkeypatch, window=1 << 30, least=1 << 30)
    with RecordFiles(output, 0, 0) as files:
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


class Sleeping(SharedFolder):
    """Takes longer for a file than any test."""

    def deliver(self, into: ConfinedPath, files: Sequence[WrittenFile]) -> None:
        made = self.path.parent / "pid.new"
        made.write_text(str(os.getpid()))
        made.rename(self.path.parent / "pid")
        time.sleep(600)


def test_the_process_ends_with_its_task(folder: ConfinedPath, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark may kill a task at any time. Then no file may appear any more."""
    output = limited(folder, monkeypatch, window=2_000, least=1_000)
    marked = output.output
    assert isinstance(marked, SharedFolder)
    output.output = Sleeping(marked.path, marked._marker)
    (tmp_path / "output").write_bytes(pickle.dumps(output))
    code = """
        import pickle, sys
        from pathlib import Path
        from kafkasniff.spark.record_files import RecordFiles
        from tests.spark.test_record_files import staged

        with RecordFiles(pickle.loads(Path(sys.argv[1]).read_bytes()), 0, 0) as files:
            for whole in staged("java-codecs.pcap"):
                for start in range(0, len(whole), 7):
                    files.take(whole.slice(start, 7))
            files.finish()
    """
    check_end(code, str(tmp_path / "output"), pid=folder.path.parent / "pid")


@pytest.mark.parametrize(
    ("kind", "window", "message"),
    [
        # In the process, and in the task for the last window.
        (FullDisk, 2_000, "no space left"),
        (FullDisk, 1 << 30, "no space left"),
        (Killed, 2_000, "a worker process was killed"),
    ],
)
def test_errors_are_raised(
    batches: list[pa.RecordBatch],
    folder: ConfinedPath,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kind: type[SharedFolder],
    window: int,
    message: str,
) -> None:
    output = limited(folder, monkeypatch, window=window, least=1_000)
    marked = output.output
    assert isinstance(marked, SharedFolder)
    output.output = kind(marked.path, marked._marker)

    def all_of_it() -> Iterator[pa.RecordBatch]:
        with RecordFiles(output, 0, 0) as files:
            for batch in batches:
                yield files.take(batch)
            yield from files.finish()

    with pytest.raises(KafkasniffError, match=message):
        list(all_of_it())
    assert not list((folder.path.parent.parent / "scratch").iterdir())


def test_a_batch_that_cannot_be_staged(
    batches: list[pa.RecordBatch], folder: ConfinedPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its window is the last one and full, so that nothing more is staged."""
    write = StagedFiles.write
    written: list[pa.RecordBatch] = []

    def failing(self: StagedFiles, table: str, batch: pa.RecordBatch) -> None:
        written.append(batch)
        if len(written) == len(batches):
            raise OSError("no space left")
        write(self, table, batch)

    monkeypatch.setattr(StagedFiles, "write", failing)
    output = limited(folder, monkeypatch, window=sum(batch.nbytes for batch in batches), least=1)
    with RecordFiles(output, 0, 0) as files:
        for batch in batches:
            files.take(batch)
        assert files._staging is None
        with pytest.raises(OSError, match="no space left"):
            files.finish()


def test_a_task_that_is_stopped_leaves_nothing(
    batches: list[pa.RecordBatch], folder: ConfinedPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark stops a task by closing its generator; files in the output are removed by the driver."""
    output = limited(folder, monkeypatch, window=5_000, least=1_000)
    with RecordFiles(output, 0, 0) as files:
        for batch in batches:
            files.take(batch)
    assert not list((folder.path.parent.parent / "scratch").iterdir())
