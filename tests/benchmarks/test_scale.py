from __future__ import annotations

import argparse
import shutil
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from benchmarks.scale import Results, command, lacking, main, parser
from tests.choice import only_with_all

TINY = ["--sizes", "0.001", "--file-mb", "1", "--base-mb", "1", "--engines", "local"]


def options(*given: str) -> argparse.Namespace:
    return parser().parse_args(given)


@only_with_all
def test_runs_are_printed_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, data = tmp_path / "SCALE.md", tmp_path / "data"
    arguments = [*TINY, "--data", str(data), "--report", str(report), "--cores"]
    assert main([*arguments, "1"]) == 0
    stored = data / "results.json"
    results = msgspec.json.decode(stored.read_bytes(), type=Results)
    (run,) = results.runs
    assert (run.files, run.cores, run.engine) == (1, 1, "local")
    assert run.tables["records"].rows > 1000
    assert run.usage.cpu_s > 0.1
    assert run.usage.peak > 10_000_000
    # What runs write is gone.
    assert sorted(path.name for path in data.iterdir()) == ["captures", "results.json"]
    text = report.read_text()
    made_by = "python -m benchmarks.scale --sizes 0.001 --cores 1 --engines local --file-mb 1.0 --base-mb 1.0"
    assert f"`{made_by}`" in text
    assert str(tmp_path) not in text
    capsys.readouterr()
    # As if the first run had found one record more.
    run.tables["records"].rows += 1
    stored.write_bytes(msgspec.json.encode(results))
    assert main([*arguments, "1,2", "--resume"]) == 1
    reported = capsys.readouterr().out
    rows = run.tables["records"].rows
    assert f"not the same rows as local on 1 cores:\n  records: {rows} rows and {rows - 1}\n" in reported
    assert "local, 1 cores" not in reported
    assert "local, 2 cores" in reported
    with pytest.raises(SystemExit):
        main([*arguments, "1", "--resume", "--option=--no-bodies"])
    assert "measured with other settings" in capsys.readouterr().err


def test_a_failed_export_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "SCALE.md"
    arguments = [*TINY, "--cores", "1", "--data", str(tmp_path), "--report", str(report)]
    assert main([*arguments, "--option=--no-such-option"]) == 1
    assert "--no-such-option" in capsys.readouterr().err
    assert not report.exists()
    assert not (tmp_path / "local-1x-1").exists()


def test_the_command_of_spark(tmp_path: Path) -> None:
    given = options("--conf", "spark.driver.memory=4g", "--option=--no-bodies")
    line = command("spark", [Path("a.pcap"), Path("b.pcap")], tmp_path, 2, given)
    assert line[3:8] == ["export", "a.pcap", "b.pcap", "--output", str(tmp_path / "export")]
    assert "local[2]" in line
    assert line[-1] == "--no-bodies"
    conf = {after for before, after in pairwise(line) if before == "--conf"}
    assert {
        "spark.eventLog.enabled=true",
        f"spark.eventLog.dir={(tmp_path / 'events').as_uri()}",
        f"spark.local.dir={tmp_path / 'spark'}",
        "spark.driver.memory=4g",
    } <= conf
    assert "--jobs" not in line


def test_there_has_to_be_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free = shutil.disk_usage(tmp_path).free
    assert lacking(tmp_path, 0, 1000) is None
    assert "GB free" in (lacking(tmp_path, 0, free) or "")
    with pytest.raises(SystemExit) as ended:
        main(["--sizes", "1000000", "--data", str(tmp_path), "--report", str(tmp_path / "SCALE.md")])
    assert ended.value.code == 2
    assert "name another folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [["--engines", "flink"], ["--cluster", "nodes=many"], ["--cluster", "nodes"]])
def test_wrong_options(tmp_path: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*wrong, "--data", str(tmp_path / "data")])
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
