"""`kafkasniff check`: output, exit codes and options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis.detectors import detector_names
from kafkasniff.cli.environment import Exit, Interrupted
from kafkasniff.tables.exports.counted import CountedRows
from kafkasniff.tcp.packets import PacketBatch
from tests.analysis.detectors import scenes
from tests.analysis.detectors.talks import capture_of
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft.conversation import interleaved
from tests.craft.write import pcap_bytes, write_pcap
from tests.test_hostile_strings import EVIL, harmless, talk

SHIPPED = "captures/java-errors.pcap"
ONLY = ("--only", "oversized-messages,acks-zero")


@pytest.fixture(scope="module")
def too_large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two Produce requests refused for their size: an error."""
    scene = scenes.produced(2, scenes.records(1, 3000), error=10)
    return capture_of(tmp_path_factory.mktemp("check") / "large.pcap", scene())


@pytest.fixture(scope="module")
def without_acks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A producer that wants no answers: a note."""
    scene = scenes.produced(2, scenes.records(), acks=0, address="10.0.0.6")
    return capture_of(tmp_path_factory.mktemp("check") / "acks.pcap", scene())


def answered(*arguments: object, **options: Any) -> dict[str, Any]:
    (found,) = kafkasniff("check", "--format", "json", *arguments, **options).objects
    return found


# -- output


def test_the_text(too_large: Path, without_acks: Path) -> None:
    result = kafkasniff("check", too_large, *ONLY, width=90)
    assert (result.code, result.err) == (Exit.FINDINGS, "")
    assert result.lines == [
        f"1 error in {too_large}",
        "",
        "error    2 batches of crafted at 10.0.0.5 for topic orders refused with MESSAGE_TOO_LARGE,",
        "         the largest 3.1 kB",
        "         The broker accepts no batch larger than message.max.bytes (per topic:",
        "         max.message.bytes). Unless the client can split the batch, these records are lost",
        "         to the topic.",
        "         Try: Send smaller records, or store large payloads elsewhere and send references",
        "         to them. Otherwise raise max.message.bytes of the topic together with the limits",
        "         of producers, consumers and replicas.",
        "         oversized-messages: 2026-06-09 10:13:20.123 to 10:13:20.125 UTC; #1, #2",
        "",
        f"To look at #N: kafkasniff decode -v {too_large} --exchange N",
    ]
    assert kafkasniff("check", too_large, "--only", "acks-zero").lines == [f"no problems found in {too_large}"]
    both = kafkasniff("check", too_large, without_acks, *ONLY)
    assert both.lines[0] == f"1 error, 1 note in {too_large}, {without_acks}"


def test_many_captures_are_counted_in_the_heading(too_large: Path, tmp_path: Path) -> None:
    """A list of names would hide the result; JSON has them."""
    paths = [tmp_path / f"{number}.pcap" for number in range(4)]
    for path in paths:
        path.write_bytes(too_large.read_bytes())
    result = kafkasniff("check", *paths, *ONLY)
    assert result.lines[0].endswith(" in 4 captures")
    assert result.lines[-1] == "To look at #N: kafkasniff decode -v CAPTURE... --exchange N"
    assert answered(*paths, *ONLY)["sources"] == [str(path) for path in paths]
    # A folder has one name.
    assert kafkasniff("check", tmp_path, *ONLY).lines[0].endswith(f" in {tmp_path}")
    for command in ("stats", "timing"):
        assert kafkasniff(command, "-q", *paths).lines[0] == "4 captures"


def test_the_number_leads_to_the_exchange(too_large: Path) -> None:
    (finding,) = answered(too_large, *ONLY)["findings"]
    for one in finding["evidence"]:
        lines = kafkasniff("decode", too_large, "--exchange", one["exchange"], "--format", "json").objects
        assert [line["type"] for line in lines] == ["request", "response"]
        assert lines[0]["time"] == one["time"]
        assert lines[1]["errors"][0]["name"] == "MESSAGE_TOO_LARGE"


def test_the_number_of_a_connection_without_messages_is_explained() -> None:
    """`decode` has no lines for connections to a listener without TLS, but says why."""
    capture = ROOT / "captures/tls/tls-plaintext-listener.pcap"
    (finding,) = (one for one in answered(capture, "--only", "wrong-protocol")["findings"])
    numbers = {one["connection"] for one in finding["evidence"]}
    assert numbers == {1, 2, 3}
    result = kafkasniff("decode", capture, "--connection", ",".join(map(str, sorted(numbers))))
    reported = [line for line in result.err.splitlines() if "is not Kafka" in line]
    assert [line.partition(",")[0] for line in reported] == [f"kafkasniff: conn {number}" for number in sorted(numbers)]
    assert all("TLS" in line for line in reported)
    assert "is not Kafka" not in kafkasniff("decode", "-q", capture, "--connection", 1).err


def test_json(too_large: Path, without_acks: Path) -> None:
    answer = answered(too_large, without_acks, *ONLY)
    assert list(answer) == ["sources", "broken", "counts", "findings", "notes", "visibility"]
    assert answer["sources"] == [str(too_large), str(without_acks)]
    assert answer["counts"] == {"error": 1, "warning": 0, "note": 1}
    assert (answer["broken"], answer["notes"]) == (False, [])
    first, second = answer["findings"]
    assert list(first) == [
        "detector", "severity", "title", "meaning", "advice", "subject", "count", "evidence", "values", "first", "last",
    ]  # fmt: skip
    assert set(first["evidence"][0]) == {"connection_id", "exchange_id", "time", "note", "connection", "exchange"}
    assert (first["severity"], second["severity"]) == ("error", "note")
    assert (first["first"], first["evidence"][0]["time"]) == (first["evidence"][0]["time"], first["first"])
    assert second["subject"] == {"client_id": "crafted", "client_ip": "10.0.0.6"}


def test_complete_output_for_a_shipped_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client got the errors that it was meant to provoke."""
    monkeypatch.chdir(ROOT)
    answer = answered(SHIPPED)
    assert answer["counts"]["error"] == 3
    reported = {one["subject"]["error_code"] for one in answer["findings"] if one["severity"] == "error"}
    # MESSAGE_TOO_LARGE, OFFSET_METADATA_TOO_LARGE, OFFSET_OUT_OF_RANGE: see captures/README.md.
    assert reported == {10, 12, 1}


def test_an_export(too_large: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    kafkasniff("export", too_large, "-o", folder)
    result = kafkasniff("check", folder, *ONLY)
    assert result.code == Exit.FINDINGS
    # Rows have no numbers, only the key of the tables: there is no number to look up.
    (finding,) = answered(folder, *ONLY)["findings"]
    place = finding["evidence"][0]
    assert f"connection_id {place['connection_id']} exchange_id {place['exchange_id']}" in " ".join(result.text.split())
    assert (place["exchange"], place["connection"]) == (None, None)
    assert "--exchange" not in result.text
    together = answered(folder, too_large, *ONLY)
    assert together["findings"][0]["count"] == 4


def test_missing_parts_of_an_export_are_reported(too_large: Path, tmp_path: Path) -> None:
    """The text of bodies is not needed; without any columns from bodies little is left."""
    for option, found in (("--no-json", 1), ("--no-bodies", 0)):
        folder = tmp_path / option
        assert kafkasniff("export", too_large, "-o", folder, option).code == Exit.OK
        result = kafkasniff("check", folder, "--only", "late-answers,oversized-messages", "--format", "json")
        (reported,) = result.objects
        assert len(reported["findings"]) == found
        assert ("only headers (--no-bodies)" in " ".join(reported["notes"])) == (found == 0)
        assert ("--no-bodies" in result.err.replace(str(folder), "")) == (found == 0)


def test_hostile_names(tmp_path: Path) -> None:
    talks = [talk(number, evil) for number, evil in enumerate(EVIL.values())]
    path = write_pcap(tmp_path / "evil.pcap", interleaved(talks))
    # Everything with a threshold for how often it occurs, at once.
    settings = [one for name in ("all-topics", "hidden-errors") for one in ("--set", f"{name}.at_least=1")]
    result = kafkasniff("check", path, *settings, "--color", "always")
    assert result.code == Exit.FINDINGS
    harmless(result.text)
    harmless(result.err)
    shown = kafkasniff("check", path, *settings, "--format", "json", stdout_tty=True)
    harmless(shown.text)
    clients = {one["subject"].get("client_id") for one in json.loads(shown.text)["findings"]}
    assert clients >= set(EVIL.values())


def test_colours(too_large: Path) -> None:
    assert b"\x1b" not in kafkasniff("check", too_large, *ONLY).out
    assert b"\x1b[1;31merror" in kafkasniff("check", too_large, *ONLY, "--color", "always").out
    assert b"\x1b[1;31merror" in kafkasniff("check", too_large, *ONLY, stdout_tty=True).out


# -- exit codes


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [("never", Exit.OK), ("error", Exit.OK), ("warning", Exit.OK), ("note", Exit.FINDINGS), (None, Exit.OK)],
)
def test_notes_fail_only_on_request(fail_on: str | None, code: Exit, without_acks: Path) -> None:
    assert kafkasniff("check", without_acks, *ONLY, *(["--fail-on", fail_on] if fail_on else [])).code == code


@pytest.mark.parametrize(("fail_on", "code"), [("never", Exit.OK), ("error", Exit.FINDINGS), (None, Exit.FINDINGS)])
def test_errors_fail(fail_on: str | None, code: Exit, too_large: Path) -> None:
    assert kafkasniff("check", too_large, *ONLY, *(["--fail-on", fail_on] if fail_on else [])).code == code


def test_a_broken_capture(too_large: Path, without_acks: Path, tmp_path: Path) -> None:
    for path, code in ((too_large, Exit.FINDINGS), (without_acks, Exit.BROKEN)):
        cut = tmp_path / path.name
        cut.write_bytes(path.read_bytes()[:-7])
        assert kafkasniff("check", cut, *ONLY).code == code
        assert answered(cut, *ONLY)["broken"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-", "--only", "nobody"],
        ["-", "--skip", "late-answer"],
        ["-", "--set", "late-answers.late"],
        ["-", "--set", "late-answers.late=soon"],
        ["-", "--fail-on", "all"],
        ["-", "--filter", "nothing =="],
        ["captures", "--filter", "api = Fetch"],
    ],
)
def test_usage_errors(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = kafkasniff("check", *arguments)
    assert (result.code, result.out) == (Exit.USAGE, b"")


def test_missing_inputs(tmp_path: Path) -> None:
    assert kafkasniff("check", tmp_path / "nothing.pcap").code == Exit.CAPTURE
    assert kafkasniff("check", tmp_path).code == Exit.CAPTURE
    assert kafkasniff("check", "-", stdin_tty=True).code == Exit.USAGE


def test_an_interrupt_shows_what_was_read(too_large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = CountedRows.feed

    def interrupted(rows: CountedRows, batch: PacketBatch) -> None:
        feed(rows, batch)
        raise Interrupted(2)

    monkeypatch.setattr(CountedRows, "feed", interrupted)
    result = kafkasniff("check", too_large, *ONLY)
    assert (result.code, "interrupted" in result.err) == (Exit.SIGINT, True)
    assert result.lines[0].startswith("1 error")


# -- options


def test_filters_and_ports(too_large: Path) -> None:
    assert answered(too_large, *ONLY, "--topic", "orders")["counts"]["error"] == 1
    assert answered(too_large, *ONLY, "--exchange", "2")["findings"][0]["count"] == 1
    assert answered(too_large, *ONLY, "--api", "Fetch")["findings"] == []
    assert answered(too_large, *ONLY, "--port", "9093")["findings"] == []


def test_standard_input_and_a_file(too_large: Path, tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    result = kafkasniff("check", "-", *ONLY, "--format", "json", "-o", output, stdin=too_large.read_bytes())
    assert (result.code, result.out) == (Exit.FINDINGS, b"")
    reported = json.loads(output.read_text())
    assert reported["sources"] == ["-"]
    assert reported["findings"] == answered(too_large, *ONLY)["findings"]
    assert kafkasniff("check", too_large, "-o", too_large).code == Exit.USAGE


def test_thresholds(too_large: Path) -> None:
    found = answered(too_large, "--only", "oversized-messages", "--set", "oversized-messages.limit=3000")["findings"]
    assert [one["severity"] for one in found] == ["error"]
    assert answered(too_large, "--skip", ",".join(detector_names()))["findings"] == []


def test_the_list(tmp_path: Path) -> None:
    lines = kafkasniff("check", "--list", width=100).lines
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(detector_names())
    assert max(map(len, lines)) <= 100
    (reported,) = kafkasniff("check", "--list", "--format", "json", "--set", "late-answers.late=5s").objects
    assert [one["name"] for one in reported] == list(detector_names())
    (late,) = [one for one in reported if one["name"] == "late-answers"]
    assert late["thresholds"] == {"late": "5s", "at_least": "5", "timeout": "30s"}
    output = tmp_path / "list.txt"
    assert kafkasniff("check", "--list", "--only", "acks-zero", "-o", output).code == Exit.OK
    assert output.read_text().startswith("acks-zero ")


def test_progress_and_quiet(too_large: Path) -> None:
    loud = kafkasniff("check", too_large, *ONLY, stderr_tty=True)
    assert loud.code == Exit.FINDINGS
    assert kafkasniff("check", too_large, *ONLY, "-q", stderr_tty=True).err == ""


def test_an_empty_capture(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap_bytes([]))
    result = kafkasniff("check", path)
    assert (result.code, result.lines) == (Exit.OK, [f"no Kafka traffic in {path}"])


# -- memory


def test_a_memory_budget(capture: Path) -> None:
    refused = kafkasniff("check", "--memory", "127M", capture)
    assert refused.code == Exit.USAGE
    assert "128M is the minimum" in refused.err
    assert kafkasniff("check", "--memory", "128M", capture).text == kafkasniff("check", capture).text
