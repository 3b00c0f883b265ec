"""Empty files and files that are not captures: what a run does about them, and the next one."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from kafkasniff.errors import CaptureError
from kafkasniff.tables.exports.captures import OnBadCapture
from tests.cli.console import kafkasniff
from tests.tables.exports.exported import CAPTURES, manifest, rows, run, tables

CAPTURE = CAPTURES / "java-group-share.pcap"
OTHER = CAPTURES / "sarama.pcap"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "captures"
    folder.mkdir()
    shutil.copy(CAPTURE, folder / "b.pcap")
    (folder / "a.pcap").write_bytes(b"")
    (folder / "c.pcap.gz").write_bytes(gzip.compress(b"an error page of a proxy"))
    (folder / "d.pcapng").write_bytes(CAPTURE.read_bytes()[:20])
    (folder / "README.txt").write_text("These are captures.\n")
    return folder


def export(folder: Path, out: Path, *options: str) -> tuple[int, list[str]]:
    done = kafkasniff("export", str(folder), "-o", str(out), *options)
    return done.code, done.err.splitlines()


def skipped(out: Path) -> list[tuple[str, str]]:
    found = [row for row in rows(out, "problems") if row["kind"] == "capture-skipped"]
    return sorted((Path(row["capture"]).name, row["detail"]) for row in found)


def test_they_end_the_run_by_default(folder: Path, tmp_path: Path) -> None:
    code, err = export(folder, tmp_path / "out")
    assert code == 3
    assert err == [
        f"kafkasniff: {folder / 'a.pcap'}: is empty; was the capture stopped before its first packet was written? "
        "(--on-bad-capture skip reads the others)"
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_skipped_ones_are_reported_everywhere(policy: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, err = export(folder, out, "--on-bad-capture", policy)
    assert code == 4
    assert [line.partition(": ")[2] for line in err[:3]] == [detail for _, detail in skipped(out)]
    stored = "44 exchanges, 9 records, 7 connections, 3 problems in "
    assert err[3].startswith(f"kafkasniff: 3 captures skipped; {stored}")
    assert [name for name, _ in skipped(out)] == ["a.pcap", "c.pcap.gz", "d.pcapng"]
    # Only its name has the first of them: what they hold is not shown.
    assert [Path(one["name"]).name for one in manifest(out)["captures"]] == ["b.pcap"]
    run([folder / "b.pcap"], tmp_path / "alone")
    whole, alone = tables(out), tables(tmp_path / "alone")
    assert [row for row in whole.pop("problems") if row["kind"] != "capture-skipped"] == alone.pop("problems")
    assert whole == alone


def test_the_next_run_looks_at_skipped_ones_again(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(folder, out, "--on-bad-capture", "skip")
    code, err = export(folder, out, "--on-bad-capture", "skip")
    assert code == 4
    assert err[-1] == f"kafkasniff: 3 captures skipped; nothing to do: {out} already has the others"
    # The capture was complete later.
    shutil.copy(OTHER, folder / "a.pcap")
    code, err = export(folder, out, "--on-bad-capture", "skip")
    assert [Path(one["name"]).name for one in manifest(out)["captures"]] == ["b.pcap", "a.pcap"]
    assert len(skipped(out)) == 5


def test_later_runs_ignore_what_is_in_quarantine_until_its_bytes_change(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(folder, out, "--on-bad-capture", "quarantine")
    assert [Path(one["name"]).name for one in manifest(out)["quarantined"]] == ["a.pcap", "c.pcap.gz", "d.pcapng"]
    assert export(folder, out) == (0, [f"kafkasniff: nothing to do: {out} already has these captures"])
    shutil.copy(OTHER, folder / "a.pcap")
    assert export(folder, out)[0] == 0
    assert [Path(one["name"]).name for one in manifest(out)["captures"]] == ["b.pcap", "a.pcap"]
    assert len(manifest(out)["quarantined"]) == 3


@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_nothing_but_bad_ones(policy: OnBadCapture, folder: Path, tmp_path: Path) -> None:
    (folder / "b.pcap").unlink()
    with pytest.raises(CaptureError, match=r"no capture can be read; the first one: skipped: .*a\.pcap: is empty"):
        run(sorted(folder.glob("*.pcap*")), tmp_path / "out", on_bad=policy)
    assert not (tmp_path / "out").exists()


def test_what_is_never_skipped(folder: Path, tmp_path: Path) -> None:
    """Captures that cannot be opened end the export; those with damage further on are read up to it."""
    with pytest.raises(CaptureError, match=r"missing\.pcap: cannot be opened"):
        run([folder / "b.pcap", folder / "missing.pcap"], tmp_path / "out", on_bad="skip")
    (folder / "b.pcap").write_bytes(CAPTURE.read_bytes()[:-7])
    result = run([folder / "b.pcap"], tmp_path / "out", on_bad="skip")
    assert (result.broken, result.skipped) == (True, ())
