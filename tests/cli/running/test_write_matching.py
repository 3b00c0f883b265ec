"""`decode --write-matching`: which connections are written, what is printed, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kafkasniff.cli.environment import Exit
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


def test_without_filters_all_kafka_connections(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.pcap"
    quiet = kafkasniff("decode", "-q", "--write-matching", out, capture)
    assert (quiet.code, quiet.out, quiet.err) == (0, b"", "")
    assert decoded(out) == decoded(capture)
    assert out.read_bytes()[:4] == b"\x4d\x3c\xb2\xa1"  # pcap, nanoseconds
    lines = tmp_path / "lines.txt"
    assert kafkasniff("decode", "-q", "-o", lines, "--write-matching", out, capture).code == 0
    assert lines.read_bytes() == kafkasniff("decode", "-q", capture).out


def test_nothing_selected(capture: Path, tmp_path: Path) -> None:
    for name in ("none.pcapng", "none.pcap"):
        out = tmp_path / name
        result = kafkasniff("decode", "--topic", "no-such-topic", "--write-matching", out, capture)
        assert result.code == Exit.NOTHING
        assert result.err.startswith(f"kafkasniff: 0 packets of 0 connections in {out}: ")
        assert kafkasniff("decode", "-q", out).err == "kafkasniff: no Kafka messages: the captures have no packets\n"


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
