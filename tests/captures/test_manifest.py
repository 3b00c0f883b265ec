"""Captures, sidecars, manifest and README agree with each other, by means that are not the product's."""

import functools
import hashlib
import json
import struct
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from scapy.layers.inet import TCP
from scapy.layers.inet6 import IPv6  # noqa: F401  (scapy dissects IPv6 only once its layer is loaded)
from scapy.packet import NoPayload, Padding
from scapy.utils import PcapReader, RawPcapReader

from tests.choice import one_in

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
ENTRIES = json.loads((CAPTURES / "manifest.json").read_text(encoding="utf-8"))["captures"]
OF_TLS = json.loads((CAPTURES / "tls" / "manifest.json").read_text(encoding="utf-8"))["captures"]
"""Their content is encrypted: tests/tls/test_captures.py compares it with the clients' logs."""
every_folder = pytest.mark.parametrize(
    ("folder", "entries"), [(CAPTURES, ENTRIES), (CAPTURES / "tls", OF_TLS)], ids=["captures", "tls"]
)
every_file = pytest.mark.parametrize(
    ("folder", "entry"),
    [
        pytest.param(folder, entry, id=entry["file"])
        for folder, entries in ((CAPTURES, ENTRIES), (CAPTURES / "tls", OF_TLS))
        for entry in entries
    ],
)

# Those whose client's log names every request, and whose packets are whole.
every_complete_capture = pytest.mark.parametrize(
    "entry", one_in(3, [entry for entry in ENTRIES if entry["requests_complete"]]), ids=lambda entry: entry["file"]
)

CONTROLLED_SHUTDOWN_0 = (7, 0)
"""The only request whose header names no client."""


def sidecar(entry, folder=CAPTURES):
    lines = (folder / entry["sidecar"]).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


class Segment(NamedTuple):
    sport: int
    dport: int
    seq: int
    flags: int
    data: bytes


@functools.lru_cache(maxsize=1)
def segments_on_the_wire(name):
    """As scapy takes a capture apart, once for both directions."""
    found = []
    with PcapReader(str(CAPTURES / name)) as packets:
        for packet in packets:
            segment = packet[TCP]
            payload = segment.payload
            data = b"" if isinstance(payload, (NoPayload, Padding)) else bytes(payload)
            found.append(Segment(segment.sport, segment.dport, segment.seq, int(segment.flags), data))
    return found


def streams_on_the_wire(entry, to_broker):
    """Bytes of each stream of one direction with the client's port, by a plain walk.

    Good for captures of loopback alone: whole, in order; only exact repeats are skipped, by sequence number.
    """
    streams = defaultdict(bytearray)
    starts = {}
    for segment in segments_on_the_wire(entry["file"]):
        if (segment.dport in entry["broker_ports"]) is not to_broker:
            continue
        direction = (segment.sport if to_broker else segment.dport, segment.dport if to_broker else segment.sport)
        if segment.flags & 2:
            starts[direction] = segment.seq + 1
            continue
        if segment.flags & 4 and direction not in starts:
            continue  # a connection refused
        offset = (segment.seq - starts[direction]) & 0xFFFFFFFF
        stream = streams[direction]
        if segment.data and offset <= len(stream):
            stream += segment.data[len(stream) - offset :]
    return [(port, bytes(stream)) for (port, _), stream in streams.items()]


def requests_on_the_wire(entry):
    for port, stream in streams_on_the_wire(entry, to_broker=True):
        position = 0
        while position + 14 <= len(stream):
            size, key, version, correlation, length = struct.unpack_from(">ihhih", stream, position)
            named = length >= 0 and (key, version) != CONTROLLED_SHUTDOWN_0
            client = stream[position + 14 : position + 14 + length].decode() if named else None
            yield {
                "api_key": key,
                "api_version": version,
                "correlation_id": correlation,
                "client_id": client,
                "client_port": port,
                "size": size,
            }
            position += 4 + size


def responses_on_the_wire(entry):
    for port, stream in streams_on_the_wire(entry, to_broker=False):
        position = 0
        while position + 8 <= len(stream):
            size, correlation = struct.unpack_from(">ii", stream, position)
            yield {"correlation_id": correlation, "client_port": port, "size": size}
            position += 4 + size


def differing(wire, logged):
    """What the wire and the log do not agree on, of the fields that every line of the log has."""
    reported = [name for name in wire[0] if all(name in line for line in logged)]
    seen = Counter(tuple(one[name] for name in reported) for one in wire)
    said = Counter(tuple(line[name] for name in reported) for line in logged)
    return reported, seen - said, said - seen


@every_folder
def test_every_file_is_in_the_manifest_and_the_other_way_round(folder, entries):
    on_disk = {file.name for file in folder.iterdir() if file.is_file()} - {
        "manifest.json",
        "README.md",
        ".gitignore",
    }
    assert on_disk == {name for entry in entries for name in (entry["file"], entry["sidecar"])}


@every_file
def test_checksums(folder, entry):
    for name, digest in ((entry["file"], entry["sha256"]), (entry["sidecar"], entry["sidecar_sha256"])):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


@every_file
def test_captures_are_small(folder, entry):
    assert (folder / entry["file"]).stat().st_size == entry["bytes"] < 300_000
    assert (folder / entry["sidecar"]).stat().st_size < 600_000


@every_file
def test_packets_are_counted(folder, entry):
    with RawPcapReader(str(folder / entry["file"])) as packets:
        assert sum(1 for _ in packets) == entry["packets"]


@every_file
def test_request_counts_are_those_of_the_sidecar(folder, entry):
    said = sidecar(entry, folder)
    counts = Counter((line["api"], str(line["api_version"])) for line in said if line["kind"] == "request")
    assert {(api, version): n for api, table in entry["requests"].items() for version, n in table.items()} == counts


@every_complete_capture
def test_requests_on_the_wire_are_those_of_the_client_log(entry):
    logged = [line for line in sidecar(entry) if line["kind"] == "request"]
    reported, unsaid, unseen = differing(list(requests_on_the_wire(entry)), logged)
    assert {"api_key", "api_version"} < set(reported)
    assert (unsaid, unseen) == (Counter(), Counter())


@every_complete_capture
def test_responses_on_the_wire_are_those_of_the_client_log(entry):
    logged = [line for line in sidecar(entry) if line["kind"] == "response"]
    reported, _, unseen = differing(list(responses_on_the_wire(entry)), logged)
    assert {"correlation_id", "size"} & set(reported)
    # Answers that came as the client closed are not in its log.
    assert unseen == Counter()


@every_folder
def test_the_readme_has_a_row_for_every_capture(folder, entries):
    text = (folder / "README.md").read_text(encoding="utf-8")
    for entry in entries:
        assert f"| `{entry['file']}` | {entry['shows']} | {entry['client']} |" in text
