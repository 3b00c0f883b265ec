from __future__ import annotations

import pytest

from tests.analysis.tables import answers, exchange, moment, pick


def test_bytes_and_shares() -> None:
    rows = [
        exchange("Produce", 0, client_id="big", request_size=700, response_size=50, record_count=5),
        exchange(
            "Produce", 3, client_id="big", request_size=100, response_size=None, status="unanswered", record_count=1
        ),
        exchange("Fetch", 1, client_id="small", request_size=50, response_size=100, error_count=2),
        exchange(None, 2, client_id=None, request_size=None, response_size=0, status="orphan"),
    ]
    found = answers("talkers", rows, by="client")
    names = ("client_id", "requests", "request_bytes", "response_bytes", "bytes", "records", "with_errors")
    assert pick(found, *names) == [
        ("big", 2, 800, 50, 850, 6, 0),
        ("small", 1, 50, 100, 150, 0, 1),
        (None, 0, 0, 0, 0, 0, 0),
    ]
    assert [row["share"] for row in found] == [0.85, 0.15, 0.0]
    assert pick(found, "first", "last")[0] == (moment(0), moment(3))


@pytest.mark.parametrize(("top", "shown"), [(1, 1), (20, 3), (0, 3)])
def test_the_top_talkers(top: int, shown: int) -> None:
    rows = [exchange(client_id=name) for name in "abc"]
    assert [row["client_id"] for row in answers("talkers", rows, top=top)] == list("abc")[:shown]
