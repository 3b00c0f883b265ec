"""The folder: one writer at a time, foreign files are kept, one manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkasniff.errors import OutputError, UsageError
from kafkasniff.tables.exports.captures import Exported, ManifestCapture, look_at, new_captures
from kafkasniff.tables.exports.target import ExportFolder
from tests.cli.console import kafkasniff
from tests.tables.exports.exported import CAPTURES, cut, files, manifest, named_files, run

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
