"""A live capture into an export: with any commits, its rows equal those of an export of the same packets' file."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.errors import KafkasniffError, OutputError, UsageError
from kafkasniff.filters import Compare
from kafkasniff.tables.exports import live
from kafkasniff.tables.exports.live import LiveExport
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tcp.packets import PacketBatch
from tests.choice import DEEP, in_turn, one_in
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes
from tests.enrich import talks
from tests.tables.exports.exported import (
    CAPTURES,
    Rows,
    cut,
    files,
    manifest,
    named_files,
    rows,
    run,
    tables,
    without_software,
)

ROOT = Path(__file__).resolve().parents[3]
SOME = (
    "java-codecs.pcap",
    "java-sasl.pcap",
    "kraft-three-brokers.pcap",
    "librdkafka-snaplen-128.pcap",
    "old-raw-sasl.pcap",
)


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def batches(capture: Path, size: int) -> Iterator[PacketBatch]:
    """The packets of a capture in batches as small as those of an interface, including empty ones."""
    with open_captures([str(capture)]) as source:
        for whole in source:
            left = whole
            while len(left) > size:
                part, left = left.split(size)
                yield part
                yield part.split(len(part))[1]
            yield left


class AtOnce:
    """Replaces a process, which takes a second to start."""

    done = True

    def __init__(self, function: Callable[[Any], Any], argument: object) -> None:
        self._result = pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(argument)))

    def result(self) -> Any:
        return self._result


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "Background", AtOnce)


def wait(export: LiveExport) -> None:
    """Wait until the files being made are ready to be committed."""
    assert export._making is not None
    making, _ = export._making
    deadline = time.monotonic() + 60
    while not making.done:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def capture_live(capture: Path, folder: Path, commits: int, **more: Any) -> live.LiveResult:
    """All packets of a capture, with a number of commits in between."""
    clock = Clock()
    parts = list(batches(capture, 4))
    at = {(number + 1) * len(parts) // (commits + 1) for number in range(commits)}
    options = more.pop("options", ExportOptions())
    with LiveExport(folder, options, "eth7", every_seconds=60, clock=clock, **more) as export:
        for number, part in enumerate(parts):
            if number in at:
                clock.now += 60
            export.feed(part)
            if number in at:
                wait(export)
        return export.close()


def renamed(found: dict[str, Rows]) -> dict[str, Rows]:
    """Rows with the capture's name replaced."""
    return {
        table: sorted(
            ({name: "eth7" if name == "capture" and value else value for name, value in row.items()} for row in some),
            key=repr,
        )
        for table, some in found.items()
    }


@pytest.mark.usefixtures("_at_once")
def test_an_unreadable_state_is_kept_on_request(tmp_path: Path) -> None:
    run([CAPTURES / SOME[0]], tmp_path / "out")
    before = manifest(tmp_path / "out")
    (tmp_path / "out" / before["state"]).write_bytes(b"kafkasniff state 0.1.0\n\x80\x04N.")
    with pytest.raises(UsageError, match="start afresh with --discard-state"):
        capture_live(CAPTURES / SOME[0], tmp_path / "out", 1)
    result = capture_live(CAPTURES / SOME[0], tmp_path / "out", 1, discard_state=True)
    for table, count in result.rows.items():
        assert manifest(tmp_path / "out")["tables"][table]["rows"] == before["tables"][table]["rows"] + count


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(("name", "commits"), in_turn(one_in(3, SOME), (0, 3), 2))
def test_the_rows_equal_those_of_the_file(name: str, commits: int, tmp_path: Path) -> None:
    run([CAPTURES / name], tmp_path / "file")
    result = capture_live(CAPTURES / name, tmp_path / "live", commits)
    assert result.commits == commits + 1
    assert manifest(tmp_path / "live")["runs"] == commits + 1
    assert files(tmp_path / "live") == named_files(tmp_path / "live")
    found, wanted = tables(tmp_path / "live"), renamed(tables(tmp_path / "file"))
    assert {table: len(some) for table, some in found.items()} == result.rows
    if commits and name == "java-sasl.pcap":
        # What a client reports after its exchanges' rows are committed does not change them.
        found, wanted = without_software(found), without_software(wanted)
    assert found == wanted


@pytest.mark.usefixtures("_at_once")
def test_a_selection_of_rows(tmp_path: Path) -> None:
    """What makes files needs the selection as well, for unfinished rows."""
    capture = tmp_path / "mixed.pcap"
    capture.write_bytes(pcap_bytes(mixed(), nanoseconds=True))
    more: dict[str, Any] = {"predicate": Compare("error", "!=", 0)}
    run([capture], tmp_path / "file", ExportOptions(filters=(("errors", True),)), **more)
    capture_live(capture, tmp_path / "live", 2, options=ExportOptions(filters=(("errors", True),)), **more)
    assert tables(tmp_path / "live") == renamed(tables(tmp_path / "file"))
    assert len(rows(tmp_path / "live", "exchanges")) == 1


def fed(export: LiveExport, packets: list[Packet], start: int = 0, stop: int | None = None) -> None:
    places = range(start, len(packets) if stop is None else stop)
    export.feed(batch([packets[place] for place in places], places))


def test_another_capture_into_the_same_folder(tmp_path: Path) -> None:
    """Each capture has new connections; names of topics and brokers stay known."""
    first, second = talks.both(), talks.consumer().packets
    with LiveExport(tmp_path / "out", ExportOptions(), "eth7") as export:
        fed(export, first)
    before = rows(tmp_path / "out", "exchanges")
    with LiveExport(tmp_path / "out", ExportOptions(), "eth8") as export:
        fed(export, second)
    reported = manifest(tmp_path / "out")
    assert [(one["name"], one["size"]) for one in reported["captures"]] == [("eth7", None), ("eth8", None)]
    begun = [one["begun"] for one in reported["captures"]]
    assert begun == sorted(begun)
    assert reported["runs"] == 2
    found = rows(tmp_path / "out", "exchanges")
    added = [row for row in found if row["capture"] == "eth8"]
    assert [row for row in found if row["capture"] == "eth7"] == before
    consumers = [row for row in before if row["connection_id"] == added[0]["connection_id"]]
    # Fetches by id alone, and nothing in this capture maps ids to names.
    assert [{**row, "capture": "eth7"} for row in added] == consumers
    assert {row["broker_id"] for row in added} == {3}
    assert ["orders"] in [row["topics"] for row in added]


@pytest.mark.usefixtures("_at_once")
def test_open_rows_of_a_killed_capture_are_kept(tmp_path: Path) -> None:
    packets = mixed()
    clock = Clock()
    export = LiveExport(tmp_path / "out", ExportOptions(), "eth7", every_seconds=60, clock=clock)
    fed(export, packets, 0, 50)
    clock.now += 60
    fed(export, packets, 50, 60)
    wait(export)
    fed(export, packets, 60, 61)
    os.close(export._target._lock)  # as if killed: no cleanup
    opened = [one for one in manifest(tmp_path / "out")["tables"]["connections"]["files"] if one.get("open")]
    assert opened
    before = tables(tmp_path / "out")
    with LiveExport(tmp_path / "out", ExportOptions(), "eth7") as export:
        fed(export, talks.both())
    after = tables(tmp_path / "out")
    for table, found in before.items():
        assert [row for row in found if row not in after[table]] == []
    entries = [one for table in manifest(tmp_path / "out")["tables"].values() for one in table["files"]]
    assert not [one for one in entries if one.get("open")]
    assert files(tmp_path / "out") == named_files(tmp_path / "out")


@pytest.mark.extended
@pytest.mark.usefixtures("_at_once")
def test_captures_after_a_live_capture_start_over(tmp_path: Path) -> None:
    parts = cut(CAPTURES / "java-codecs.pcap", (0.5,), tmp_path)
    capture_live(parts[0], tmp_path / "out", 1)
    before = tables(tmp_path / "out")
    run(parts[1:], tmp_path / "out")
    run(parts[1:], tmp_path / "alone")
    added = tables(tmp_path / "alone")
    kept = ("capture", "connection_id", "exchange_id", "time", "kind", "key", "value", "offset")
    for table, found in tables(tmp_path / "out").items():
        together, both = (
            sorted(repr([row.get(name) for name in kept]) for row in some)
            for some in (found, [*before[table], *added[table]])
        )
        assert together == both


@pytest.mark.usefixtures("_at_once")
def test_without_new_packets_there_is_no_commit(tmp_path: Path) -> None:
    packets = mixed()
    clock = Clock()
    with LiveExport(tmp_path / "out", ExportOptions(), "eth7", every_seconds=60, clock=clock) as export:
        fed(export, packets)
        for _ in range(3):
            clock.now += 60
            export.feed(batch([]))
            if export._making is not None:
                wait(export)
        export.feed(batch([]))
        assert manifest(tmp_path / "out")["runs"] == 1
        assert export.close().commits == 2
    assert files(tmp_path / "out") == named_files(tmp_path / "out")


def test_a_failed_start_leaves_nothing(tmp_path: Path) -> None:
    def missing() -> None:
        raise KafkasniffError("no such interface")

    with pytest.raises(KafkasniffError, match="no such"), LiveExport(tmp_path / "out", ExportOptions(), "eth7"):
        missing()
    assert not (tmp_path / "out").exists()


def test_a_killed_run_without_packets_may_be_resumed(tmp_path: Path) -> None:
    run([CAPTURES / "java-codecs.pcap"], tmp_path / "out")
    kept = tmp_path / "out" / ".partial" / "shard-00000" / "checkpoint"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"what a run that was killed left")
    with LiveExport(tmp_path / "out", ExportOptions(), "eth7"):
        pass
    with pytest.raises(UsageError):
        LiveExport(tmp_path / "out", ExportOptions(bodies=False), "eth7")
    assert kept.exists()
    with LiveExport(tmp_path / "out", ExportOptions(), "eth7") as export:
        fed(export, mixed())
    assert files(tmp_path / "out") == named_files(tmp_path / "out")


def test_a_reader_that_fails_loses_no_rows(tmp_path: Path) -> None:
    """Any exception ends the block; rows of packets already processed are kept."""

    def read() -> None:
        with LiveExport(tmp_path / "out", ExportOptions(), "eth7") as export:
            fed(export, mixed())
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        read()
    run_of = tmp_path / "mixed.pcap"
    run_of.write_bytes(pcap_bytes(mixed(), nanoseconds=True))
    run([run_of], tmp_path / "file")
    assert tables(tmp_path / "out") == renamed(tables(tmp_path / "file"))


def test_a_full_disk_keeps_committed_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def captured(export: LiveExport) -> None:
        with export:
            fed(export, mixed(), 61)
            export.close()

    monkeypatch.setattr(live, "Background", AtOnce)
    export = begin_commit(tmp_path / "out", Clock())
    fed(export, mixed(), 60, 61)
    before = tables(tmp_path / "out")
    monkeypatch.setattr("kafkasniff.tables.exports.staged.StagedFiles.write", full)
    with pytest.raises(OutputError, match="out: No space left on device"):
        captured(export)
    assert tables(tmp_path / "out") == before
    assert files(tmp_path / "out") == named_files(tmp_path / "out")


def no_life(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def begin_commit(folder: Path, clock: Clock) -> LiveExport:
    packets = mixed()
    export = LiveExport(folder, ExportOptions(), "eth7", every_seconds=60, clock=clock)
    fed(export, packets, 0, 50)
    clock.now += 60
    fed(export, packets, 50, 60)
    wait(export)
    return export


@pytest.mark.extended
def test_a_killed_process_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = live._make
    monkeypatch.setattr(live, "_make", no_life)
    with begin_commit(tmp_path / "out", Clock()) as export:
        monkeypatch.setattr(live, "_make", real)
        fed(export, mixed(), 60)
        assert manifest(tmp_path / "out")["runs"] == 1
        export.close()
    capture = tmp_path / "mixed.pcap"
    capture.write_bytes(pcap_bytes(mixed(), nanoseconds=True))
    run([capture], tmp_path / "file")
    assert tables(tmp_path / "out") == renamed(tables(tmp_path / "file"))


class Interrupted(BaseException):
    """By a signal."""


def test_an_interruption_within_a_batch_leaves_committed_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted

    one, other = list(batches(CAPTURES / "kraft-two-brokers.pcap", 4))[::20][:2]
    export = LiveExport(tmp_path, ExportOptions(), "eth7", clock=Clock())
    export.feed(one)
    monkeypatch.setattr(live, "inspected", interrupted)
    with pytest.raises(Interrupted), export:
        export.feed(other)
    assert export.torn
    assert not (tmp_path / "manifest.json").exists()


CODE = """
    import sys
    from pathlib import Path
    from kafkasniff.tables.exports.live import LiveExport
    from kafkasniff.tables.exports.options import ExportOptions
    from tests.tables.exports.test_live import batches

    print("ready", flush=True)
    with LiveExport(Path(sys.argv[1]), ExportOptions(), "eth7", every_seconds=0.0) as export:
        for batch in batches(Path(sys.argv[2]), 4):
            export.feed(batch)
"""


@pytest.mark.extended
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Commits follow each other without a pause. Committed files are complete, and the next capture cleans up."""
    capture = CAPTURES / "kraft-two-brokers.pcap"
    run([capture], tmp_path / "file")
    ids = {(row["connection_id"], row["exchange_id"]) for row in rows(tmp_path / "file", "exchanges")}
    dice = random.Random(7)
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CODE), str(tmp_path / "out"), str(capture)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(dice.uniform(0, 3 if DEEP else 1))
        process.kill()
        _, error = process.communicate()
        assert process.returncode in {0, -signal.SIGKILL}, error
        if (tmp_path / "out" / "manifest.json").exists():
            assert {(row["connection_id"], row["exchange_id"]) for row in rows(tmp_path / "out", "exchanges")} <= ids
    with LiveExport(tmp_path / "out", ExportOptions(), "eth7") as export:
        export.close()
    assert files(tmp_path / "out") == named_files(tmp_path / "out")
