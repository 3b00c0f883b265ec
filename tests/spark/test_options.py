"""Options of the data source: what they mean, and that none is taken for another."""

from __future__ import annotations

import pytest

from kafkasniff.errors import UsageError
from kafkasniff.spark.options import SourceOptions
from kafkasniff.spark.tables import PACKETS


def test_what_is_not_given() -> None:
    options = SourceOptions.of({"path": "a.pcap"})
    assert options.paths == ("a.pcap",)
    assert (options.table, options.columns, options.ports, options.pushdown) == ("packets", (), (), False)
    assert options.ddl == ", ".join(f"{name} {kind}" for name, kind in PACKETS.items())


def test_all_of_them_in_any_case() -> None:
    options = SourceOptions.of(
        {
            "paths": '["a", "b"]',
            "Table": "Packets",
            "COLUMNS": "time, payload",
            "ports": "9092,9093",
            "splitSize": "64M",
            "pushDown": "TRUE",
            "showSecrets": "yes",
            "maxBytesPerTrigger": "1g",
            "finishAfter": "60",
            "failOnDataLoss": "false",
        }
    )
    assert options == SourceOptions(
        ("a", "b"), "packets", ("time", "payload"), (9092, 9093), 64 << 20, True, True, 1 << 30, 60, False
    )
    assert options.ddl == "time timestamp, payload binary"


def test_options_for_tls() -> None:
    assert SourceOptions.of({"path": "a", "Secrets": "TRUE"}).secrets
    assert SourceOptions.of({"path": "a", "table": "records", "keyLog": "k"}).keylog == "k"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"colums": "time"}, "no option colums"),
        ({"provider": "kafkasniff", "location": "a", "option.path": "a"}, "CREATE TABLE cannot use kafkasniff"),
        ({"table": "topics"}, "no table topics; there are packets, notes, exchanges"),
        ({"columns": "time,tme"}, "no column tme"),
        ({"table": "notes", "columns": "payload"}, "no column payload"),
        ({"ports": "9092,kafka"}, "kafka is not a port"),
        ({"ports": "65536"}, "65536 is not a port"),
        ({"splitsize": "64 parsecs"}, "is not a size"),
        ({"splitsize": "0"}, "is not a size"),
        ({"finishafter": "-1"}, "not a number of seconds"),
        ({"pushdown": "perhaps"}, "neither true nor false"),
        ({"paths": "a"}, "JSON array"),
        ({"secrets": "true", "table": "notes"}, "secrets is for the table packets"),
        (
            {"keylog": "keys.log"},
            "keylog is for exchanges, records, connections, problems; functions that decode packets",
        ),
    ],
)
def test_what_makes_no_sense(given: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        SourceOptions.of(given)
