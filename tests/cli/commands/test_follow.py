"""`kafkasniff follow`: real captures, whose clients logged what they produced, consumed and committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis import table_file
from kafkasniff.cli.environment import Exit
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft.write import write_pcap

CAPTURES = ROOT / "captures"
LOGGED = (
    *("java-group-classic", "java-transactions", "java-group-share", "java-0.9", "java-0.11", "java-codecs"),
    *("librdkafka-1.4", "librdkafka-schemas", "sarama", "kafkajs", "kafka-python-1.4", "old-message-formats"),
    "franz-go",
)
SHARES = CAPTURES / "java-group-share.pcap"
TRANSACTIONS = CAPTURES / "java-transactions.pcap"
_NUMBERS = ("connection", "exchange")


def answered(*arguments: object, **options: Any) -> dict[str, Any]:
    result = kafkasniff("follow", "-q", "--json", *arguments, **options)
    assert (result.code, result.err) == (Exit.OK, "")
    (found,) = result.objects
    return found


def logged(name: str, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (CAPTURES / f"{name}.log.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind and not line.get("error")]


def place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


@pytest.mark.parametrize("name", one_in(6, LOGGED, 1))
def test_what_clients_logged(name: str) -> None:
    """Each record that the producer logged has an acknowledgement, and each consumer that logged it a delivery."""
    written = [row for row in logged(name, "produced") if isinstance(row["key"], str)]
    consumed = logged(name, "consumed")
    assert written
    for key in sorted({row["key"] for row in written})[:2]:
        ours = [place(row) for row in written if row["key"] == key]
        ways = {place(way): way for way in answered("--key", key, "-c", "1000", CAPTURES / f"{name}.pcap")["records"]}
        assert sorted(ways) == sorted(ours)
        for at, way in ways.items():
            kinds = [step["kind"] for step in way["steps"]]
            assert kinds[:2] == ["produced", "acknowledged"]
            got = [step["client_id"] for step in way["steps"] if step["kind"] in ("delivered", "redelivered")]
            readers = [row.get("client_id") for row in consumed if place(row) == at]
            assert set(filter(None, readers)) <= set(got)
            assert bool(got) >= bool(readers)


@pytest.mark.parametrize("capture", one_in(3, [SHARES, TRANSACTIONS, CAPTURES / "kraft-three-brokers.pcap"], 1))
def test_captures_exports_and_streams_agree(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"java-group-share": ("--key", "t1"), "java-transactions": ("--key", "account")}.get(
        capture.stem, ("--offset", "wide-0@0")
    )
    expected = answered(*wanted, capture)
    assert all(step[name] for way in expected["records"] for step in way["steps"] for name in _NUMBERS)
    for way in expected["records"]:
        way["steps"] = [{**step, **dict.fromkeys(_NUMBERS)} for step in way["steps"]]
    folder = tmp_path / "tables"
    assert kafkasniff("export", "-q", "-o", folder, capture).code == Exit.OK
    found = [answered(*wanted, "-", stdin=capture.read_bytes())]
    for size in (7, table_file.BATCH_ROWS):
        monkeypatch.setattr(table_file, "BATCH_ROWS", size)
        found.append(answered(*wanted, folder))
    for one in found:
        assert {**one, "sources": None} == {**expected, "sources": None}


def test_an_export_without_payload_or_bodies(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    assert kafkasniff("export", "-q", "--no-payload", "--no-json", "-o", folder, TRANSACTIONS).code == Exit.OK
    ((way,), whole) = (answered("--offset", "ledger-0@3", one)["records"] for one in (folder, TRANSACTIONS))
    assert (way["key"], way["value_bytes"], way["unknown"]) == (None, None, ["bodies", "content"])
    assert way["outcome"] == whole[0]["outcome"] == "aborted"
    shown = [step["kind"] for step in whole[0]["steps"]]
    assert [step["kind"] for step in way["steps"]] == [kind for kind in shown if kind != "transaction-aborted"]
    result = kafkasniff("follow", "--key", "account", folder)
    assert (result.code, "give --offset" in result.err) == (Exit.USAGE, True)


def test_hidden_keys() -> None:
    (way,) = answered("--offset", "tasks-0@1", "--no-payload", SHARES)["records"]
    assert way["key"] == {"length": 2}
    _, text = kafkasniff("follow", "--offset", "tasks-0@1", "--hash-payload", SHARES).text.split("\n", 1)
    assert "t1" not in text
    assert "(2 B), value 6 B" in text


def test_a_capture_that_is_cut(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(SHARES.read_bytes()[:-7])
    for key, ways in (("t1", 1), ("nosuch", 0)):
        result = kafkasniff("follow", "-q", "--json", "--key", key, cut)
        (found,) = result.objects
        assert (result.code, len(found["records"]), found["broken"]) == (Exit.BROKEN, ways, True)


def test_nothing_to_follow(tmp_path: Path) -> None:
    result = kafkasniff("follow", "-q", "--key", "k", write_pcap(tmp_path / "empty.pcap", []))
    assert (result.code, result.err) == (Exit.NOTHING, "kafkasniff: no Kafka messages: the captures have no packets\n")


def test_a_trace() -> None:
    capture, trace = CAPTURES / "librdkafka-schemas.pcap", "0af7651916cd43dd8448eb211c80319c"
    written = [row for row in logged(capture.stem, "produced") if f"-{trace}-" in json.dumps(row["headers"])]
    assert len(written) == 2
    for given in (trace, trace.upper()):
        found = answered("--trace", given, capture)["records"]
        assert [place(way) for way in found] == [place(row) for row in written]
        assert [way["trace_ids"] for way in found] == [[trace], [trace]]
