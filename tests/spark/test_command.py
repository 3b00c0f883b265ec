"""`kafkasniff export --engine spark` as a command, and what it says where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.console import kafkasniff
from tests.tables.exports.exported import CAPTURES, manifest, rows, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURE = str(CAPTURES / "java-group-share.pcap")


@pytest.mark.extended
@pytest.mark.usefixtures("spark")
def test_an_export_by_spark(tmp_path: Path) -> None:
    """A cut capture is exported as far as it goes."""
    out, cut = tmp_path / "out", tmp_path / "cut.pcap"
    cut.write_bytes(Path(CAPTURE).read_bytes()[:-7])
    done = kafkasniff("export", "--engine", "spark", str(cut), "-o", str(out), "--discard-state")
    assert (done.code, done.out) == (4, b"")
    assert f"44 exchanges, 9 records, 7 connections, 1 problem in {out}: " in done.err
    assert manifest(out)["engine"] == "spark"


@pytest.mark.extended
@pytest.mark.usefixtures("spark")
def test_keys_and_values_are_decoded_in_tasks(tmp_path: Path) -> None:
    capture = CAPTURES / "java-registry.pcap"
    for registry in (capture.with_suffix(".registry"), tmp_path):
        found = []
        for engine in ("local", "spark"):
            out = tmp_path / f"{registry.name}-{engine}"
            done = kafkasniff("export", "--engine", engine, "--registry", registry, capture, "-o", out)
            assert done.code == 0, done.err
            found.append((rows(out, "records"), "lacks ids with which keys or values seem to begin" in done.err))
        assert found[0] == found[1]
        decoded = [row["value_decoded"] for row in found[1][0]]
        assert (any(decoded), found[1][1]) == (registry != tmp_path, registry == tmp_path)


def test_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not start to find this out, whichever engine made the export."""
    out = tmp_path / "out"
    run([CAPTURE], out)
    monkeypatch.setattr("kafkasniff.spark.shipping.ready_session", None)
    again = kafkasniff("export", "--engine", "spark", CAPTURE, "-o", str(out))
    assert (again.code, again.err) == (0, f"kafkasniff: nothing to do: {out} already has these captures\n")


@pytest.mark.extended
def test_what_a_task_raises_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """A capture that changes after it was planned, which only a task sees."""
    from kafkasniff.errors import CaptureError
    from kafkasniff.spark.session import task_errors
    from kafkasniff.spark.source import open_captures

    capture = tmp_path / "capture.pcap"
    data = Path(CAPTURE).read_bytes()
    capture.write_bytes(data)
    packets = open_captures(spark, [str(capture)]).packets()
    capture.write_bytes(data[:2000])
    with pytest.raises(CaptureError, match=r"^\S*capture\.pcap: .*$") as raised, task_errors():
        packets.count()
    assert "\n" not in str(raised.value)


def test_invalid_options(tmp_path: Path) -> None:
    for options, said in (
        (["--engine", "spark", "--api", "Fetch"], "--engine spark does not support filters"),
        (["--engine", "spark", "--jobs", "2"], "--engine spark does not support --jobs"),
        (["--engine", "spark", "--conf", "spark.ui.enabled"], "--conf: spark.ui.enabled is not of the form NAME=VALUE"),
        (["--master", "local[2]"], "--master, --conf and --table need --engine spark"),
        (["--conf", "a=b"], "--master, --conf and --table need --engine spark"),
        (["--table", "lake.kafka.week"], "--master, --conf and --table need --engine spark"),
    ):
        done = kafkasniff("export", CAPTURE, "-o", str(tmp_path / "out"), *options)
        assert (done.code, said in done.err) == (2, True), done.err
        assert not (tmp_path / "out").exists()
