"""The folder: one writer at a time, foreign files are kept, one manifest. Many runs into it yield the rows of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkasniff.enrich import Catalog
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.redact.payload import Payload
from kafkasniff.tables.checkpoint import Carried, dump
from kafkasniff.tables.exports.captures import Exported, ManifestCapture, look_at, new_captures
from kafkasniff.tables.exports.manifest import Manifest
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import new_state
from kafkasniff.tables.exports.target import ExportFolder, ExportTarget
from kafkasniff.tables.rows import SCHEMA_VERSION
from kafkasniff.tables.rows.sessions import Sessions
from tests.choice import DEEP, fewer, in_turn, one_in
from tests.cli.console import kafkasniff
from tests.tables.exports.exported import CAPTURES, cut, files, manifest, named_files, run, tables, without_software

CAPTURE = CAPTURES / "java-group-share.pcap"


def test_concurrent_writers_are_refused(tmp_path: Path) -> None:
    with ExportFolder(tmp_path / "out"):
        with pytest.raises(UsageError, match="another export"):
            run([CAPTURE], tmp_path / "out")
        assert (tmp_path / "out").exists()
    run([CAPTURE], tmp_path / "out")


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_uri_is_not_a_folder(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for scheme in ("hdfs", "http", "gs"):
        done = kafkasniff("export", "--engine", engine, str(CAPTURE), "-o", f"{scheme}://bucket/out")
        assert done.code == 2
        assert done.err.startswith(f"kafkasniff: cannot write to {scheme}://: ")
        with pytest.raises(UsageError, match=f"cannot write to {scheme}://"):
            run([CAPTURE], f"{scheme}://bucket/out")
    with pytest.raises(UsageError, match="cannot write to s3:/bucket/out: an address begins with s3://"):
        run([CAPTURE], Path("s3://bucket/out"))
    assert not list(tmp_path.iterdir())


def test_the_address_of_a_folder(tmp_path: Path) -> None:
    run([CAPTURE], f"file://{tmp_path}/out")
    assert files(tmp_path / "out") == named_files(tmp_path / "out")
    done = kafkasniff("analyze", "talkers", f"file://{tmp_path}/out")
    assert done.out == kafkasniff("analyze", "talkers", tmp_path / "out").out != b""


def test_a_folder_may_have_a_colon_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "s3:" / "out", Path("10:30"), Path("out:")):
        run([CAPTURE], folder)
        assert manifest(folder)["engine"] == "local"


def test_foreign_files_are_kept(tmp_path: Path) -> None:
    parts = cut(CAPTURE, (0.5,), tmp_path)
    run(parts[:1], tmp_path / "out")
    folder = tmp_path / "out" / "exchanges" / "date=2026-11-21"
    folder.mkdir(exist_ok=True)
    (folder / "notes.txt").write_text("mine")
    (folder / "part-of-mine.parquet").write_text("mine")
    (folder / "part-00009-00000.parquet").write_text("what a killed run left")
    copies = folder.with_name("2026-11-21")
    copies.mkdir()
    (copies / "part-00009-00000.parquet").write_text("mine")
    run(parts, tmp_path / "out")
    mine = ("date=2026-11-21/notes.txt", "date=2026-11-21/part-of-mine.parquet", "2026-11-21/part-00009-00000.parquet")
    assert files(tmp_path / "out") == named_files(tmp_path / "out").union(f"exchanges/{name}" for name in mine)


def test_a_failed_run_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("kafkasniff.tables.exports.finalise.finalise", full)
        with pytest.raises(OutputError, match="No space left on device"):
            run([CAPTURE], tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    result = run([CAPTURE], tmp_path / "out")
    assert result.resumed, "the captures were read"
    assert files(tmp_path / "out") == named_files(tmp_path / "out")


def found(paths: Sequence[Path | str], done: list[ManifestCapture]) -> list[str]:
    return [look.path for look in new_captures([look_at(str(path), Exported(done)) for path in paths], done)]


def test_captures_are_identified_by_their_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"x" * 200_000 + b"1")
    other.write_bytes(b"x" * 200_000 + b"2")
    done = [look_at(str(one), Exported()).capture]
    assert done[0].size == 200_001
    assert found([one], done) == []
    assert found([other, one, other], done) == [str(other)]
    # An unreadable input is left to its reader to report, and a pipe is never the same.
    assert len(found([tmp_path / "missing"], done)) == 1
    assert len(found(["-"], [look_at("-", Exported()).capture])) == 1
    assert look_at("caf\udce9.pcap", Exported()).capture.name == "caf\\xe9.pcap"


# -- runs that continue ------------------------------------------------------------------------------------------------


def test_other_options_and_states_are_refused(tmp_path: Path) -> None:
    """Otherwise, anyone who can write the folder's state could put passwords into the tables of the next run."""
    out = tmp_path / "out"
    parts = cut(CAPTURES / "java-codecs.pcap", (0.5,), tmp_path)
    run(parts[:1], out)
    state, before = out / manifest(out)["state"], files(out)
    for options in (ExportOptions(bodies=False), ExportOptions(tables=("exchanges",)), ExportOptions(ports=(9092,))):
        with pytest.raises(UsageError, match="other options"):
            run(parts, out, options)
    shown = new_state(ExportOptions(show_secrets=True), Catalog(), sessions=False)
    old = b"kafkasniff-state 1 0123456789abcdef 0.0.1\n" + state.read_bytes().split(b"\n", 1)[1]
    for data, reported in (
        (dump(Carried([dump(shown)], Sessions(), LearnedFacts())), "has other options than its export"),
        (old, r"written by kafkasniff 0\.0\.1"),
    ):
        state.write_bytes(data)
        with pytest.raises(UsageError, match=reported):
            run(parts, out)
        assert files(out) == before


def export_with(**values: Any) -> Any:
    found = Manifest("kafkasniff-export", SCHEMA_VERSION, "1.0", "local", **{"options": ExportOptions(), **values})
    return SimpleNamespace(manifest=found, name="here")


def test_streams_and_other_salts_are_refused() -> None:
    """A stream numbers its captures itself. Salts are not shown."""
    options = ExportOptions(payload=Payload.hashed(b"one salt"))
    found = export_with(options=options.public)
    ExportTarget.check_continues(found, options)
    for export, wanted, streams, reported in (
        (export_with(batch=3), ExportOptions(), False, "a stream writes into here"),
        (export_with(), ExportOptions(), True, "here is not the export of a stream"),
        (found, ExportOptions(payload=Payload.hashed(b"another salt")), False, "hashes with another salt"),
        (found, ExportOptions(), False, r"other options \(payload\)"),
    ):
        with pytest.raises(UsageError, match=reported):
            ExportTarget.check_continues(export, wanted, streams=streams)


# -- resumed runs: with any cuts, number of runs and number of processes, the rows are those of one run ----------------

SOME = (
    *("java-codecs.pcap", "java-sasl.pcap", "kraft-three-brokers.pcap", "librdkafka-snaplen-128.pcap"),
    *("old-raw-sasl.pcap", "zookeeper-3.9-cluster.pcap"),
)


@pytest.mark.parametrize(("name", "places"), in_turn(one_in(3, SOME), [(0.5,), (0.21, 0.4, 0.77)], 2, with_all=2))
def test_several_runs_equal_one(name: str, places: tuple[float, ...], tmp_path: Path) -> None:
    """At a cut, connections are open, requests have no response, and frames are incomplete."""
    parts = cut(CAPTURES / name, places, tmp_path)
    run(parts, tmp_path / "one")
    for count in range(1, len(parts) + 1):
        result = run(parts[:count], tmp_path / "many")
        assert result.new == 1
        assert files(tmp_path / "many") == named_files(tmp_path / "many")
    assert manifest(tmp_path / "many")["captures"] == manifest(tmp_path / "one")["captures"]
    many, one = tables(tmp_path / "many"), tables(tmp_path / "one")
    if name == "java-sasl.pcap":
        # What a client reports after exchanges of an earlier run does not change their rows.
        later = {row["connection_id"]: row["software_name"] for row in many["connections"]}
        assert all(row["software_name"] in {None, later[row["connection_id"]]} for row in many["exchanges"])
        many, one = without_software(many), without_software(one)
    assert many == one


def test_a_repeated_run_does_nothing(tmp_path: Path) -> None:
    capture = CAPTURES / "java-codecs.pcap"
    assert run([capture], tmp_path / "out").new == 1
    before = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in files(tmp_path / "out")}
    moved = tmp_path / "moved.pcap"
    moved.write_bytes(capture.read_bytes())
    for again in ([capture], [moved], [capture, capture, moved]):
        result = run(again, tmp_path / "out")
        assert (result.new, result.rows) == (0, {})
    assert before == {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in files(tmp_path / "out")}


def test_a_capture_that_has_grown_is_refused(tmp_path: Path) -> None:
    whole = (CAPTURES / "java-codecs.pcap").read_bytes()
    growing = tmp_path / "growing.pcap"
    for size in (len(whole) // 2, 200):
        growing.write_bytes(whole[:size])
        run([growing], tmp_path / str(size))
        before = files(tmp_path / str(size))
        growing.write_bytes(whole)
        with pytest.raises(UsageError, match="when it was shorter"):
            run([growing], tmp_path / str(size))
        assert files(tmp_path / str(size)) == before


def test_a_fresh_start_next_to_existing_rows(tmp_path: Path) -> None:
    """With any state, open rows stay, and new captures are exported as if they were the first."""
    parts = cut(CAPTURES / "java-codecs.pcap", (0.5,), tmp_path)
    run(parts[:1], tmp_path / "out")
    run(parts[1:], tmp_path / "second")
    before, second = tables(tmp_path / "out"), tables(tmp_path / "second")
    state = tmp_path / "out" / manifest(tmp_path / "out")["state"]
    state.write_bytes(b"kafkasniff-state 1 0123456789abcdef 0.1.0\n\x80\x04N.")
    with pytest.raises(UsageError, match="start afresh with --discard-state"):
        run(parts, tmp_path / "out")
    run(parts, tmp_path / "out", discard_state=True)
    after = tables(tmp_path / "out")
    for table, rows in after.items():
        assert len(rows) == len(before[table]) + len(second[table]), table
    # From there on as usual.
    assert not run(parts, tmp_path / "out").new
    assert tables(tmp_path / "out") == after


@pytest.mark.extended
def test_several_processes_equal_one(tmp_path: Path) -> None:
    """Each run divides connections among any number of processes."""
    parts = cut(CAPTURES / "zookeeper-3.9-cluster.pcap", (0.5,), tmp_path)
    run(parts, tmp_path / "one")
    one = tables(tmp_path / "one")
    for jobs in ((2, 2), (3, 1), (1, 3), (2, 3)) if DEEP else ((1, fewer(2, 3)),):
        folder = tmp_path / f"many-{jobs}"
        for part, count in zip(parts, jobs, strict=True):
            run([part], folder, jobs=count)
        assert tables(folder) == one, f"processes of each run: {jobs}"
