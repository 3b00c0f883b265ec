"""tshark's decryption as a second opinion: the same messages in the same packets."""

from __future__ import annotations

import functools
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.craft.packet import Packet
from tests.craft.write import pcap_bytes, pcapng_bytes
from tests.tls.endpoints import NO_ENCRYPT_THEN_MAC, Pair, kafka_talk, packets_of
from tests.tls.openssl import Endpoints
from tests.tls.reading import decrypted
from tests.tls.test_commands import with_secrets

pytestmark = pytest.mark.tshark

RequireTool = Callable[[str], str]
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3

Reported = list[tuple[int, bool, int, int]]
"""Packet that completes the message, whether it is a request, correlation id, size."""


def by_tshark(tshark: str, capture: Path, *options: str) -> Reported:
    command = [tshark, "-n", "-r", str(capture), "-d", "tls.port==9093,kafka", *options, "-Y", "kafka", "-T", "fields"]
    for field in ("frame.number", "tcp.dstport", "kafka.correlation_id", "kafka.len"):
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = []
    for line in done.stdout.splitlines():
        number, port, ids, sizes = line.split("\t")
        pairs = zip(ids.split(","), sizes.split(","), strict=True)
        found += [(int(number), port == "9093", int(one), int(size)) for one, size in pairs]
    return found


def by_us(packets: list[Packet], log: bytes) -> Reported:
    return [
        (line["last_packet"], line["type"] == "request", line["correlation_id"], line["size"])
        for line in decrypted(packets, log).lines
        if line["type"] in ("request", "response")
    ]


@functools.cache
def sample(name: str) -> tuple[list[Packet], bytes]:
    version = V12 if name != "1.3" else V13
    options = NO_ENCRYPT_THEN_MAC if name == "AES256-SHA256" else 0
    pair = Pair(version=version, ciphers=None if name == "1.3" else name, options=options)
    first = pair.talk(kafka_talk(6, b"v" * 500), pieces=200)
    second = pair.talk(kafka_talk(3), session=first.session)
    packets = packets_of(first.flights, sizes=333) + packets_of(second.flights, sizes=333, client_port=40_000)
    return packets, first.key_log + second.key_log


@pytest.mark.parametrize(
    "name",
    ["1.3", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES256-SHA384", "AES256-SHA256"],
)
def test_the_same_messages_in_the_same_packets(require_tool: RequireTool, tmp_path: Path, name: str) -> None:
    packets, log = sample(name)
    capture, keys = tmp_path / "tls.pcap", tmp_path / "keys.log"
    capture.write_bytes(pcap_bytes(packets))
    keys.write_bytes(log)
    expected = by_tshark(require_tool("tshark"), capture, "-o", f"tls.keylog_file:{keys}")
    assert len(expected) == 2 * (2 + 6) + 2 * (2 + 3)
    assert by_us(packets, log) == expected


def test_secrets_in_the_capture(require_tool: RequireTool, tmp_path: Path) -> None:
    packets, log = sample("1.3")
    capture = tmp_path / "tls.pcapng"
    capture.write_bytes(with_secrets(pcapng_bytes(packets), log, blocks=2))
    expected = [one[1:] for one in by_tshark(require_tool("tshark"), capture)]
    assert [one[1:] for one in by_us(packets, log)] == expected


def test_key_updates(require_tool: RequireTool, tmp_path: Path) -> None:
    ends = Endpoints(require_tool("openssl"), tmp_path)
    try:
        with ends.connection() as connection:
            for side, data in kafka_talk(3):
                connection.say("client", b"K\n")
                connection.say(side, data)
        log, packets = ends.log.read_bytes(), packets_of(connection.flights, sizes=333)
    finally:
        ends.close()
    capture = tmp_path / "tls.pcap"
    capture.write_bytes(pcap_bytes(packets))
    expected = by_tshark(require_tool("tshark"), capture, "-o", f"tls.keylog_file:{ends.log}")
    assert len(expected) == 10
    assert by_us(packets, log) == expected


def test_master_keys_by_session_id(require_tool: RequireTool, tmp_path: Path) -> None:
    """Lines in the format of Java agents, for a connection and one that resumes its session."""
    pair = Pair(version=V12, ciphers="ECDHE-RSA-AES128-GCM-SHA256", options=ssl.OP_NO_TICKET)
    first = pair.talk(kafka_talk(4))
    assert first.session is not None
    second = pair.talk(kafka_talk(2), session=first.session)
    assert second.resumed
    packets = packets_of(first.flights, sizes=333) + packets_of(second.flights, sizes=333, client_port=40_000)
    master = first.key_log.split()[2]
    log = b"RSA Session-ID:" + first.session.id.hex().upper().encode() + b" Master-Key:" + master + b"\n"
    capture, keys = tmp_path / "tls.pcap", tmp_path / "keys.log"
    capture.write_bytes(pcap_bytes(packets))
    keys.write_bytes(log)
    expected = by_tshark(require_tool("tshark"), capture, "-o", f"tls.keylog_file:{keys}")
    assert len(expected) == 2 * (2 + 4) + 2 * (2 + 2)
    assert by_us(packets, log) == expected
