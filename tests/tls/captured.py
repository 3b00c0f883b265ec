"""The shipped captures of TLS (`captures/tls`): manifest, sidecars, and tshark's decryption of them."""

from __future__ import annotations

import functools
import json
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.craft.outcome import Line, Outcome, files_outcome
from tests.craft.packet import Packet
from tests.craft.read import read_packets

FOLDER = Path(__file__).resolve().parents[2] / "captures" / "tls"
ENTRIES: dict[str, dict[str, Any]] = {
    Path(entry["file"]).stem: entry
    for entry in json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["captures"]
}
RESUMED = "tls12-resumed"
"""Only the secrets of the first connection of a session."""
WITH_SECRETS = sorted(name for name, entry in ENTRIES.items() if entry["format"] == "pcapng" and name != RESUMED)


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
