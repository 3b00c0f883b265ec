"""TLS from the command line, from Python, and from captures that contain their secrets."""

from __future__ import annotations

import functools
import json
import os
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.errors import UsageError
from tests.cli.console import kafkasniff
from tests.cli.wire import Wire
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.craft.write import pcap_bytes, pcapng_bytes
from tests.tables.exports.exported import rows
from tests.tls.endpoints import Pair, kafka_talk, packets_of
from tests.tls.reading import CONTENT, clear_contents


@functools.cache
def many() -> tuple[list[Packet], bytes]:
    """Simultaneous connections of both versions, and their key log."""
    packets: list[Packet] = []
    log = b""
    for number in range(6):
        version = ssl.TLSVersion.TLSv1_3 if number % 2 else ssl.TLSVersion.TLSv1_2
        made = Pair(version=version).talk(kafka_talk(3 + number))
        packets += packets_of(made.flights, sizes=700, client_port=50_000 + 7 * number)
        log += made.key_log
    packets.sort(key=lambda packet: packet.time_ns)
    return packets, log


def with_secrets(capture: bytes, log: bytes, *, blocks: int) -> bytes:
    """A pcapng capture with a decryption secrets block (type 10, secrets of type TLSK) after its first `blocks`."""
    at = 0
    for _ in range(blocks):
        at += struct.unpack_from("<I", capture, at + 4)[0]
    body = struct.pack("<II", 0x544C534B, len(log)) + log + b"\0" * (-len(log) % 4)
    block = struct.pack("<II", 10, len(body) + 12) + body + struct.pack("<I", len(body) + 12)
    return capture[:at] + block + capture[at:]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A capture and its key log."""
    packets, log = many()
    capture, keys = tmp_path / "tls.pcap", tmp_path / "keys.log"
    capture.write_bytes(pcap_bytes(packets))
    keys.write_bytes(log)
    return capture, keys


def said(result: Any) -> list[dict[str, Any]]:
    assert result.code == 0, result.err
    found = [line for line in result.objects if line["type"] in ("request", "response")]
    return [{name: line.get(name) for name in CONTENT} for line in found]


def decode(*arguments: object) -> Any:
    return kafkasniff("decode", "--format", "json", *arguments)


def test_decode_with_a_key_log(files: tuple[Path, Path]) -> None:
    capture, keys = files
    found = decode("--keylog", keys, capture)
    expected = [line for number in range(6) for line in clear_contents(kafka_talk(3 + number))]
    assert sorted(map(json.dumps, said(found))) == sorted(map(json.dumps, expected))
    assert "6 connections (6 Kafka)" in found.err
    without = decode(capture)
    assert [line["kind"] for line in without.objects] == ["tls-not-decrypted"] * 6


def test_secrets_in_the_capture(tmp_path: Path, files: tuple[Path, Path]) -> None:
    expected = decode("--keylog", files[1], files[0]).objects
    packets, log = many()
    capture = tmp_path / "with.pcapng"
    capture.write_bytes(with_secrets(pcapng_bytes(packets), log, blocks=2))
    one = decode(capture)
    assert [line for line in one.objects if line["type"] == "problem"] == []
    assert said(one) == [
        {name: line.get(name) for name in CONTENT} for line in expected if line["type"] in ("request", "response")
    ]
    assert decode("--jobs", 3, capture).out == one.out
    # Only one of the processes reports its problems.
    capture.write_bytes(with_secrets(pcapng_bytes(packets), b"bad\n" + log, blocks=2))
    one, other = decode(capture), decode("--jobs", 3, capture)
    assert [line["kind"] for line in one.objects if line["type"] == "problem"] == ["tls-key-log"]
    assert other.out == one.out


@pytest.mark.parametrize("command", [["decode"], ["export"], ["export", "--engine", "spark"]])
def test_a_key_log_that_cannot_be_read(tmp_path: Path, files: tuple[Path, Path], command: list[str]) -> None:
    if command[0] == "export":
        command = [*command, "-o", str(tmp_path / "out")]
    for path in (tmp_path / "none", tmp_path):
        found = kafkasniff(*command, "--keylog", path, files[0])
        assert found.code == 2
        assert f"cannot read the key log {path}" in found.err
    assert not (tmp_path / "out").exists()


# -- files that grow -------------------------------------------------------------------------------------------------


def line(secret: int) -> bytes:
    return b"CLIENT_RANDOM %s %s\n" % (bytes((secret,)).hex().encode() * 32, b"ab" * 48)


def has(log: Any, secret: int) -> bool:
    return log.find("CLIENT_RANDOM", bytes((secret,)) * 32, 0) is not None


def test_a_growing_file_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "keys.log"
    log = open_key_log(path, grows=True)  # it does not exist yet
    assert log.may_come(0)
    assert not has(log, 1)
    path.write_bytes(line(1))
    assert has(log, 1)
    with path.open("ab") as stream:
        stream.write(line(2)[:50])
        stream.flush()
        assert not has(log, 2)
        stream.write(line(2)[50:])
        stream.flush()
        assert has(log, 2)
    # A file that is truncated or replaced: the secrets that were read stay.
    path.write_bytes(line(3))
    assert has(log, 3)
    other = tmp_path / "other"
    other.write_bytes(line(4) + line(5))
    os.replace(other, path)
    assert has(log, 4)
    assert has(log, 5)
    path.unlink()
    assert not has(log, 6)
    assert has(log, 1)


def test_a_pipe_cannot_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="only a regular file can be followed while it grows"):
        open_key_log(path, grows=True)


def test_a_key_log_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkasniff.capture.timeline import key_log_file

    monkeypatch.setattr(key_log_file, "MAX_KEY_LOG", 100)
    path = tmp_path / "keys.log"
    path.write_bytes(line(1))
    with pytest.raises(UsageError, match="longer than"):
        open_key_log(path)


# -- live ------------------------------------------------------------------------------------------------------------


class Interface(Wire):
    """Packets of TLS, and a key log that is written after all but the last packets of the connection."""

    def __init__(self, packets: list[Packet], path: Path, log: bytes) -> None:
        super().__init__()
        self._packets, self._path, self._log = packets, path, log

    def __iter__(self) -> Any:
        last = len(self._packets) - 6
        yield batch(self._packets[:last])
        self._path.write_bytes(self._log)
        yield batch(self._packets[last:], range(last, len(self._packets)))


def test_live_reads_a_key_log_that_grows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Pair().talk(kafka_talk(4))
    interface = Interface(packets_of(made.flights), tmp_path / "keys.log", made.key_log)
    monkeypatch.setattr("kafkasniff.capture.live.live.open_live", interface.open)
    found = kafkasniff(
        "live", "-i", "eth0", "--format", "json", "--keylog", tmp_path / "keys.log", "--export", tmp_path / "out"
    )
    assert said(found) == clear_contents(made.clear)
    assert len(rows(tmp_path / "out", "exchanges")) == len(made.clear) // 2
