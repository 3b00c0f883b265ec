"""Rates as `stats` and the page of `report` show them."""

import pytest

from kafkasniff.sinks.summaries.phrases import rate


@pytest.mark.parametrize(
    ("records", "size", "expected"),
    [
        (0.251, 12.4, "0.25/s (12 B/s)"),
        (9.2, 810, "9.2/s (810 B/s)"),
        (42.42, 4200, "42.4/s (4.2 kB/s)"),
        (1234.5, 123_450, "1,234/s (123 kB/s)"),
        (12_345_678, 9.9e9, "12,345,678/s (9.9 GB/s)"),
    ],
)
def test_records_and_bytes_in_a_second(records: float, size: float, expected: str) -> None:
    assert rate(records, size) == expected
