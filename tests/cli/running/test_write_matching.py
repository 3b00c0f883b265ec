"""`decode --write-matching`: which connections are written, what is printed, and what is refused."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff.capture.formats.pcapng import options
from kafkasniff.capture.write.capture_writer import MAX_COMMENT, commented
from kafkasniff.cli.environment import Exit
from kafkasniff.cli.running import write_matching
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft.samples import mixed, producer

TLS = ROOT / "captures" / "tls"


def decoded(path: Path, *options: object) -> list[tuple[str, str, int]]:
    result = kafkasniff("decode", "-q", "--format", "json", *options, path)
    assert result.code == 0, result.err
    lines = [line for line in result.objects if line["type"] != "problem"]
    return [(line["client"], line["type"], line["correlation_id"]) for line in lines]


def test_the_connections_of_selected_messages(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "slow.pcapng"
    expression = 'api == "Produce" and error == "NOT_LEADER_OR_FOLLOWER"'
    result = kafkasniff("decode", "--filter", expression, "--write-matching", out, capture)
    assert result.code == 0
    assert len(result.lines) > 2
    count = len(producer().packets)
    assert result.err.startswith(f"kafkasniff: {count} packets of 1 connection in {out}: {len(mixed())} packets, ")
    assert ", 2 shown, " in result.err
    client = decoded(capture, "--filter", expression)[0][0]
    assert decoded(out) == [line for line in decoded(capture) if line[0] == client]
    assert out.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == [out.name]


def test_an_existing_file_is_replaced_as_a_whole(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    out.write_bytes(b"before")
    broken = tmp_path / "broken.pcap"
    broken.write_bytes(capture.read_bytes()[:-7])
    result = kafkasniff("decode", "-q", "--write-matching", out, broken)
    assert result.code == Exit.BROKEN
    assert decoded(out)
    assert sorted(os.listdir(tmp_path)) == ["broken.pcap", "out.pcapng"]


def test_tls_stays_encrypted_and_its_keys_are_written_with_other_secrets_only(tmp_path: Path) -> None:
    path, out = TLS / "tls13-kafkajs.pcapng", tmp_path / "out.pcapng"
    expected = decoded(path)
    assert expected
    shown = kafkasniff("decode", "-q", "--show-secrets", "--write-matching", out, path)
    assert (shown.code, shown.err) == (0, "")
    assert decoded(out) == expected
    assert b"_TRAFFIC_SECRET_0 " in out.read_bytes()
    hidden = kafkasniff("decode", "--no-payload", "--write-matching", out, path)
    assert "encrypted in" in hidden.err
    assert b"_TRAFFIC_SECRET_0 " not in out.read_bytes()
    result = kafkasniff("decode", "--format", "json", out)
    assert {line["kind"] for line in result.objects} == {"tls-not-decrypted"}
    # Encrypted bytes are unchanged: with the keys they decrypt to the same messages.
    keys = tmp_path / "keys"
    keys.write_bytes(b"\n".join(re.findall(rb"(?:CLIENT|SERVER)_[A-Z_0]+ [0-9a-f]{64} [0-9a-f]+", path.read_bytes())))
    assert decoded(out, "--keylog", keys) == expected


def comments(path: Path) -> dict[int, list[str]]:
    """Comments of packets, newest first, by the packet's number."""
    found: dict[int, list[str]] = {}

    def take(number: int, _time: int, data: bytes) -> None:
        found[number] = [value.decode() for code, value in options(data, 0, len(data), "<") if code == 1]

    with path.open("rb") as file:
        assert b"".join(commented(file, take)) == path.read_bytes()
    return {number: values for number, values in found.items() if values}


def expected_comments(path: Path) -> dict[int, list[str]]:
    """The lines of a file, without time and addresses, by the packet that completes each message."""
    text = "\n".join(kafkasniff("decode", "-q", path).lines)
    rows = kafkasniff("decode", "-q", "--format", "csv", path).lines[1:]
    found: dict[int, list[str]] = {}
    for line, row in zip(re.findall(r"^[\d:.]{15}  .*(?:\n {17}.*)*", text, re.MULTILINE), rows, strict=True):
        kind, number = row.split(",")[0], row.split(",")[14]
        shown = re.split("  +", line, maxsplit=2)[2].replace("\n" + 17 * " ", "\n")
        if kind != "problem":
            found.setdefault(int(number), []).append(re.sub(" {2,}", "  ", shown))
    return found


@pytest.mark.parametrize("name", ["java-errors.pcap", "old-raw-sasl.pcap", "librdkafka-codecs.pcap"])
def test_comments_say_what_the_file_says(name: str, tmp_path: Path) -> None:
    """They are read from it, so they hold nothing that is blank; `-w` with payload hidden blanks more."""
    out = tmp_path / "out.pcapng"
    assert kafkasniff("decode", "-q", "--no-payload", "-w", out, ROOT / "captures" / name).code == 0
    found, expected = comments(out), expected_comments(out)
    assert len(found) > 10
    assert found.keys() == expected.keys()
    for number, (text,) in found.items():
        whole = "\n".join(expected[number])
        if len(whole.encode()) > MAX_COMMENT:
            whole = whole.encode()[: MAX_COMMENT - 3].decode("utf-8", "ignore") + "…"
        assert text == whole


def test_comments_take_bounded_memory(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_matching, "_COMMENT_OVERHEAD", 1 << 28)
    out = tmp_path / "out.pcapng"
    done = kafkasniff("decode", "-q", "-w", out, capture)
    assert done.err == f"kafkasniff: the last packets in {out} have no comments: memory limit\n"
    assert len(comments(out)) == 1
    assert decoded(out) == decoded(capture)


def test_tshark_shows_comments(tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    tshark, out = require_tool("tshark"), tmp_path / "out.pcapng"
    assert kafkasniff("decode", "-q", "-w", out, ROOT / "captures" / "java-errors.pcap").code == 0
    fields = ("-T", "fields", "-e", "frame.number", "-e", "frame.comment")
    shown = subprocess.run([tshark, "-n", "-r", out, *fields], check=True, capture_output=True).stdout.decode()
    rows = [line.split("\t") for line in shown.splitlines()]
    assert {int(number): text.split("\\n") for number, text in rows if text} == expected_comments(out)
