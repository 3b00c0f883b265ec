"""No all-clear without evidence: a command that has nothing to work on says what there is, and exits with 1."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.cli.running import nothing_selected
from kafkasniff.model import Exchange
from tests.choice import one_in
from tests.cli.console import Result, kafkasniff
from tests.conftest import ROOT

FAULTS = ROOT / "captures" / "faults"
SEVERAL = ROOT / "captures" / "java-0.11.pcap"
COMMANDS = {
    "decode": ("decode",),
    "stats": ("stats",),
    "check": ("check",),
    "security": ("security",),
    "report": ("report", "-o", "-"),
    "audit": ("audit", "--target", "4.0"),
    "timing": ("timing",),
    "analyze": ("analyze", "latency"),
}


def said(result: Result) -> str:
    """The only line on stderr of a command that has nothing to work on."""
    assert result.code == Exit.NOTHING
    (line,) = result.err.splitlines()
    return line.removeprefix("kafkasniff: ")


def run(name: str, *arguments: object) -> Result:
    return kafkasniff(*COMMANDS[name], "-q", *arguments)


@pytest.mark.parametrize(
    "name", [one if one in ("check", "decode") else pytest.param(one, marks=pytest.mark.extended) for one in COMMANDS]
)
def test_every_command(name: str, capture: Path) -> None:
    assert said(run(name, "--topic", "order", capture)) == "no exchange matches topic order; topics: orders, öre"
    assert said(run(name, "--port", 9093, capture)) == "no Kafka messages on port 9093; Kafka is on port 9092"
    refused = said(run(name, FAULTS / "nobody-listens.pcap"))
    assert refused == "no Kafka messages: 18 packets, 9 TCP connections, 9 refused by 127.0.0.1:40183"
    assert said(kafkasniff(*COMMANDS[name], "-q", "--api", "Vote", "-", stdin=capture.read_bytes())).startswith(
        "no exchange matches the filters: 250 packets, 3 connections (2 Kafka, 1 not Kafka), 46 messages"
    ) or name in ("audit", "analyze")
    something = run(name, "--topic", "orders", "--port", 9092, capture)
    assert (something.code, something.err) == (Exit.OK, "")


NOTHING = (
    *("topic == 'order'", "error == 'LEADER_NOT_AVAILABLE'", "client_id == 'nobody'", "latency_ms > 100s"),
    *("host == '1.2.3.4'", "broker == '1.2.3.4'", "client == '1.2.3.4'", "group_id == 'none'", "api == 'Vote'"),
    *("topic == 'orders' and acks == 7", "partition > 999 or record_count > 99999", "status == 'orphan'"),
    *("record.key == 'nobody' and has topic", "acks == 7 or record.value contains 'nothing'"),
)


@pytest.mark.parametrize(
    "path", ["java-0.11.pcap", pytest.param("java-4.4-streams-group.pcap", marks=pytest.mark.extended)]
)
def test_columns_say_the_same_as_messages(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []
    take = nothing_selected.Held._exchange

    def counted(held: nothing_selected.Held, exchange: Exchange) -> None:
        taken.append(exchange)
        take(held, exchange)

    monkeypatch.setattr(nothing_selected.Held, "_exchange", counted)

    def lines() -> list[str]:
        taken.clear()
        return [
            kafkasniff("decode", "-q", "--filter", one, "--port", 9092, ROOT / "captures" / path).err
            for one in one_in(4, NOTHING)
        ]

    by_columns, few = lines(), len(taken)
    monkeypatch.setattr(nothing_selected.Held, "has_columns", False)
    assert by_columns == lines()
    assert few < len(taken) / 2


def test_findings_decide_without_filters() -> None:
    """Traffic that cannot be decoded is a finding; --fail-on and --skip can accept it."""
    path = FAULTS / "tls-without-keys.pcap"
    assert kafkasniff("check", "-q", path).code == Exit.FINDINGS
    assert kafkasniff("check", "-q", "--fail-on", "error", path).code == Exit.OK
    assert kafkasniff("check", "-q", "--skip", "undecoded-traffic", path).code == Exit.OK
    assert kafkasniff("check", "-q", "--only", "acks-zero", path).code == Exit.NOTHING
    assert kafkasniff("check", "-q", "--fail-on", "never", "--topic", "orders", path).code == Exit.NOTHING
    assert kafkasniff("security", "-q", path).code == Exit.OK, "handshakes show who connects"
    assert kafkasniff("decode", "-q", path).code == Exit.OK, "problems are messages about the capture"
    assert kafkasniff("decode", "-q", "--topic", "orders", path).code == Exit.NOTHING


@pytest.mark.extended
def test_a_broken_capture_may_hold_more(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(SEVERAL.read_bytes()[:-7])
    for name in COMMANDS:
        assert run(name, "--topic", "nosuch", path).code == Exit.BROKEN, name


@pytest.mark.extended
def test_an_export(capture: Path, tmp_path: Path) -> None:
    folder, without = tmp_path / "out", tmp_path / "without"
    kafkasniff("export", capture, "-o", folder)
    kafkasniff("export", FAULTS / "nobody-listens.pcap", "-o", without)
    for name in ("stats", "check", "report", "audit", "timing", "analyze"):
        assert run(name, folder).code in (Exit.OK, Exit.FINDINGS)
        assert said(run(name, without)) == "no Kafka messages: there are no exchanges", name
    line = said(kafkasniff("analyze", "topic", "-q", "--topic", "order", folder))
    assert line == "no exchange matches topic order; topics: orders, öre"
    assert said(kafkasniff("analyze", "topic", "-q", "--topic", "order", capture)) == line
    assert kafkasniff("analyze", "topic", "-q", "--topic", "orders", folder).code == Exit.OK


def test_an_answer_without_rows(capture: Path) -> None:
    """Exchanges were examined: nothing is wrong."""
    for question in ("throttling", "rebalances"):
        result = kafkasniff("analyze", question, "-q", capture)
        assert (result.code, result.out, result.err) == (Exit.OK, b"", "")


def test_bounds(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nothing_selected, "MAX_PACKETS", 1)
    many = [shutil.copy(capture, tmp_path / f"{number}.pcap") for number in range(12)]
    line = said(kafkasniff("stats", "-q", "--topic", "nosuch", *many))
    assert line == "no exchange matches topic nosuch; topics: orders (in the first 1 packets)"
    monkeypatch.setattr(nothing_selected, "MAX_VALUES", 1)
    line = said(kafkasniff("stats", "-q", "--topic", "nosuch", capture))
    assert "topics: orders; there are more" in line
