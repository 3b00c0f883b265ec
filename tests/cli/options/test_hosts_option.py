"""`--hosts`: names of addresses in text output. JSON lines keep the addresses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import kafkasniff
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hosts") / "hosts"
    path.write_text("10.0.0.5 producer rack=a\n10.0.0.6 consumer rack=b\n10.0.0.9:9092 broker-one rack=a\n")
    return path


def test_text_of_decode(capture: Path, names: Path) -> None:
    plain = kafkasniff("decode", "-q", capture).text
    reported = kafkasniff("decode", "-q", "--hosts", names, capture).text
    assert "producer:51334" in reported
    assert "broker-one:9092" in reported
    assert "10.0.0.5" not in reported
    assert len(reported.splitlines()) == len(plain.splitlines())
    assert kafkasniff("decode", "-q", "--hosts", names, "--jobs", 2, capture).text == reported


def test_json_lines_are_unchanged(capture: Path, names: Path) -> None:
    lines = kafkasniff("decode", "-q", "--format", "json", capture).out
    assert kafkasniff("decode", "-q", "--format", "json", "--hosts", names, capture).out == lines


def test_stats_and_audit(capture: Path, names: Path) -> None:
    screen = kafkasniff("stats", "-q", "--hosts", names, capture).text
    brokers = screen[: screen.index("\nClients\n")]
    (broker,) = [line for line in brokers.splitlines() if "10.0.0.9:9092" in line]
    assert broker.split()[1:3] == ["broker-one", "a"]
    assert {"producer", "consumer"} <= set(screen.split())
    assert "broker-one" not in kafkasniff("stats", "-q", capture).text
    audit = kafkasniff("audit", "-q", "--target", "4.0", "--hosts", names, capture).text
    assert "10.0.0.6 consumer" in audit


@pytest.mark.parametrize("command", [("decode",), ("stats",), ("audit", "--target", "4.0"), ("live", "-i", "nowhere0")])
def test_a_bad_file_is_reported_before_any_input_is_read(command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("10.0.0.5 fine\nnonsense name\n")
    wanted = [*command, "--hosts", path]
    result = kafkasniff(*wanted, *([] if command[0] == "live" else ["/nonexistent/capture.pcap"]))
    assert result.code == Exit.USAGE
    assert result.err == f"kafkasniff: {path}:2: nonsense is not an address\n"


def test_racks_of_clients_and_brokers_without_their_own(tmp_path: Path) -> None:
    """Clients of the capture name no rack, and its broker has none."""
    capture = ROOT / "captures" / "librdkafka-codecs.pcap"
    tables = tmp_path / "tables"
    assert kafkasniff("export", "-q", "-o", tables, "--tables", "exchanges", capture).code == 0
    bare = [json.loads(line) for line in kafkasniff("analyze", "racks", tables, "--format", "json").lines]
    assert bare
    assert {(row["client_rack"], row["broker_rack"], row["cross_zone"]) for row in bare} == {(None, None, None)}
    port = bare[0]["broker"].rpartition(":")[2]
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1:{port} broker rack=eu-1a\n127.0.0.0/8 rack=eu-1b\n")
    asked = kafkasniff("analyze", "racks", tables, "--format", "json", "--hosts", hosts)
    reported = [json.loads(line) for line in asked.lines]
    assert {(row["client_rack"], row["broker_rack"], row["cross_zone"]) for row in reported} == {
        ("eu-1b", "eu-1a", True)
    }
    assert "broker" in kafkasniff("analyze", "racks", tables, "--hosts", hosts).text
