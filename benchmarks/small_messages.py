"""Form C: many connections of small messages, made with NumPy: seeded, the same in every run, seconds per million."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.craft import kafka_bytes as kafka

HEADERS: Final = 14 + 20 + 20
"""Ethernet, IPv4, TCP."""

BROKERS: Final = 3
BROKER_PORT: Final = 9092
TEMPLATES: Final = 64
"""Different exchanges, so that nothing can live off one message being repeated."""

ROUND_NS: Final = 50_000_000
"""In each round every connection has one exchange; it ends within its round."""

ROUNDS_AT_ONCE: Final = 16
START_S: Final = 1_781_000_000

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Pairs = Sequence[tuple[bytes, bytes]]


def templates(seed: int) -> list[tuple[bytes, bytes]]:
    """Requests and responses of four APIs with correlation id 0, all of versions that tshark 4.0 knows."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(TEMPLATES):
        topic = f"topic-{number % 7}"
        value = bytes(rng.integers(97, 123, int(rng.integers(40, 200)), dtype=np.uint8))
        batch = kafka.record_batch([kafka.record(0, f"key-{number}".encode(), value)], base_offset=number)
        kind = number % 8
        if kind < 4:
            pair = (kafka.produce_request(0, topic, batch), kafka.produce_response(0, topic, number))
        elif kind < 6:
            pair = (kafka.fetch_request(0, topic, number), kafka.fetch_response(0, topic, batch, number + 1))
        elif kind == 6:
            body = kafka.string("group") + kafka.int32(number) + kafka.string(f"member-{number}")
            pair = (kafka.request(12, 0, 0, body), kafka.response(0, kafka.int16(0)))
        else:
            pair = (kafka.metadata_request(0, [topic]), kafka.metadata_response(0, "broker", BROKER_PORT, [topic], 2))
        made.append(pair)
    return made


def _put(rows: Bytes, column: int, values: Numbers, width: int) -> None:
    """Write `values` big-endian into `width` columns of `rows` from `column` on."""
    for byte in range(width):
        rows[:, column + byte] = (values >> (8 * (width - 1 - byte))) & 0xFF


def _checksums(rows: Bytes, extra: Numbers | int = 0) -> Numbers:
    """The Internet checksum of each row, RFC 1071; `extra` is added to the sum (a pseudo header's)."""
    if rows.shape[1] % 2:
        rows = np.pad(rows, ((0, 0), (0, 1)))
    total: Numbers = np.ascontiguousarray(rows).view(">u2").sum(axis=1, dtype=np.int64) + extra
    for _ in range(2):
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packets(
    payload: bytes,
    flags: int,
    time_ns: Numbers,
    *,
    ends: tuple[Numbers, ...],
    seq: Numbers,
    ack: Numbers,
    ident: Numbers,
) -> Bytes:
    """Rows of one kind: pcap record header, Ethernet, IPv4, TCP, `payload`. `ends`: addresses and ports, source first.

    The payload's correlation id and the checksums are still 0.
    """
    src, sport, dst, dport = ends
    size = HEADERS + len(payload)
    rows = np.zeros((len(time_ns), 16 + size), np.uint8)
    head = np.empty((len(time_ns), 4), "<u4")
    head[:, 0], head[:, 1] = time_ns // 1_000_000_000, time_ns % 1_000_000_000
    head[:, 2:] = size
    rows[:, :16] = head.view(np.uint8)
    rows[:, 16:30] = np.frombuffer(bytes.fromhex("020000000002 020000000001 0800"), np.uint8)
    rows[:, 30:34] = np.frombuffer(struct.pack(">BBH", 0x45, 0, size - 14), np.uint8)
    _put(rows, 34, ident & 0xFFFF, 2)
    rows[:, 36:40] = np.frombuffer(bytes.fromhex("40004006"), np.uint8)
    _put(rows, 42, src, 4)
    _put(rows, 46, dst, 4)
    _put(rows, 50, sport, 2)
    _put(rows, 52, dport, 2)
    _put(rows, 54, seq & 0xFFFFFFFF, 4)
    _put(rows, 58, ack & 0xFFFFFFFF, 4)
    rows[:, 62:66] = np.frombuffer(struct.pack(">BBH", 0x50, flags, 65_535), np.uint8)
    if payload:
        rows[:, 70:] = np.frombuffer(payload, np.uint8)
    return rows


def finish(rows: Bytes) -> None:
    """Fill in the checksums, last."""
    _put(rows, 40, _checksums(rows[:, 30:50]), 2)
    pseudo = rows[:, 42:50].astype(np.int64)
    extra = (pseudo[:, 0::2] * 256 + pseudo[:, 1::2]).sum(axis=1) + 6 + rows.shape[1] - 50
    _put(rows, 66, _checksums(rows[:, 50:], extra), 2)


def write(
    path: Path,
    connections: int = 2000,
    wanted: int = 500_000,
    seed: int = 1,
    pairs: Pairs | None = None,
    *,
    disturbed: float = 0.0,
    session: int | None = None,
) -> dict[str, int]:
    """Write a nanosecond pcap of about `wanted` packets; returns how many packets, requests and responses were sent.

    - `pairs`: requests and responses with correlation id 0, of which each exchange is one
    - `disturbed`: share of the segments with data that are lost, or late by up to a round
    - `session`: the fetch session in the pairs, for which each connection has its own
    """
    rng = np.random.default_rng(seed)
    pairs = pairs if pairs is not None else templates(seed)
    request_sizes = np.array([len(request) for request, _ in pairs])
    response_sizes = np.array([len(response) for _, response in pairs])
    index = np.arange(connections)
    client = 0x0A01_0000 + index // 20_000 * 65_536 + index % 251 + 1
    client_port = 20_000 + index % 20_000
    broker = 0x0A00_0001 + index % BROKERS
    broker_port = np.full(connections, BROKER_PORT)
    up = (client, client_port, broker, broker_port)
    client_next, broker_next = rng.integers(0, 2**32, (2, connections))
    rounds = max(1, (wanted - 3 * connections) // (3 * connections))
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1))
        _handshakes(out_rows := Rows(), up, client_next, broker_next)
        out.write(out_rows.sorted())
        for first in range(0, rounds, ROUNDS_AT_ONCE):
            count = min(ROUNDS_AT_ONCE, rounds - first)
            chosen = rng.integers(0, len(pairs), (count, connections))
            out_rows = Rows(rng, disturbed)
            requests, responses = request_sizes[chosen], response_sizes[chosen]
            client_seq = client_next + np.cumsum(requests, axis=0) - requests
            broker_seq = broker_next + np.cumsum(responses, axis=0) - responses
            client_next, broker_next = client_next + requests.sum(axis=0), broker_next + responses.sum(axis=0)
            number = np.broadcast_to(np.arange(first, first + count)[:, None], chosen.shape)
            begin = START_S * 10**9 + (number + 1) * ROUND_NS + rng.integers(0, ROUND_NS // 2, chosen.shape)
            answer = begin + rng.integers(50_000, ROUND_NS // 3, chosen.shape)
            for template, (request, response) in enumerate(pairs):
                at, who = np.nonzero(chosen == template)
                ends = tuple(column[who] for column in up)
                seqs, acks, turn = client_seq[at, who], broker_seq[at, who], number[at, who]
                after = seqs + len(request)
                rows = packets(request, 0x18, begin[at, who], ends=ends, seq=seqs, ack=acks, ident=2 * turn)
                _put(rows, 70 + 8, turn, 4)
                _put_session(rows, request, who, session)
                out_rows.add(rows, begin[at, who])
                down = ends[2:] + ends[:2]
                rows = packets(response, 0x18, answer[at, who], ends=down, seq=acks, ack=after, ident=turn)
                _put(rows, 70 + 4, turn, 4)
                _put_session(rows, response, who, session)
                out_rows.add(rows, answer[at, who])
                late = answer[at, who] + 40_000
                acks = acks + len(response)
                rows = packets(b"", 0x10, late, ends=ends, seq=after, ack=acks, ident=2 * turn + 1)
                out_rows.add(rows, late)
            out.write(out_rows.sorted())
    exchanges = rounds * connections
    return {"packets": 3 * connections + 3 * exchanges, "requests": exchanges, "responses": exchanges}


def _put_session(rows: Bytes, payload: bytes, who: Numbers, session: int | None) -> None:
    place = -1 if session is None else payload.find(kafka.int32(session))
    if session is not None and place >= 0:
        _put(rows, 70 + place, session + who, 4)


def _handshakes(rows: Rows, up: tuple[Numbers, ...], client_next: Numbers, broker_next: Numbers) -> None:
    down = up[2:] + up[:2]
    times = START_S * 10**9 + np.arange(len(up[0])) * 10_000
    none = np.zeros_like(times)
    for step, (flags, ends, seq, ack) in enumerate(
        (
            (0x02, up, client_next - 1, none),
            (0x12, down, broker_next - 1, client_next),
            (0x10, up, client_next, broker_next),
        )
    ):
        when = times + step * 3_000
        rows.add(packets(b"", flags, when, ends=ends, seq=seq, ack=ack, ident=none + 65_000 + step), when)


class Rows:
    """Rows of several lengths, put into order of time in the end."""

    def __init__(self, rng: np.random.Generator | None = None, disturbed: float = 0.0) -> None:
        self._rows: list[Bytes] = []
        self._times: list[Numbers] = []
        self._rng = rng
        self._disturbed = disturbed

    def add(self, rows: Bytes, times: Numbers) -> None:
        finish(rows)
        if self._rng is not None and self._disturbed and rows.shape[1] > 16 + HEADERS:
            chance = self._rng.random(len(rows))
            times = times + np.where(chance < self._disturbed, self._rng.integers(0, ROUND_NS, len(rows)), 0)
            kept = chance >= self._disturbed / 2
            rows, times = rows[kept], times[kept]
        self._rows.append(rows)
        self._times.append(times)

    def sorted(self) -> bytes:
        """All rows as bytes, by time."""
        lengths = np.concatenate([np.full(len(rows), rows.shape[1]) for rows in self._rows])
        order = np.argsort(np.concatenate(self._times), kind="stable")
        starts = np.empty(len(order), np.int64)
        starts[order] = np.cumsum(lengths[order]) - lengths[order]
        out = np.empty(int(lengths.sum()), np.uint8)
        borders = itertools.accumulate((len(rows) for rows in self._rows), initial=0)
        for rows, border in zip(self._rows, borders, strict=False):
            places = starts[border : border + len(rows)]
            out[places[:, None] + np.arange(rows.shape[1])] = rows
        return out.tobytes()
