from __future__ import annotations

import stat
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis import question_names
from kafkasniff.cli.environment import Exit
from tests.analysis.exports import write_export
from tests.analysis.tables import connection, exchange, partition, record
from tests.cli.console import kafkasniff


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    part = partition("orders", record_count=2, batch_count=1, bytes=100, compression="none")
    rows = [exchange("Produce", second, latency_us=1000 * second, partitions=[part]) for second in range(1, 11)]
    rows.append(exchange("Fetch", 20, client_id="\x1b[31mred", latency_us=5, topics=["orders"]))
    return write_export(
        tmp_path_factory.mktemp("analyze") / "out", exchanges=rows, records=[record()], connections=[connection()]
    )


def test_a_table_for_people(folder: Path) -> None:
    result = kafkasniff("analyze", "latency", folder)
    assert result.code == Exit.OK
    assert result.err == ""
    assert [line.split() for line in result.lines] == [
        ["api", "count", "mean", "min", "p50", "p90", "p99", "max"],
        ["Fetch", "1", *["5.00", "µs"] * 6],
        ["Produce", "10", "5.50", "ms", "1.00", "ms", "5.01", "ms", "8.99", "ms", "10.0", "ms", "10.0", "ms"],
    ]
    assert b"\x1b" not in result.out
    assert b"\x1b" in kafkasniff("analyze", "latency", folder, "--color", "always").out


def test_names_from_the_wire_cannot_control_a_terminal(folder: Path) -> None:
    result = kafkasniff("analyze", "talkers", folder, stdout_tty=True, width=200)
    assert b"\x1b[31mred" not in result.out
    assert "\\x1b[31mred" in result.text


def test_json_lines(folder: Path) -> None:
    result = kafkasniff("analyze", "latency", folder, "--format", "json", "--by", "client,api", "--every", "60m")
    fetch, produce = sorted(result.objects, key=lambda row: row["api"])
    assert fetch["client_id"] == "\x1b[31mred"
    assert (produce["count"], produce["max_us"]) == (10, 10_000)
    assert produce["time"].endswith(":00:00Z")


def test_parquet(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "answer.parquet"
    assert kafkasniff("analyze", "latency", folder, "-o", path).code == Exit.OK
    assert pq.read_table(path).column("count").to_pylist() == [1, 10]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = tmp_path / "answer.parquet.txt"
    kafkasniff("analyze", "latency", folder, "-o", text)
    assert text.read_text().startswith("api")
    result = kafkasniff("analyze", "latency", folder, "--format", "parquet")
    assert result.code == Exit.USAGE
    assert "-o FILE.parquet" in result.err


def test_a_span_of_time(folder: Path) -> None:
    shown = kafkasniff("analyze", "latency", folder, "--format", "json", "--since", "+5s", "--until", "+9s")
    assert [(row["api"], row["count"]) for row in shown.objects] == [("Produce", 5)]
    later = kafkasniff("analyze", "latency", folder, "--since", "2030-01-01T00:00:00Z")
    assert (later.code, later.out) == (Exit.OK, b"")
    assert "latency: nothing found" in later.err
    assert kafkasniff("analyze", "latency", folder, "--since", "soon").code == Exit.USAGE


@pytest.mark.parametrize("name", question_names())
def test_every_question_runs_and_has_help(name: str, folder: Path) -> None:
    for form in ("text", "json"):
        assert kafkasniff("analyze", name, folder, "--format", form).code == Exit.OK
    result = kafkasniff("analyze", name, "--help")
    assert result.code == Exit.OK


def test_the_list() -> None:
    result = kafkasniff("analyze", "--list")
    assert [line.split()[0] for line in result.lines] == list(question_names())
    reported = kafkasniff("analyze", "--list", "--format", "json").objects
    assert [one["question"] for one in reported] == list(question_names())
    every = next(one for one in reported[0]["parameters"] if one["name"] == "every")
    assert every["help"]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([], Exit.USAGE, "--list"),
        (["lateny", "{}"], Exit.USAGE, "latency?"),
        (["latency"], Exit.USAGE, "DIR"),
        (["latency", "{}/missing"], Exit.CAPTURE, "missing: cannot be opened"),
        (["latency", "{}/exchanges"], Exit.CAPTURE, "contains neither captures"),
        (["latency", "{}", "--by", "colour"], Exit.USAGE, "not one of api"),
        (["latency", "{}", "--master", "local"], Exit.USAGE, "--engine spark"),
        (["versions", "{}", "--target", "9"], Exit.USAGE, "is unknown"),
        (["latency", "{}", "-o", "/no/such/folder/x"], Exit.UNAVAILABLE, "cannot write"),
    ],
)
def test_usage_errors(arguments: list[str], code: Exit, expected: str, folder: Path) -> None:
    result = kafkasniff("analyze", *(one.format(folder) for one in arguments))
    assert result.code == code
    assert expected in result.err
    assert len(result.err.splitlines()) == 1


def test_missing_tables(tmp_path: Path) -> None:
    part = partition("orders", record_count=2, batch_count=1, bytes=100, compression="none")
    folder = write_export(tmp_path / "out", exchanges=[exchange("Produce", partitions=[part])])
    result = kafkasniff("analyze", "batching", folder)
    assert result.code == Exit.OK
    assert "no table records" in result.err
    assert kafkasniff("analyze", "batching", folder, "-q").err == ""
    result = kafkasniff("analyze", "churn", folder)
    assert result.code == Exit.USAGE
    assert "needs the table connections" in result.err


def test_a_damaged_table(tmp_path: Path) -> None:
    folder = write_export(tmp_path / "out", exchanges=[exchange(exchange_id=number) for number in range(300)])
    (path,) = folder.rglob("*.parquet")
    whole = path.read_bytes()
    for end in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        result = kafkasniff("analyze", "talkers", folder)
        assert result.code == Exit.CAPTURE
        assert "cannot read" in result.err
