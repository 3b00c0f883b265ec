"""Captures that are replayed to a live capture, with the packets and messages in any part of them.

If a replay restarted with the same connections, a reassembler would see old data sent twice. So form C is made as long
as necessary, and copies of form A have other clients: each connection occurs once.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import small_messages
from benchmarks.measures import ours, requests_of
from benchmarks.pcap_files import IP_AT, MAX_COPIES, packet_places, write_copies
from benchmarks.processes import CommandFailedError
from benchmarks.recording import RecordingError, record_with
from benchmarks.timing import timed

Numbers = NDArray[np.int64]

PORTS_AT: Final = IP_AT + 20
"""Without IP options."""


class MaterialError(Exception):
    """A capture cannot be made; the message says why."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The beginning of a capture."""

    packets: int
    bytes: int
    requests: int
    responses: int


@dataclasses.dataclass(frozen=True)
class Material:
    """A capture and the places where it can be cut: packets and messages up to each of them."""

    path: Path
    ports: list[int]
    packets: Numbers
    bytes: Numbers
    """Counts of packets, without those that the file states."""
    requests: Numbers
    responses: Numbers

    def part(self, *, packets: float | None = None, size: float | None = None) -> Part:
        """The shortest part with this many packets or bytes, otherwise all of it."""
        places = self.packets if packets is not None else self.bytes
        wanted = packets if packets is not None else size
        assert wanted is not None
        at = min(int(np.searchsorted(places, wanted)), len(places) - 1)
        return Part(*(int(column[at]) for column in (self.packets, self.bytes, self.requests, self.responses)))


def small(folder: Path, packets: int, connections: int) -> Material:
    """Form C with at least this many packets, made if it does not exist. It can be cut after each packet."""
    path = folder / f"C-{connections}-{packets}.pcap"
    facts = path.with_suffix(".json")
    if not facts.exists():
        # A round more than necessary: a capture is never larger than requested.
        reported = small_messages.write(path, connections, packets + 3 * connections)
        facts.write_text(json.dumps(reported) + "\n")
    known = json.loads(facts.read_text())
    material = _counted(path, small_messages.BROKER_PORT)
    found = material.part(packets=float("inf"))
    if (found.packets, found.requests, found.responses) != (known["packets"], known["requests"], known["responses"]):
        raise MaterialError(f"{path} is not what was made: remove it")
    return material


def _counted(path: Path, port: int) -> Material:
    """A capture in which every packet with data from or to `port` is one message."""
    data = path.read_bytes()
    places, lengths = packet_places(data)
    view = np.frombuffer(data, np.uint8)
    source, target = (
        view[places + at].astype(np.int64) * 256 + view[places + at + 1] for at in (PORTS_AT, PORTS_AT + 2)
    )
    filled = lengths > small_messages.HEADERS
    return Material(
        path,
        [port],
        np.arange(1, len(places) + 1),
        np.cumsum(lengths),
        np.cumsum(filled & (target == port)),
        np.cumsum(filled & (source == port)),
    )


def large(folder: Path, megabytes: int, size: float, python: str) -> Material:
    """Copies of form A of this many megabytes, with at least `size` bytes together; it can be cut between copies.

    Recorded from this network's loopback unless it is there; `python` has confluent-kafka. Raises MaterialError.
    """
    base = folder / f"A-{megabytes}.pcap"
    facts = base.with_suffix(".json")
    if not facts.exists():
        facts.write_text(json.dumps(_record(base, megabytes, python)) + "\n")
    known = json.loads(facts.read_text())
    data = base.read_bytes()
    places, lengths = packet_places(data)
    count = max(1, -(-int(size) // int(lengths.sum())))
    if count > MAX_COPIES:
        raise MaterialError(f"{size / 1e6:,.0f} MB are more than {MAX_COPIES} copies of {megabytes} MB")
    path = folder / f"A-{megabytes}-x{count}.pcap"
    if not path.exists():
        for old in folder.glob(f"A-{megabytes}-x*.pcap"):
            old.unlink()
        aside = path.with_suffix(".part")
        write_copies(data, aside, count, known["ports"])
        aside.rename(path)
    each = np.arange(1, count + 1)
    return Material(
        path,
        known["ports"],
        each * len(places),
        each * int(lengths.sum()),
        each * known["requests"],
        each * known["responses"],
    )


def _record(path: Path, megabytes: int, python: str) -> dict[str, Any]:
    """Record form A; its ports and messages. tshark has to see the same requests. Raises MaterialError."""
    try:
        ports = record_with(python, path, megabytes)
    except RecordingError as error:
        raise MaterialError(str(error)) from error
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        output = Path(scratch) / "output"
        _decode(path, output)
        with output.open("rb") as lines:
            kinds = [line[:16] for line in lines]
        requests = sum(kind.startswith(b'{"type":"request') for kind in kinds)
        if shutil.which("tshark") is not None:
            mine, other, _ = requests_of(path, ports, Path(scratch) / "counted")
            if mine != other:
                raise MaterialError(f"{path}: kafkasniff sees {mine} requests, tshark {other}; remove it and try again")
    responses = sum(kind.startswith(b'{"type":"respons') for kind in kinds)
    return {"ports": ports, "requests": requests, "responses": responses}


def _decode(path: Path, output: Path) -> None:
    try:
        timed(ours(path, "json"), output)
    except CommandFailedError as error:
        raise MaterialError(str(error)) from error
