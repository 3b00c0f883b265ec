"""Clients that open many connections: one client, or several at an address."""

from __future__ import annotations

import pytest

from tests.analysis.detectors.talks import findings_of
from tests.analysis.tables import connection


@pytest.mark.parametrize(
    ("ids", "count", "ended", "expected"),
    [
        (1, 25, "fin", "app-0 at 10.0.0.5 opened 25 connections"),
        (1, 25, "end", None),
        (1, 19, "fin", None),
        (30, 60, "fin", "30 clients at 10.0.0.5 opened 60 connections"),
        (30, 59, "fin", None),
    ],
)
def test_short_connections(ids: int, count: int, ended: str, expected: str | None) -> None:
    """Those that the end of the capture cut are not short."""
    rows = [connection(lived=1, client_ids=[f"app-{number % ids}"], ended=ended) for number in range(count)]
    found = findings_of("connection-churn", connections=rows)
    assert [one.title.partition(" within")[0] for one in found] == ([expected] if expected else [])
