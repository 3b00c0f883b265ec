"""Header columns alone (`--no-bodies`): headers are the same as in any export, and bodies contribute nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.tables.exports.options import ExportOptions
from tests.choice import DEEP, fewer
from tests.conftest import shipped_captures
from tests.tables.exports.exported import rows, run

HEADERS = ExportOptions(tables=("exchanges", "problems"), bodies=False, headers=True)
OF_BODIES = {
    **dict.fromkeys(("throttle_time_ms", "error_code", "error", "error_count", "group_id", "member_id", "acks")),
    **dict.fromkeys(("transactional_id", "record_count", "request_body", "response_body", "broker_id")),
    **dict.fromkeys(("sender", "behind_us", "muted_us", "wait_us", "waits_for")),
    "topics": [],
    "partitions": [],
}


def key(row: dict[str, Any]) -> tuple[int, int]:
    return row["connection_id"], row["exchange_id"]


@pytest.mark.parametrize("capture", shipped_captures()[:: 1 if DEEP else fewer(19, 8)], ids=lambda path: path.name)
def test_headers_are_those_of_any_export(capture: Path, tmp_path: Path) -> None:
    run([capture], tmp_path / "headers", HEADERS)
    run([capture], tmp_path / "all", ExportOptions(tables=("exchanges",)))
    found, every = (sorted(rows(tmp_path / name, "exchanges"), key=key) for name in ("headers", "all"))
    assert [{**row, "problems": None} for row in found] == [{**row, **OF_BODIES, "problems": None} for row in every]
    for row, whole in zip(found, every, strict=True):
        assert set(row["problems"]) <= set(whole["problems"])
