"""`python -m benchmarks.bodies CAPTURE…`: the share of a capture's bodies that are equal to an earlier one.

Messages are found by their length prefixes and correlation ids alone. That is enough for the benchmarks' captures, in
which no segment is lost and none is encrypted. Bytes after a gap are skipped, and so are APIs and versions that the
dissectors do not have.
"""

from __future__ import annotations

import argparse
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.tables import table
from kafkasniff.kafka.apis import dissectors
from tests.craft.packet import SYN, Stream, ahead
from tests.craft.read import file_bytes, raw_packets, tcp_packet

REQUEST_HEADER: Final = 10
"""API key, version, correlation id, length of the client id."""

Kind = tuple[int, int, bool]
"""API key, version, and whether it is a request."""


class Body(NamedTuple):
    """Where a body is in a stream."""

    kind: Kind
    data: bytes
    start: int
    end: int

    def bytes(self) -> bytes:
        return self.data[self.start : self.end]


def bodies_of(capture: Path) -> list[Body]:
    """The bodies of all messages, connection by connection, requests before responses."""
    streams, is_client = _streams(capture)
    found: list[Body] = []
    for (src, sport, dst, dport), requests in streams.items():
        answers = dst, dport, src, sport
        if is_client[src, sport, dst, dport]:
            asked = list(_requests(requests))
            found += [body for body, _ in asked]
            found += _responses(streams.get(answers, b""), {number: body.kind for body, number in asked})
    return found


def equal_share(bodies: list[Body]) -> float:
    """The share of bodies that are equal to an earlier one of the same API, version and direction, 0 to 1."""
    different = {(body.kind, body.bytes()) for body in bodies}
    return 1 - len(different) / len(bodies) if bodies else 0.0


def _streams(capture: Path) -> tuple[dict[Stream, bytes], dict[Stream, bool]]:
    """The bytes of each stream up to the first gap, and whether a client sent it: clients send the first packet."""
    starts: dict[Stream, int] = {}
    is_client: dict[Stream, bool] = {}
    pieces: dict[Stream, list[tuple[int, bytes]]] = defaultdict(list)
    for raw in raw_packets(file_bytes(capture)):
        packet = tcp_packet(*raw)
        if packet is None:
            continue
        src, sport, dst, dport = packet.stream
        if packet.stream not in starts:
            is_client[packet.stream] = (dst, dport, src, sport) not in starts
        first = packet.seq + bool(packet.flags & SYN)
        place = ahead(first, starts.setdefault(packet.stream, first))
        if packet.payload:
            pieces[packet.stream].append((place, packet.payload))
    return {stream: _joined(found) for stream, found in pieces.items()}, is_client


def _joined(pieces: list[tuple[int, bytes]]) -> bytes:
    out = bytearray()
    for place, payload in sorted(pieces, key=lambda piece: piece[0]):
        if place > len(out):
            break
        out += payload[max(0, len(out) - place) :]
    return bytes(out)


def _frames(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each message starts and ends, without its length prefix."""
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size < 4 or at + 4 + size > len(data):
            return
        yield at + 4, at + 4 + size
        at += 4 + size


def _requests(data: bytes) -> Iterator[tuple[Body, int]]:
    """Bodies of requests with their correlation ids; ends at the first bytes that are not a request."""
    for start, end in _frames(data):
        if end - start < REQUEST_HEADER:
            return
        key, version, number, length = struct.unpack_from(">hhih", data, start)
        api = dissectors.api(key)
        if api is None or version not in api.versions:
            return
        begin = start + REQUEST_HEADER + max(length, 0) + (api.request_header(version) > 1)
        if length < -1 or begin > end:
            return
        yield Body((key, version, True), data, begin, end), number


def _responses(data: bytes, asked: dict[int, Kind]) -> Iterator[Body]:
    for start, end in _frames(data):
        (number,) = struct.unpack_from(">i", data, start)
        if number in asked:
            key, version, _ = asked[number]
            api = dissectors.api(key)
            assert api is not None
            yield Body((key, version, False), data, start + 4 + (api.response_header(version) > 0), end)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bodies", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("captures", nargs="+", type=Path)
    rows = []
    for capture in parser.parse_args().captures:
        bodies = bodies_of(capture)
        rows.append((capture.stem, f"{len(bodies):,}", f"{equal_share(bodies):.1%}"))
    print(table(("capture", "bodies", "equal to an earlier one"), rows))


if __name__ == "__main__":
    main()
