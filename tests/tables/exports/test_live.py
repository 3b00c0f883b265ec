"""A live capture into an export: with any commits, its rows equal those of an export of the same packets' file."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.filters import Compare
from kafkasniff.packets import PacketBatch
from kafkasniff.tables.exports import live
from kafkasniff.tables.exports.live import LiveExport
from kafkasniff.tables.exports.options import ExportOptions
from tests.capture.waiting import until
from tests.choice import in_turn, one_in
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes
from tests.enrich import talks
from tests.tables.exports.exported import (
    CAPTURES,
    Rows,
    files,
    manifest,
    named_files,
    rows,
    run,
    tables,
    without_software,
)
from tests.tables.exports.stored import KilledError

SOME = (
    *("java-codecs.pcap", "java-sasl.pcap", "kraft-three-brokers.pcap", "librdkafka-snaplen-128.pcap"),
    "old-raw-sasl.pcap",
)


class Clock:
    now = 0.0

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
    making, _ = export._making
    until(lambda: making.done)


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
    return {
        table: sorted(
            ({name: "eth7" if name == "capture" and value else value for name, value in row.items()} for row in some),
            key=repr,
        )
        for table, some in found.items()
    }


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(("name", "commits"), in_turn(one_in(3, SOME), (0, 3), 2, with_all=2))
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


def begin_commit(folder: Path, clock: Clock) -> LiveExport:
    packets = mixed()
    export = LiveExport(folder, ExportOptions(), "eth7", every_seconds=60, clock=clock)
    fed(export, packets, 0, 50)
    clock.now += 60
    fed(export, packets, 50, 60)
    wait(export)
    return export


def test_an_interruption_within_a_batch_leaves_committed_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KilledError

    one, other = list(batches(CAPTURES / "kraft-two-brokers.pcap", 4))[::20][:2]
    export = LiveExport(tmp_path, ExportOptions(), "eth7", clock=Clock())
    export.feed(one)
    monkeypatch.setattr(live, "inspected", interrupted)
    with pytest.raises(KilledError), export:
        export.feed(other)
    assert export.torn
    assert not (tmp_path / "manifest.json").exists()
