"""Commands that show or write what the explorer shows, and their reports; forms to copy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

import kafkasniff
from kafkasniff.browse.commands import BROKEN, FINDINGS, Commands, EvidenceTitles, copies, report, run_command
from kafkasniff.browse.index import Row
from kafkasniff.cli.environment import Exit
from kafkasniff.model import Exchange
from tests.browse.opened import exported, fill, found, never, path_of, rows_of
from tests.choice import one_in
from tests.cli.console import kafkasniff as command_line
from tests.conftest import ROOT

CAPTURE = str(ROOT / "captures" / "java-errors.pcap")


def test_forms(tmp_path: Path) -> None:
    commands = Commands((CAPTURE,), (), ("--api=Fetch",))
    expression = "latency_ms > 1"
    for name in ("out.jsonl", "out.pcapng", "out/"):
        assert run_command(commands.write(f"{tmp_path}/{name}", expression), stopped=never).wrong is None
    wanted = command_line("decode", "-q", "--format", "json", "--api", "Fetch", "--filter", expression, CAPTURE)
    assert (tmp_path / "out.jsonl").read_bytes() == wanted.out
    found = [one for one in kafkasniff.read(tmp_path / "out.pcapng") if one.request.api == "Fetch"]
    assert len(found) >= len(wanted.lines) / 2 > 1
    tables = list((tmp_path / "out").glob("exchanges/**/*.parquet"))
    assert sum(pq.read_metadata(table).num_rows for table in tables) == len(wanted.lines) / 2


def test_titles_of_findings_are_on_their_evidence() -> None:
    """On the request by its time, on the response by the number of the exchange in its comment."""
    evidence = {"connection_id": 1, "exchange_id": 3, "time": "1970-01-01T00:00:00.000000005Z", "connection": 1}
    begin = {"connection_id": 2, "exchange_id": None, "time": "1970-01-01T00:00:00.000000007Z", "connection": 2}
    found = [
        {"detector": "d", "severity": severity, "title": title, "meaning": "", "advice": "", "count": 1, "evidence": at}
        for severity, title, at in (
            ("error", "a", [evidence | {"exchange": 12}]),
            ("note", "b", [begin | {"exchange": None}, evidence | {"exchange": 12}]),
        )
    ]
    titles = EvidenceTitles(msgspec.json.encode({"findings": found, "notes": []}))
    line = "Fetch v4  #{}  corr 3  me#12  corr 3".format
    packets = [(4, 12), (5, 12), (5, 13), (6, 13), (6, 12), (7, None)]
    comments = [titles.of(0, time, b"\1\0#\0" + line(number).encode() if number else b"") for time, number in packets]
    both = b"error: a\nnote: b"
    assert comments == [None, both, both, None, both, b"note: b"]
    lines = [b"\1\0\n\0" + f"{line(13)}\n{line(number)}".encode() for number in (12, 14)]
    assert [titles.of(0, 9, one) for one in lines] == [both, None]


def test_a_broken_capture_is_written_as_far_as_it_goes(tmp_path: Path) -> None:
    wrong = run_command(Commands((CAPTURE,)).write(f"{tmp_path}/none/out.jsonl", ""), stopped=never).wrong
    assert "none/out.jsonl" in wrong
    assert (FINDINGS, BROKEN) == (Exit.FINDINGS, Exit.BROKEN)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(Path(CAPTURE).read_bytes()[:20_001])
    done = run_command(Commands((str(cut),)).write(f"{tmp_path}/out.jsonl", ""), stopped=never)
    assert (done.wrong, done.broken) == (None, True)
    wanted = command_line("decode", "-q", "--format", "json", cut)
    assert (tmp_path / "out.jsonl").read_bytes() == wanted.out


EXPRESSION = 'client_id == "errors-admin"'


@pytest.mark.parametrize("name", one_in(2, ["timing", "stats"]))
def test_text_of_commands(name: str) -> None:
    commands = Commands((CAPTURE,), ("--port=43051",), ("--slower-than=1ms",))
    lines = report(name, commands, EXPRESSION, 90, numbers={}, stopped=never)
    wanted = command_line(name, "-q", "--port=43051", "--slower-than=1ms", "--filter", EXPRESSION, CAPTURE, width=90)
    assert [one.text for one in lines] == wanted.lines
    assert len(lines) > 10


def test_findings() -> None:
    [wanted] = command_line("check", "--format=json", "--filter", EXPRESSION, CAPTURE).objects
    lines = report("check", Commands((CAPTURE,)), EXPRESSION, 80, numbers={}, stopped=never)
    titles = [one for one in lines if one.severity is not None and one.text.startswith(one.severity)]
    assert [one.severity for one in titles] == [one["severity"] for one in wanted["findings"]]
    text = " ".join(" ".join(one.text.split()) for one in lines)
    for line, finding in zip(titles, wanted["findings"], strict=True):
        for words in (finding["title"], finding["meaning"], finding["advice"]):
            assert words in text
        found = command_line("decode", "-q", "--json", "--filter", line.evidence, CAPTURE).objects
        # Evidence without an exchange stands for its whole connection.
        wanted_exchanges = {one["exchange"] for one in finding["evidence"]} - {None}
        if wanted_exchanges:
            assert {one["exchange"] for one in found} == wanted_exchanges
        else:
            assert {one["connection"] for one in found} == {one["connection"] for one in finding["evidence"]}
    assert max(len(one.text) for one in lines) <= 80


@pytest.mark.extended
def test_findings_of_an_export_select_whole_connections() -> None:
    reading, folder = exported("faults/producers-short-lived")
    listed = fill(reading)
    numbers = listed.connection_numbers()
    [wanted] = command_line("check", "--format=json", folder).objects
    [finding] = [one for one in wanted["findings"] if one["detector"] == "connection-churn"]
    connections = {one["connection_id"] for one in finding["evidence"]}
    assert {one.get("exchange_id") for one in finding["evidence"]} == {None}
    commands = Commands(exports=(folder,))
    lines = report("check", commands, "", 80, numbers=numbers, stopped=never)
    [line] = [one for one in lines if one.text.lstrip().startswith("connection-churn:")]
    assert line.text.split(": ")[1] == f"Enter lists {len(connections)} of {finding['count']}"
    rows = rows_of(fill(reading, line.evidence))
    assert {row.connection_id for row in rows} == connections
    assert len(rows) == sum(row.connection_id in connections for row in rows_of(listed))
    # Connections without exchanges have nothing to list.
    lines = report("check", commands, "", 80, numbers={}, stopped=never)
    [line] = [one for one in lines if one.text.lstrip().startswith("connection-churn:")]
    assert (line.evidence, line.text.split(", ")[1]) == ("", "no exchanges to list")


def texts_of(name: str, api: str, error: str = "") -> tuple[Exchange, Row, dict[str, str]]:
    exchange, row = found(name, api, error)
    return exchange, row, {one.title: one.make() for one in copies(exchange, row, Commands((str(path_of(name)),)))}


def run(command: str, *more: str) -> str:
    name, *arguments = shlex.split(command)
    assert name == "kafkasniff"
    done = command_line(*arguments, *more)
    assert done.code == 0, done.err
    return done.text


@pytest.mark.parametrize(
    ("name", "api", "error"),
    [
        ("java-errors", "Produce", "MESSAGE_TOO_LARGE"),
        ("java-transactions", "Fetch", ""),
        ("java-0.10.2", "Fetch", ""),
        ("java-errors", "ApiVersions", ""),
    ],
)
def test_commands_show_the_exchange(name: str, api: str, error: str) -> None:
    exchange, row, texts = texts_of(name, api, error)
    assert list(texts) == [
        "JSON",
        "request in hex",
        "request as a decode-bytes command",
        "response in hex",
        "response as a decode-bytes command",
        "decode command",
    ]
    lines = [json.loads(line) for line in texts["JSON"].splitlines()]
    others = [json.loads(line) for line in run(texts["decode command"], "--format", "json").splitlines()]
    assert {one.pop("exchange") for one in lines} == {None}
    assert len({one.pop("exchange") for one in others}) == 1
    assert lines == others
    for message in (exchange.request, exchange.response):
        assert bytes.fromhex(texts[f"{message.type} in hex"]) == message.frame
        shown = json.loads(run(texts[f"{message.type} as a decode-bytes command"], "--format", "json"))
        line = next(one for one in lines if one["type"] == message.type)
        for key in ("size", "correlation_id", "problems"):
            assert shown[key] == line[key]
        names = set(shown["body"]) - {key for key in shown["body"] if key.startswith("_")}
        assert {key for key in line["body"] if not key.startswith("_")} == names
    assert row.connection == lines[0]["connection"]


def test_secrets_are_blank() -> None:
    for api in ("SaslAuthenticate", "SaslHandshake"):
        _, _, texts = texts_of("java-sasl", api)
        for text in texts.values():
            assert "alice-secret" not in text
            assert b"alice-secret".hex() not in text
    exchange, _, texts = texts_of("java-sasl", "SaslAuthenticate")
    assert b"alice-secret" in exchange.request.frame
    assert len(texts["request in hex"]) == 2 * exchange.request.size
    assert "SaslAuthenticate" in run(texts["request as a decode-bytes command"])
