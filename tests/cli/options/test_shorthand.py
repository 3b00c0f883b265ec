"""Short command lines do what users of other tools expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.cli.commands.browse import browse_command
from kafkasniff.cli.commands.decode import decode_command
from kafkasniff.cli.commands.live import live_command
from kafkasniff.cli.main import with_command, with_options
from tests.choice import one_in
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
        (("timing", "--json", CAPTURE), ("timing", "--format", "json", CAPTURE)),
        (("api", "Fetch", "--json"), ("api", "Fetch", "--format", "json")),
        (("--json", CAPTURE), ("decode", "--format", "json", CAPTURE)),
        (("-c", "1", "-r", CAPTURE), ("decode", "-c", "1", CAPTURE)),
        (("-r", CAPTURE, "-T", "fields", "-e", "api", "-e", "time"), ("decode", CAPTURE, "--fields", "api,time")),
        (("-T", "json", "-e", "size", "-r", CAPTURE), ("decode", CAPTURE, "--json", "--fields", "size")),
        (("-Y", 'api == "Produce"', "-qr", CAPTURE), ("decode", "-q", "-Y", 'api == "Produce"', CAPTURE)),
        ((f"-qvr{CAPTURE}",), ("decode", "-qv", CAPTURE)),
        (("captures/librdkafka-acks*.pcap", "-q"), ("decode", "-q", CAPTURE)),
        (("diff", "--all", "-r", CAPTURE, "-r", CAPTURE), ("diff", "--all", CAPTURE, CAPTURE)),
        *(
            ((*command, f"-r{CAPTURE}", "-q"), (*command, "-q", CAPTURE))
            for command in one_in(3, [("security",), ("timing",), ("audit", "--target", "4.0")])
        ),
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
    assert with_command(["-c", "5", "-i", "eth0"], ("decode", "live")) == ["live", "-c", "5", "-i", "eth0"]
    assert with_command(["-D"], ("decode", "live")) == ["live", "-D"]
    assert with_command(["--help", "-r", "x"], ("decode", "live"), ("--help",)) == ["--help", "-r", "x"]
    # The command is there, only late.
    assert with_command(["--json", "decode", "-r", "x"], ("decode",)) == ["--json", "decode", "-r", "x"]


def test_the_capture_filter_of_other_tools() -> None:
    given = ["-i", "eth0", "-f", "tcp port 9092", "-f", "host a"]
    assert with_options(live_command, given) == ["-i", "eth0", "tcp port 9092", "host a"]
    assert with_options(decode_command, ["--records", "--report", "-x"]) == ["--records", "--report", "-x"]


def test_files_to_read_and_to_write(tmp_path: Path) -> None:
    """As tshark and tcpdump are called to save a part of a capture."""
    part = tmp_path / "part.pcap"
    assert kafkasniff("-r", CAPTURE, "-Y", 'api == "Produce"', "-qw", part).code == 0
    apis = {line["api"] for line in kafkasniff("-qr", part, "-Y", "acks == 0", "--json").objects}
    assert apis == {"Produce"}


def test_shorthand_without_flags_of_its_own() -> None:
    """`browse` has no options of one letter that take no value."""
    assert with_options(browse_command, ["-r", "x", "--json"]) == ["x", "--json"]
