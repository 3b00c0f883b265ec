"""Options of the data source: what they mean, and that none is taken for another; its documented tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkasniff.errors import UsageError
from kafkasniff.spark.options import NOTES, PACKETS, PIPELINE, SourceOptions, ddl


def test_what_is_not_given() -> None:
    options = SourceOptions.of({"path": "a.pcap"})
    assert options.paths == ("a.pcap",)
    assert (options.table, options.columns, options.ports, options.pushdown) == ("packets", (), (), False)
    assert options.ddl == ", ".join(f"{name} {kind}" for name, kind in PACKETS.items())


def test_all_of_them_in_any_case() -> None:
    given = {"paths": '["a", "b"]', "Table": "Packets", "COLUMNS": "time, payload", "ports": "9092,9093"}
    given |= {"splitSize": "64M", "pushDown": "TRUE", "showSecrets": "yes", "maxBytesPerTrigger": "1g"}
    options = SourceOptions.of(given | {"finishAfter": "60", "failOnDataLoss": "false"})
    assert options == SourceOptions(
        ("a", "b"), "packets", ("time", "payload"), (9092, 9093), 64 << 20, True, True, 1 << 30, 60, False
    )
    assert options.ddl == "time timestamp, payload binary"
    assert SourceOptions.of({"path": "a", "Secrets": "TRUE"}).secrets
    assert SourceOptions.of({"path": "a", "table": "records", "keyLog": "k"}).keylog == "k"


DOCUMENT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def test_documented_columns() -> None:
    for table, columns in (("packets", PACKETS), ("notes", NOTES)):
        section = DOCUMENT.split(f"\n### {table}\n", 1)[1].split("\n##", 1)[0]
        rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\w+) \|", section, re.M)
        assert {name: kind for names, kind in rows for name in re.findall(r"`(\w+)`", names)} == columns
    assert ddl(PACKETS, ["payload", "seq"]) == "payload binary, seq bigint"
    assert set(PACKETS) - set(PIPELINE) == {"capture", "time", "connection_hash"}


def test_documented_options_are_taken(tmp_path: Path) -> None:
    section = DOCUMENT.split("\n| option ", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| `?([\w*]+)`? \|", section, re.M)
    documented = {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert len(documented) == 15
    given = {name: default for name, default in documented.items() if default not in {"all", "none"}}
    assert SourceOptions.of({"path": "a", **given}) == SourceOptions.of({"path": "a"})
    keys = tmp_path / "keys"
    keys.touch()
    for name, default in documented.items():
        value = {name: given.get(name, "")}
        if default == "none":
            value = {name: "2026-11-30T12:00:00"} if "modified" in name else {name: str(keys), "table": "exchanges"}
        SourceOptions.of(value)


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
        ({"modifiedafter": "12:00"}, "modifiedafter: 12:00 is not a time"),
        ({"pushdown": "perhaps"}, "neither true nor false"),
        ({"paths": "a"}, "JSON array"),
        ({"secrets": "true", "table": "notes"}, "secrets is for the table packets"),
        (
            {"keylog": "keys.log"},
            "keylog is for exchanges, records, connections, transport, problems; functions that decode packets",
        ),
    ],
)
def test_what_makes_no_sense(given: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        SourceOptions.of(given)
