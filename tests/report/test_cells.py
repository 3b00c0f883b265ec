"""Cells that `stats` and the report share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkasniff.enrich.hosts import Hosts
from kafkasniff.report.cells import ReportColumn, address, count_of, moment, named, software, some_of, spans


@pytest.mark.parametrize(
    ("numbers", "most", "text"),
    [
        ([], 8, ""),
        ([3], 8, "3"),
        ([0, 4, 5, 6, 9], 8, "0, 4-6, 9"),
        ([0, 2, 4], 2, "0, 2, …"),
        ([0, 1, 3, 4], 2, "0-1, 3-4"),
    ],
)
def test_spans(numbers: list[int], most: int, text: str) -> None:
    assert spans(numbers, most) == text


def test_missing_values_are_empty() -> None:
    row = SimpleNamespace(errors=0, software_name=None, software_version=None)
    assert (some_of("errors")(row), count_of("errors")(row)) == ("", "0")
    assert address(None, 9092) == address("10.0.0.1", None) == moment(None) == software(row) == ""  # type: ignore[arg-type]


def test_values_from_the_wire_are_escaped() -> None:
    row = SimpleNamespace(software_name="evil\x1b[2J", software_version="1")
    assert "\x1b" not in software(row)  # type: ignore[arg-type]
    assert software(row).endswith(" 1")  # type: ignore[arg-type]


def test_times_have_dates_only_where_needed() -> None:
    time_ns = 1_700_000_000_123_456_789
    assert moment(time_ns) == "22:13:20.123"
    assert moment(time_ns, days=True) == "2023-11-14 22:13:20"


def test_names_follow_addresses(tmp_path: Path) -> None:
    columns = [
        ReportColumn("address", lambda row: row.address),
        ReportColumn("requests", count_of("requests"), number=True),
    ]
    assert named(columns, None) == columns
    file = tmp_path / "hosts"
    file.write_text("10.0.0.1 broker-1 rack=a\n")
    headings = [one.heading for one in named(columns, Hosts.load(str(file)))]
    assert headings == ["address", "name", "rack", "requests"]
