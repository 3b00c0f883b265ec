"""Endless traffic, as a pcap that is written while it is read: nothing is stored on disk.

Each yields the file's head, then pieces of some megabytes. A piece is to be written before the next is asked for: the
same memory is used again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

import numpy as np

from benchmarks import small_messages
from benchmarks.pcap_files import PCAP
from benchmarks.scale_traffic import (
    BASE_NS,
    MAX_COPIES,
    SECOND,
    SEGMENTS,
    START_NS,
    Base,
    Connection,
    Script,
    copies,
    laid_out,
)
from benchmarks.small_messages import BROKER_PORT, BROKERS, Numbers, Rows, packets
from tests.craft import kafka_bytes as kafka
from tests.craft.packet import ACK, FIN, PSH, SYN

AT_ONCE: Final = 5_000
"""Short connections in one piece, all within a second."""
CLIENT_NET: Final = 0x0A20_0000
"""10.32.0.0; `scale_traffic` has others."""
PORTS: Final = 40_000
"""Client ports start at 20,000; after them comes the next address."""

LARGE_EXCHANGES: Final = 32
"""Requests of half a megabyte each in one copy of the one connection."""
LARGE_RECORDS: Final = 450
RECORD_BYTES: Final = 1_000
BUSY_EXCHANGES: Final = 2_000
"""Exchanges in one copy of the connection that continues while the others are idle."""
UNANSWERED_AT_ONCE: Final = 5_000
"""Requests of each connection in one copy."""
UNANSWERED_CONNECTIONS: Final = 2
MINUTE_COPIES: Final = 60 * SECOND // BASE_NS


Piece = bytes | memoryview


@dataclasses.dataclass
class Traffic:
    """What was written so far."""

    pieces: Iterator[Piece]
    packets: int = 0
    connections: int = 0
    requests: int = 0


def churn(connections: int, seed: int = 1) -> Traffic:
    """This many connections with one exchange each, from SYN to FIN; a few thousand at a time."""
    traffic = Traffic(iter(()))

    def pieces() -> Iterator[Piece]:
        rng = np.random.default_rng(seed)
        yield PCAP
        for turn, first in enumerate(range(0, connections, AT_ONCE)):
            count = min(AT_ONCE, connections - first)
            yield _short(traffic, rng, first, count, START_NS + turn * SECOND, closing=True)

    traffic.pieces = pieces()
    return traffic


def one_connection(size: int, seed: int = 1) -> Traffic:
    """One connection of at least this many bytes: Produce requests and fetched batches of half a megabyte."""
    rng = np.random.default_rng(seed)
    script = Script()
    who = _steady(script, rng, 0, segment=SEGMENTS[1])
    alphabet = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz      ", np.uint8)
    for number, time_ns in enumerate(_moments(LARGE_EXCHANGES)):
        letters = alphabet[rng.integers(0, len(alphabet), LARGE_RECORDS * RECORD_BYTES)].tobytes()
        values = [letters[at : at + RECORD_BYTES] for at in range(0, len(letters), RECORD_BYTES)]
        batch = kafka.record_batch([kafka.record(place, None, value) for place, value in enumerate(values)])
        offset = number * LARGE_RECORDS
        if number % 2:
            pair = (kafka.fetch_request(0, "large", offset), kafka.fetch_response(0, "large", batch, offset))
        else:
            pair = (kafka.produce_request(0, "large", batch), kafka.produce_response(0, "large", offset))
        script.exchange(who, time_ns, *pair, wait_ns=1_000_000)
    base = laid_out(script, rng, flaws=False)
    return _repeated(base, max(1, -(-size // len(base.data))))


def idle(connections: int, minutes: int, seed: int = 1) -> Traffic:
    """This many connections that have had one exchange and then stay idle, while one other continues for this long."""
    rng = np.random.default_rng(seed)
    script = Script()
    who = _steady(script, rng, 0, segment=SEGMENTS[0])
    pairs = small_messages.templates(seed)
    for number, time_ns in enumerate(_moments(BUSY_EXCHANGES)):
        script.exchange(who, time_ns, *pairs[number % len(pairs)], wait_ns=500_000)
    rest = _repeated(laid_out(script, rng, flaws=False), minutes * MINUTE_COPIES)
    traffic = Traffic(iter(()))

    def pieces() -> Iterator[Piece]:
        yield PCAP
        for first in range(0, connections, AT_ONCE):
            yield _short(traffic, rng, first, min(AT_ONCE, connections - first), START_NS - 60 * SECOND, closing=False)
        opened = dataclasses.replace(traffic)
        next(rest.pieces)  # a file has one head
        for piece in rest.pieces:
            traffic.packets = opened.packets + rest.packets
            traffic.connections = opened.connections + rest.connections
            traffic.requests = opened.requests + rest.requests
            yield piece

    traffic.pieces = pieces()
    return traffic


def unanswered(requests: int, seed: int = 1) -> Traffic:
    """At least this many requests on two connections whose broker accepts them and never answers."""
    rng = np.random.default_rng(seed)
    script = Script()
    texts = [request for request, _ in small_messages.templates(seed)]
    for number in range(UNANSWERED_CONNECTIONS):
        who = _steady(script, rng, number, segment=SEGMENTS[0])
        for place, time_ns in enumerate(_moments(UNANSWERED_AT_ONCE)):
            script.request(who, time_ns + number, texts[place % len(texts)])
    base = laid_out(script, rng, flaws=False)
    return _repeated(base, max(1, -(-requests // base.requests)))


def _steady(script: Script, rng: np.random.Generator, number: int, segment: int) -> Connection:
    initial = tuple(int(value) for value in rng.integers(0, 2**32, 2))
    who = Connection(number, steady=True, segment=segment, initial=(initial[0], initial[1]))
    script.connections.append(who)
    return who


def _moments(count: int) -> range:
    """This many moments within the time of a copy, evenly spread."""
    step = (BASE_NS - SECOND) // count
    return range(START_NS, START_NS + count * step, step)


def _repeated(base: Base, count: int) -> Traffic:
    """This many copies of a base, all on the same connections. Raises ValueError for too many copies."""
    if count > MAX_COPIES:
        raise ValueError(f"{count} copies are more than there are clients' addresses for ({MAX_COPIES})")
    # The packets of the handshakes.
    traffic = Traffic(iter(()), connections=base.connections, packets=3 * base.connections)

    def pieces() -> Iterator[Piece]:
        yield PCAP
        yield base.preamble
        for _, data in zip(range(count), copies(base), strict=False):
            traffic.packets += len(base.time_ns)
            traffic.requests += base.requests
            yield data.data

    traffic.pieces = pieces()
    return traffic


def _short(
    traffic: Traffic, rng: np.random.Generator, first: int, count: int, begin_ns: int, *, closing: bool
) -> bytes:
    """Connections numbered from `first`, all opened within most of a second, with one exchange each."""
    index = first + np.arange(count)
    up = (
        CLIENT_NET + 1 + index // PORTS,
        20_000 + index % PORTS,
        0x0A00_0001 + index % BROKERS,
        np.full(count, BROKER_PORT),
    )
    down = up[2:] + up[:2]
    client, broker = rng.integers(0, 2**32, (2, count))
    opened = begin_ns + rng.integers(0, SECOND * 9 // 10, count)
    waits = rng.integers(50_000, 5_000_000, count)
    pairs = small_messages.templates(0)
    chosen = rng.integers(0, len(pairs), count)
    sizes: Numbers = np.array([[len(request), len(response)] for request, response in pairs])[chosen]
    none = np.zeros(count, np.int64)
    rows = Rows()

    def bare(flags: int, time_ns: Numbers, ends: tuple[Numbers, ...], seq: Numbers, ack: Numbers) -> None:
        rows.add(packets(b"", flags, time_ns, ends=ends, seq=seq, ack=ack, ident=time_ns // 1000), time_ns)

    bare(SYN, opened, up, client - 1, none)
    bare(SYN | ACK, opened + 100_000, down, broker - 1, client)
    bare(ACK, opened + 150_000, up, client, broker)
    asked = opened + 200_000
    answered = asked + waits
    for template, (request, response) in enumerate(pairs):
        who = np.nonzero(chosen == template)[0]
        sides = tuple(column[who] for column in up), tuple(column[who] for column in down)
        after = client[who] + len(request)
        for message, ends, time_ns, seq, ack in (
            (request, sides[0], asked[who], client[who], broker[who]),
            (response, sides[1], answered[who], broker[who], after),
        ):
            made = packets(message, ACK | PSH, time_ns, ends=ends, seq=seq, ack=ack, ident=time_ns // 1000)
            rows.add(made, time_ns)
    sent, got = client + sizes[:, 0], broker + sizes[:, 1]
    bare(ACK, answered + 40_000, up, sent, got)
    if closing:
        bare(FIN | ACK, answered + 1_000_000, up, sent, got)
        bare(FIN | ACK, answered + 1_100_000, down, got, sent + 1)
        bare(ACK, answered + 1_150_000, up, sent + 1, got + 1)
    traffic.packets += count * (9 if closing else 6)
    traffic.connections += count
    traffic.requests += count
    return rows.sorted()
