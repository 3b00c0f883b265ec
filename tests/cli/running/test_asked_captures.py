"""Questions about captures, through a temporary export of what they read."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis import find_question
from kafkasniff.analysis.export import Export
from kafkasniff.cli.running.asked_captures import exported
from kafkasniff.filters.expression import parse_filter
from tests.cli.console import environment
from tests.conftest import ROOT

SASL = str(ROOT / "captures" / "java-sasl.pcap")
OPTIONS: dict[str, Any] = {"ports": (), "max_frame": None, "keylog": None, "memory": None, "topic_ids": None}


def _rows(question: str, expression: str | None) -> tuple[set[str], int]:
    """The tables of the export, and the number of exchanges in it."""
    asked = find_question(question)()
    predicate = None if expression is None else parse_filter(expression)
    with exported(environment(), [SASL], [asked], dict(OPTIONS), predicate, quiet=True) as (folder, broken):
        assert not broken
        export = Export.open(folder)
        tables = set(export.tables)
        reading = find_question("latency")().reads()["exchanges"]
        count = sum(batch.num_rows for batch in export.batches("exchanges", reading)) if "exchanges" in tables else 0
        return tables, count


def test_only_the_tables_that_are_read() -> None:
    assert _rows("latency", None) == ({"exchanges"}, 75)
    assert _rows("record-sizes", None)[0] == {"records"}


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ('api == "Produce"', 4),
        # Only a first reading knows the name of the id that these requests have.
        ('topic == "secured" and api == "Produce"', 4),
        # Records are in bodies, which the question does not read.
        ('record.value contains "SCRAM"', 2),
    ],
)
def test_filters(expression: str, count: int) -> None:
    assert _rows("latency", expression)[1] == count
