"""The screen of `stats`: a heading of a few lines, and tables without empty columns."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafkasniff.analysis.overview import Overview
from kafkasniff.cli.render.stats_text import stats_text
from kafkasniff.text.printable import display_width
from tests.analysis.tables import Row, batch_of, connection, exchange, partition
from tests.cli.render.test_check_text import at, finding


def shown(
    *rows: Row, connections: tuple[Row, ...] = (), width: int = 120, findings: Any = (), **options: Any
) -> list[str]:
    overview = Overview()
    for table in ("exchanges", "records", "connections", "problems"):
        overview.has(table)
    overview.update(batch_of(list(rows)))
    if connections:
        overview.update(batch_of(list(connections), "connections"), "connections")
    answer = overview.answer(top=3)
    return stats_text(answer, findings, "4 captures", width=width, coloured=False, **options).splitlines()


def test_the_heading() -> None:
    rows = [
        exchange("Produce", 0),
        exchange("Fetch", 90_000, error_count=1, error_code=3),
        exchange("Fetch", 1, status="unanswered", response_size=None),
    ]
    lines = shown(*rows)
    assert lines[0] == "4 captures"
    # The capture ends on another day.
    assert re.fullmatch(r"2026-11-18 \S+ to 2026-11-19 \S+ UTC, .*", lines[1])
    assert lines[2] == ("3 exchanges: 3 requests of 300 B, 2 responses of 400 B; 1 with errors, 1 unanswered")


def test_nothing() -> None:
    lines = shown()
    assert lines[1] == "0 exchanges: 0 requests of 0 B, 0 responses of 0 B; 0 with errors, 0 unanswered"
    assert "APIs" not in lines


def test_connections_and_their_bytes() -> None:
    streams = {"bytes_decoded": 5000, "bytes_lost": 7, "packets": 12, "retransmits": 1}
    lines = shown(connections=(connection(**streams), connection(verdict="not_kafka", connection_id=2)))
    assert any(line.startswith("2 connections (1 Kafka, 1 not Kafka), 12 packets, 1 retransmit") for line in lines)
    assert any(line.startswith("bytes: 5.0 kB decoded, ") and "7 B lost" in line for line in lines)


def table(lines: list[str], name: str) -> list[str]:
    start = lines.index(name) + 1
    rest = lines[start:]
    return rest[: rest.index("")] if "" in rest else rest


def test_empty_columns_are_omitted() -> None:
    plain = table(shown(exchange("Metadata")), "Clients")[0]
    named = table(shown(exchange("Metadata", software_name="java", software_version="3.7.0")), "Clients")[0]
    assert "software" not in plain
    assert "software" in named


def test_errors_with_their_first_exchange() -> None:
    parts = [partition(error_code=6)]
    lines = table(shown(exchange("Produce", error_code=6, error_count=1, partitions=parts)), "Errors")
    assert lines[1].split()[:3] == ["6", "1", "NOT_LEADER_OR_FOLLOWER:"]
    assert "(retriable)" in " ".join(lines)


def test_omitted_rows_are_counted() -> None:
    rows = [exchange("Metadata", client_id=f"app-{number}") for number in range(5)]
    assert table(shown(*rows), "Clients")[-1] == "  and 2 more (--top)"


def test_findings_at_the_end() -> None:
    lines = table(shown(exchange("Metadata"), findings=[finding(at(1), title="it is wrong")]), "Findings")
    assert [line.split() for line in lines] == [
        ["severity", "finding", "(see", "kafkasniff", "check)"],
        ["error", "it", "is", "wrong"],
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_it_fits_the_terminal(width: int) -> None:
    rows = [
        exchange(
            "Produce", client_id="x" * 300, partitions=[partition("y" * 300, error_code=6)], error_code=6, error_count=1
        )
    ]
    assert max(map(display_width, shown(*rows, width=width))) <= width


def test_names_from_the_wire_are_escaped() -> None:
    evil = "a\x1b[31m\nb"
    text = "\n".join(shown(exchange("Produce", client_id=evil, software_name=evil, partitions=[partition(evil)])))
    assert "\x1b" not in text
    assert "\\x1b[31m" in text
