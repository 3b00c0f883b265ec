"""Short command lines do what users of other tools expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.cli.options.shorthand import with_command
from tests.cli.console import kafkasniff

CAPTURE = "captures/librdkafka-acks0.pcap"


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ((CAPTURE,), ("decode", CAPTURE)),
        (("-r", CAPTURE), ("decode", CAPTURE)),
        ((f"-r{CAPTURE}",), ("decode", CAPTURE)),
        (("decode", "-r", CAPTURE), ("decode", CAPTURE)),
        ((CAPTURE, "--json"), ("decode", "--format", "json", CAPTURE)),
        (("-r", CAPTURE, "--json", "-c", "1"), ("decode", "--format", "json", CAPTURE, "-c", "1")),
        (("stats", "--json", CAPTURE), ("stats", "--format", "json", CAPTURE)),
        (("check", "-r", CAPTURE, "--json"), ("check", "--format", "json", CAPTURE)),
        (("api", "Fetch", "--json"), ("api", "Fetch", "--format", "json")),
    ],
    ids=" ".join,
)
def test_short_and_full(short: tuple[str, ...], full: tuple[str, ...]) -> None:
    result, expected = kafkasniff(*short), kafkasniff(*full)
    assert result.out
    assert (result.code, result.out, result.err) == (expected.code, expected.out, expected.err)


def test_stdin_and_several_files_are_decoded() -> None:
    data = Path(CAPTURE).read_bytes()
    assert kafkasniff("-", "-q", stdin=data).out == kafkasniff("decode", "-q", "-", stdin=data).out
    both = (CAPTURE, "captures/librdkafka-1.4.pcap")
    assert kafkasniff(*both).out == kafkasniff("decode", *both).out


def test_an_interface_is_captured_live() -> None:
    assert with_command(["-i", "eth0", "--json"], ("decode", "live")) == ["live", "-i", "eth0", "--json"]
    assert with_command(["-ieth0"], ("decode", "live")) == ["live", "-ieth0"]
    assert with_command(["--help"], ("decode", "live")) == ["--help"]


def test_a_file_named_like_a_command_is_not_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stats").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert "Missing argument" in kafkasniff("stats").err


def test_arguments_after_two_dashes_are_kept() -> None:
    result = kafkasniff("decode", "--", "--json")
    assert result.code == 3
    assert "--json: cannot be opened" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("stat", CAPTURE), "no such command: stat. Did you mean stats?"),
        (("no/such.pcap",), "no such command, and no such file: no/such.pcap"),
        (("live", "--json", "--no-such"), "No such option"),
    ],
)
def test_hints(arguments: tuple[str, ...], said: str) -> None:
    result = kafkasniff(*arguments)
    assert result.code == 2
    assert said in result.err
