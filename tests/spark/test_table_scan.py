"""Tables of Kafka straight from the data source, and what is not done for columns that nobody wants.

tests/spark/test_data_source.py compares their rows with those of exports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkasniff.spark.table_scan import scan_table
from kafkasniff.tables.exports.staging import new_stager
from kafkasniff.tables.rows import TABLES
from tests.tables.exports.exported import CAPTURES

if TYPE_CHECKING:
    from kafkasniff.tables.checkpoint.carried import ShardState
    from kafkasniff.tables.exports.options import ExportOptions
    from kafkasniff.tables.exports.stager import Stager

NAMES = ("librdkafka-ipv6-ns.pcapng", "java-telemetry.pcap", "sarama.pcap")


def test_bodies_are_not_rendered_for_other_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def spy(state: ShardState, options: ExportOptions, *more: Any) -> Stager:
        asked.append(options.bodies)
        return new_stager(state, options, *more)

    monkeypatch.setattr("kafkasniff.spark.table_scan.new_stager", spy)

    def rows(columns: list[str]) -> list[dict[str, Any]]:
        scan = scan_table(
            [(str(CAPTURES / name), name) for name in NAMES],
            "exchanges",
            columns,
            ports=(),
            show_secrets=False,
            keylog=None,
        )
        return [row for batch in scan for row in batch.to_pylist()]

    names = TABLES["exchanges"].names
    others = [name for name in names if not name.endswith("_body")]
    whole = rows(names)
    assert len(names) == len(others) + 2
    assert any(row["request_body"] for row in whole)
    assert rows(others) == [{name: row[name] for name in others} for row in whole]
    rows([*others, "response_body"])
    assert asked == [True, False, True]
