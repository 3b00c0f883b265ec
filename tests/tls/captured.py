"""The shipped captures of TLS (`captures/tls`): manifest, sidecars, and tshark's decryption of them."""

from __future__ import annotations

import functools
import json
import re
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.craft.outcome import Line, Outcome, files_outcome, packets_outcome
from tests.craft.packet import Packet
from tests.craft.read import read_packets
from tests.tls.endpoints import packets_of

FOLDER = Path(__file__).resolve().parents[2] / "captures" / "tls"
ENTRIES: dict[str, dict[str, Any]] = {
    Path(entry["file"]).stem: entry
    for entry in json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["captures"]
}
RESUMED = "tls12-resumed"
"""Only the secrets of the first connection of a session."""
WITH_SECRETS = sorted(name for name, entry in ENTRIES.items() if entry["format"] == "pcapng" and name != RESUMED)


class Streams(NamedTuple):
    """Clear bytes of a connection, by direction."""

    client: bytes
    broker: bytes


class Message(NamedTuple):
    """tshark's fields of a message, except for its connection."""

    packet: int
    """The packet that completes the message."""
    is_request: bool
    api_key: int | None
    """Null in responses, as are the next two."""
    api_version: int | None
    client_id: str | None
    correlation_id: int
    size: int


def path(name: str) -> Path:
    return FOLDER / ENTRIES[name]["file"]


def sidecar(name: str) -> list[Line]:
    lines = (FOLDER / ENTRIES[name]["sidecar"]).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@functools.cache
def outcome(name: str) -> Outcome:
    """kafkasniff's output for the capture with its secrets."""
    return files_outcome([path(name)])


@functools.cache
def packets(name: str) -> list[Packet]:
    """Only its packets, so that the secrets are gone."""
    return read_packets(path(name))


@functools.cache
def key_log(name: str) -> bytes:
    """Its secrets: decryption secrets blocks (type 10) of pcapng."""
    data, found, position = path(name).read_bytes(), b"", 0
    while position < len(data):
        kind, length = struct.unpack_from("<II", data, position)
        if kind == 10:
            size = struct.unpack_from("<I", data, position + 12)[0]
            found += data[position + 16 : position + 16 + size]
        position += length
    assert found
    return found


def by_connection(lines: list[Line]) -> dict[int, list[Line]]:
    """Messages of each connection in order."""
    found: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line["type"] in ("request", "response"):
            found[line["connection"]].append(line)
    return dict(found)


FIELDS = (
    "frame.number",
    "tcp.stream",
    "tcp.dstport",
    "kafka.api_key",
    "kafka.api_version",
    "kafka.client_id",
    "kafka.correlation_id",
    "kafka.len",
)
_FOLLOWED = re.compile(
    r"^Follow: tls,raw\nFilter: tcp\.stream eq (\d+)\nNode 0: .*?\nNode 1: .*?\n(.*?)^=+$", re.M | re.S
)


class Theirs(NamedTuple):
    """tshark's view of a capture, by connection: it numbers them as kafkasniff does, but from 0."""

    messages: dict[int, list[Message]]
    streams: dict[int, Streams]


@functools.cache
def by_tshark(tshark: str, name: str) -> Theirs:
    """One run: its Kafka dissector on the decrypted data, and the decrypted bytes of each connection."""
    ports = ENTRIES[name]["broker_ports"]
    command = [tshark, "-n", "-r", str(path(name)), "-Y", "kafka", "-T", "fields"]
    command += [part for port in ports for part in ("-d", f"tls.port=={port},kafka")]
    command += [part for field in FIELDS for part in ("-e", field)]
    starts = sum(packet.flags & 0x12 == 2 for packet in packets(name))
    command += [part for number in range(starts) for part in ("-z", f"follow,tls,raw,{number}")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    messages: dict[int, list[Message]] = defaultdict(list)
    for line in printed.splitlines():
        if line.startswith("=") or not line:
            break
        connection, read = _row(line, ports)
        messages[connection] += read
    streams: dict[int, Streams] = {}
    for found in _FOLLOWED.finditer(printed):
        # The bytes of one side are indented; tshark 4.0 does not always name the sides (":0").
        said = [b"", b""]
        for line in found[2].splitlines():
            said[line.startswith("\t")] += bytes.fromhex(line.strip())
        if any(said):
            connection = int(found[1]) + 1
            first = next(message for message in messages[connection] if message.is_request)
            assert first.api_key is not None
            head = first.size.to_bytes(4) + first.api_key.to_bytes(2)
            client = [data.startswith(head) for data in said].index(True)
            streams[connection] = Streams(said[client], said[1 - client])
    return Theirs(dict(messages), streams)


def _row(line: str, ports: list[int]) -> tuple[int, list[Message]]:
    cells = dict(zip(FIELDS, line.split("\t"), strict=True))
    ids, sizes = cells["kafka.correlation_id"].split(","), cells["kafka.len"].split(",")
    is_request = int(cells["tcp.dstport"]) in ports
    count = len(ids)
    keys = versions = clients = [None] * count
    if is_request:
        keys, versions = cells["kafka.api_key"].split(","), cells["kafka.api_version"].split(",")
        clients = cells["kafka.client_id"].split(",")
    found = [
        Message(
            int(cells["frame.number"]),
            is_request,
            None if key is None else int(key),
            None if version is None else int(version),
            client,
            int(number),
            int(size),
        )
        for key, version, client, number, size in zip(keys, versions, clients, ids, sizes, strict=True)
    ]
    return int(cells["tcp.stream"]) + 1, found


def in_clear(streams: Streams) -> Outcome:
    """kafkasniff's output for clear bytes on a connection without TLS."""
    return packets_outcome(packets_of([("client", streams.client), ("broker", streams.broker)]))


def frames(stream: bytes) -> Iterator[bytes]:
    """Messages of a stream without their length prefixes, split by plain code; the stream must end with a message."""
    position = 0
    while position < len(stream):
        size = int.from_bytes(stream[position : position + 4], signed=True)
        assert 0 < size <= len(stream) - position - 4
        yield stream[position + 4 : position + 4 + size]
        position += 4 + size
