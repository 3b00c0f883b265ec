"""Traffic for the measurements of scale: a base of some seconds, and copies of it that follow one another.

The base is written down packet by packet, once. A copy is the same bytes with other times and other clients, changed in
all packets at once, so that a gigabyte costs seconds and memory stays that of the base, whatever the size.

- A fifth of the bytes are small messages of many connections (`small_messages.templates`), the rest bulk: Produce and
  Fetch with all codecs, by topic name and (with fetch sessions) by topic id, half of it in segments as an offloading
  host sees them, half in those of an Ethernet.
- Most connections are new in each copy. Every tenth continues through all copies, and one of these carries a twentieth
  of all bytes: stages that work by connection find one that is far larger than the others.
- A few segments come twice, and a few are missing.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import struct
from collections.abc import Callable, Iterator
from typing import Final

import cramjam
import crc32c
import lz4.frame
import numpy as np
import zstandard
from numpy.typing import NDArray

from benchmarks import small_messages
from tests.craft import kafka_bytes as kafka
from tests.craft.packet import ACK, FIN, PSH, SYN

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

BASE_MB: Final = 100
SECOND: Final = 1_000_000_000
START_NS: Final = small_messages.START_S * SECOND
BASE_NS: Final = 20 * SECOND
"""From the start of one copy to that of the next."""

BROKERS: Final = 5
PORT: Final = 9092
BROKER_NET: Final = 0x0A00_0001
"""10.0.0.1 and following."""
STEADY_NET: Final = 0x0A01_0000
"""10.1.0.0: clients whose connections continue through all copies."""
COPY_NET: Final = 0x0A40_0000
"""10.64.0.0: clients of the first copy; the next copy's are in the next /24."""
MAX_COPIES: Final = (0x0B00_0000 - COPY_NET) >> 8
"""Number of /24 networks."""

SMALL_SHARE: Final = 0.2
SMALL_CONNECTION: Final = 40_000
"""Bytes of a connection of small messages in one copy."""
BULK_CONNECTION: Final = 1_000_000
LEAST_BULK: Final = 10
"""Bulk connections even in a small base: one of each kind."""
STEADY: Final = 10
"""One in this many connections stays."""
HOT_SHARE: Final = 0.05
ID_AT: Final = (8, 4)
"""Position of the correlation id in a request and in a response, including the length prefix."""
SEGMENTS: Final = (1448, 65_160)
REPEATED: Final = 2_000
"""One in this many segments with payload is duplicated."""
MISSING: Final = 20_000
"""One in this many segments is missing."""

TOPICS: Final = 8
BATCHES: Final = 12
"""Different record batches by codec and topic: enough that no window of a compressor sees one twice."""
RECORDS: Final = 200
CODECS: Final[dict[int, Callable[[bytes], bytes]]] = {
    0: bytes,
    1: functools.partial(gzip.compress, compresslevel=6, mtime=0),
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lz4.frame.compress,
    4: lambda data: zstandard.ZstdCompressor().compress(data),
}


@dataclasses.dataclass(frozen=True)
class Base:
    """The bytes of one copy, pcap record headers included, and what of them a copy changes. Columns go by packet."""

    data: Bytes
    places: Numbers
    """Where each packet's record header begins, and, last, the end."""
    time_ns: Numbers
    client_at: Numbers
    """Where the client's address stands; -1 in a connection that stays."""
    seq: Numbers
    seq_step: Numbers
    """What a copy adds to `seq`: bytes of the stream in one copy, 0 in a connection that ends with its copy."""
    ack: Numbers
    ack_step: Numbers
    id_at: Numbers
    """Where the correlation ids of messages on connections that stay stand."""
    ids: Numbers
    id_step: Numbers
    """What a copy adds to `ids`: the connection's requests in one copy."""
    preamble: bytes
    """The handshakes of the connections that stay, in front of the first copy."""
    requests: int
    connections: int


class Connection:
    """What one connection sends in a copy."""

    def __init__(self, number: int, *, steady: bool, segment: int, initial: tuple[int, int]) -> None:
        self.number = number
        self.steady = steady
        self.segment = segment
        self.initial = initial
        self.sent = [0, 0]
        """Bytes so far of client and broker, and one each for SYN and FIN where they are in the copy."""
        self.requests = 0


class Script:
    """Packets of all connections in columns, in the order of writing."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        """time_ns, connection, direction (0: client's), sent, acknowledged, flags, start and length in `payload`, and
        where in the payload a correlation id stands (0 where none does)."""
        self.payload = bytearray()
        self.connections: list[Connection] = []

    def packet(
        self,
        who: Connection,
        time_ns: int,
        direction: int,
        flags: int,
        *,
        start: int = 0,
        size: int = 0,
        id_at: int = 0,
    ) -> None:
        sent, other = who.sent[direction], who.sent[1 - direction]
        self.rows.append((time_ns, who.number, direction, sent, other, flags, start, size, id_at))
        who.sent[direction] = sent + size + bool(flags & (SYN | FIN))

    def message(self, who: Connection, time_ns: int, direction: int, message: bytes) -> int:
        """Returns when its last segment was sent."""
        start = len(self.payload)
        self.payload += message
        for cut in range(0, len(message), who.segment):
            size = min(who.segment, len(message) - cut)
            last = cut + size == len(message)
            flags = ACK | (PSH if last else 0)
            id_at = ID_AT[direction] if cut == 0 else 0
            self.packet(who, time_ns, direction, flags, start=start + cut, size=size, id_at=id_at)
            time_ns += 4_000
        self.packet(who, time_ns, 1 - direction, ACK)
        return time_ns

    def request(self, who: Connection, time_ns: int, request: bytes) -> int:
        """`request` has correlation id 0; it gets the next one of the connection. Returns when it was sent."""
        number = struct.pack(">i", who.requests)
        who.requests += 1
        return self.message(who, time_ns, 0, request[: ID_AT[0]] + number + request[ID_AT[0] + 4 :])

    def exchange(self, who: Connection, time_ns: int, request: bytes, response: bytes, *, wait_ns: int) -> None:
        """A request, as above, and the response, which gets the same id."""
        number = struct.pack(">i", who.requests)
        arrived = self.request(who, time_ns, request)
        self.message(who, arrived + wait_ns, 1, response[: ID_AT[1]] + number + response[ID_AT[1] + 4 :])


def make_base(
    size: int = BASE_MB * 1_000_000, seed: int = 1, *, flaws: bool = True, hot_share: float = HOT_SHARE
) -> Base:
    """A base of about `size` bytes, the same for the same arguments; without `flaws` every segment comes once.

    `hot_share`: share of the bytes that one connection carries.
    """
    rng = np.random.default_rng(seed)
    script = Script()
    pairs = small_messages.templates(seed)
    batches = _batches(rng)
    rest = (1 - hot_share) / (1 - HOT_SHARE)
    small_share = SMALL_SHARE * rest
    small = max(1, int(size * small_share) // SMALL_CONNECTION)
    bulk = max(LEAST_BULK, int(size * (1 - SMALL_SHARE) * rest) // BULK_CONNECTION)
    for number in range(bulk + small):
        initial = tuple(rng.integers(0, 2**32, 2).tolist())
        kind = number if number < bulk else number - bulk
        who = Connection(number, steady=kind % STEADY == 0, segment=SEGMENTS[kind % 2], initial=initial)
        script.connections.append(who)
        if not who.steady:
            _open(script, who, START_NS + int(rng.integers(0, BASE_NS // 4)))
        if number < bulk:
            share = hot_share if number == 0 else (1 - small_share - hot_share) / (bulk - 1)
            _bulk(script, who, rng, _bulk_exchanges(rng, batches, int(size * share), number))
        else:
            _small(script, who, rng, pairs)
        if not who.steady and number % 3:
            end = START_NS + BASE_NS - 1_000_000 + number
            script.packet(who, end, 0, FIN | ACK)
            script.packet(who, end + 300_000, 1, FIN | ACK)
            script.packet(who, end + 600_000, 0, ACK)
    return laid_out(script, rng, flaws=flaws)


def copies(base: Base) -> Iterator[Bytes]:
    """`base.data` as it is, then with each following copy's times, clients and sequence numbers, until MAX_COPIES."""
    at = base.places[:-1]
    apart = base.client_at[base.client_at >= 0]
    for copy in range(MAX_COPIES):
        time_ns = base.time_ns + copy * BASE_NS
        _put(base.data, at, time_ns // SECOND, 4, big=False)
        _put(base.data, at + 4, time_ns % SECOND, 4, big=False)
        net = (COPY_NET >> 8) + copy
        _put(base.data, apart, np.full(len(apart), net), 3)
        _put(base.data, at + 54, base.seq + copy * base.seq_step, 4)
        _put(base.data, at + 58, base.ack + copy * base.ack_step, 4)
        _put(base.data, base.id_at, base.ids + copy * base.id_step, 4)
        yield base.data


def _put(data: Bytes, at: Numbers, values: Numbers, width: int, *, big: bool = True) -> None:
    for byte in range(width):
        shift = 8 * (width - 1 - byte if big else byte)
        data[at + byte] = (values >> shift) & 0xFF


def _open(script: Script, who: Connection, time_ns: int) -> None:
    script.packet(who, time_ns, 0, SYN)
    script.packet(who, time_ns + 100_000, 1, SYN | ACK)
    script.packet(who, time_ns + 150_000, 0, ACK)


def _times(rng: np.random.Generator, count: int) -> list[int]:
    """`count` moments for exchanges, far enough apart that each is over before the next; the first quarter is left."""
    begin = START_NS + BASE_NS // 4 + SECOND
    slot = (BASE_NS * 3 // 4 - 2 * SECOND) // count
    moments: Numbers = begin + np.arange(count) * slot + rng.integers(0, slot // 4, count)
    return [int(moment) for moment in moments]


def _small(script: Script, who: Connection, rng: np.random.Generator, pairs: list[tuple[bytes, bytes]]) -> None:
    mean = sum(len(request) + len(response) for request, response in pairs) // len(pairs) + 4 * 70
    count = max(1, SMALL_CONNECTION // mean)
    chosen = rng.integers(0, len(pairs), count).tolist()
    waits = rng.integers(50_000, 5_000_000, count).tolist()
    for time_ns, template, wait in zip(_times(rng, count), chosen, waits, strict=True):
        request, response = pairs[template]
        script.exchange(who, time_ns, request, response, wait_ns=wait)


def _bulk(script: Script, who: Connection, rng: np.random.Generator, plan: list[tuple[bytes, bytes]]) -> None:
    waits = rng.integers(200_000, 3_000_000, len(plan)).tolist()
    for time_ns, (request, response), wait in zip(_times(rng, len(plan)), plan, waits, strict=True):
        script.exchange(who, time_ns, request, response, wait_ns=wait)


def _bulk_exchanges(
    rng: np.random.Generator, batches: dict[int, list[bytes]], size: int, number: int
) -> list[tuple[bytes, bytes]]:
    """Two of every five connections produce (Produce 3 and 9), two fetch by name, and one by id in a session."""
    topics = [(struct.pack(">QQ", 0x5CA1E, topic), f"scale-{topic}") for topic in range(TOPICS)]
    nodes = [(broker, f"10.0.0.{broker}", PORT) for broker in range(1, BROKERS + 1)]
    plan = [
        (
            kafka.api_versions_request(0, 3, (f"bulk-{number % 5}", f"1.{number % 7}")),
            kafka.api_versions_response(0, 3),
        ),
        (kafka.metadata_request_by_id(0, topics), kafka.metadata_response_with_ids(0, topics, nodes)),
    ]
    session, epoch, written, kind = 1000 + number, 0, 0, number % 5
    while written < size:
        batch = batches[int(rng.integers(len(CODECS)))][int(rng.integers(BATCHES))]
        topic, offset = int(rng.integers(TOPICS)), len(plan) * RECORDS
        name, partition = topics[topic][1], number % 3
        if kind < 2:
            version = (3, 9)[kind]
            pair = (
                kafka.produce_request(0, name, batch, partition=partition, version=version),
                kafka.produce_response(0, name, offset, partition=partition, version=version),
            )
        elif kind < 4:
            pair = (
                kafka.fetch_request(0, name, offset, partition=partition),
                kafka.fetch_response(0, name, batch, offset + RECORDS, partition=partition),
            )
        else:
            wanted = [(topic_id, [0]) for topic_id, _ in topics] if epoch == 0 else []
            pair = (
                kafka.fetch_request_by_id(0, wanted, session=(session if epoch else 0, epoch)),
                kafka.fetch_response_by_id(0, [(topics[topic][0], 0, batch)], session=session),
            )
            epoch += 1
        plan.append(pair)
        written += sum(map(len, pair))
    return plan


def _batches(rng: np.random.Generator) -> dict[int, list[bytes]]:
    """By codec, record batches of text that compresses about as well as JSON does."""
    words = [bytes(rng.integers(97, 123, int(rng.integers(3, 11)), dtype=np.uint8)) for _ in range(2000)]
    made: dict[int, list[bytes]] = {}
    for codec, compress in CODECS.items():
        made[codec] = []
        for _ in range(BATCHES):
            chosen = rng.integers(0, len(words), (RECORDS, 140)).tolist()
            lengths = rng.integers(20, 141, RECORDS).tolist()
            records = [
                kafka.record(
                    place,
                    b"key-%d" % chosen[place][0],
                    b'{"id":%d,"text":"%s"}' % (place, b" ".join(words[word] for word in chosen[place][:length])),
                    (("trace", words[chosen[place][1]]),) if place % 4 == 0 else (),
                    timestamp_delta=place,
                )
                for place, length in enumerate(lengths)
            ]
            made[codec].append(_batch(records, codec, compress))
    return made


def _batch(records: list[bytes], codec: int, compress: Callable[[bytes], bytes]) -> bytes:
    """`kafka_bytes.record_batch` with any codec."""
    time_ms = START_NS // 1_000_000
    checked = struct.pack(">hiqqqhii", codec, RECORDS - 1, time_ms, time_ms + RECORDS - 1, -1, -1, -1, RECORDS)
    checked += compress(b"".join(records))
    rest = kafka.int32(0) + kafka.int8(2) + struct.pack(">I", crc32c.crc32c(checked)) + checked
    return kafka.int64(0) + kafka.int32(len(rest)) + rest


def laid_out(script: Script, rng: np.random.Generator, *, flaws: bool) -> Base:
    """What a script comes to: its packets as one copy."""
    columns: Numbers = np.array(script.rows, np.int64)
    if flaws:
        columns = _flawed(columns, rng)
    columns = columns[np.argsort(columns[:, 0], kind="stable")]
    time_ns, number, direction, sent, other, flags, start, size, id_at = columns.T
    steady = np.array([who.steady for who in script.connections])[number]
    initial = np.array([who.initial for who in script.connections], np.int64)
    total = np.array([who.sent for who in script.connections], np.int64) * _steady_column(script)
    # A SYN counts as one, so what follows it in a copy stands one further; the preamble's SYN stands before `initial`.
    seq = initial[number, direction] + sent
    ack = np.where(flags == SYN, 0, initial[number, 1 - direction] + other)
    heads = _heads(number, direction, steady, (time_ns, flags, size, seq, ack))
    places = np.concatenate([[0], np.cumsum(70 + size)])
    data = np.empty(int(places[-1]), np.uint8)
    data[places[:-1, None] + np.arange(70)] = heads
    payload = memoryview(script.payload)
    out = data.data
    for place, begin, length in zip((places[:-1] + 70).tolist(), start.tolist(), size.tolist(), strict=True):
        out[place : place + length] = payload[begin : begin + length]
    named = np.nonzero(steady & (id_at > 0))[0]
    ids_at = places[named] + 70 + id_at[named]
    requests = np.array([who.requests for who in script.connections], np.int64)
    return Base(
        data=data,
        places=places,
        time_ns=time_ns,
        client_at=np.where(steady, -1, places[:-1] + np.where(direction == 0, 42, 46)),
        seq=seq,
        seq_step=total[number, direction],
        ack=ack,
        ack_step=total[number, 1 - direction],
        id_at=ids_at,
        ids=np.ascontiguousarray(data[ids_at[:, None] + np.arange(4)]).view(">i4")[:, 0].astype(np.int64),
        id_step=requests[number[named]],
        preamble=_preamble(script),
        requests=int(requests.sum()),
        connections=len(script.connections),
    )


def _steady_column(script: Script) -> Numbers:
    """1 for connections that stay, else 0, a row each."""
    return np.array([[int(who.steady)] for who in script.connections], np.int64)


def _flawed(columns: Numbers, rng: np.random.Generator) -> Numbers:
    """Some segments with payload a second time, a little later, and some not at all."""
    carrying = np.nonzero(columns[:, 7])[0]
    again = columns[rng.choice(carrying, len(carrying) // REPEATED, replace=False)]
    again[:, 0] += 250_000
    missing = rng.choice(carrying, len(carrying) // MISSING, replace=False)
    return np.concatenate([np.delete(columns, missing, axis=0), again])


def _heads(number: Numbers, direction: Numbers, steady: NDArray[np.bool_], values: tuple[Numbers, ...]) -> Bytes:
    """Record header, Ethernet, IPv4 and TCP of each packet; checksums stay 0, as an offloading host captures them."""
    time_ns, flags, size, seq, ack = values
    client = np.where(steady, STEADY_NET, COPY_NET) + number % 250 + 1
    client_port = 20_000 + number // 250
    broker = BROKER_NET + number % BROKERS
    broker_port = np.full_like(number, PORT)
    up = direction == 0
    ends = (
        np.where(up, client, broker),
        np.where(up, client_port, broker_port),
        np.where(up, broker, client),
        np.where(up, broker_port, client_port),
    )
    # Identifications differ from packet to packet, but where one comes twice it is still another packet.
    ident = np.arange(len(number), dtype=np.int64)
    heads = small_messages.packets(b"", 0, time_ns, ends=ends, seq=seq, ack=ack, ident=ident)
    flat, rows = heads.reshape(-1), np.arange(len(heads), dtype=np.int64) * heads.shape[1]
    for at, values_, width, big in ((8, size + 54, 4, False), (12, size + 54, 4, False), (32, size + 40, 2, True)):
        _put(flat, rows + at, values_, width, big=big)
    _put(flat, rows + 63, flags, 1)
    return heads


def _preamble(script: Script) -> bytes:
    staying = [who for who in script.connections if who.steady]
    rows = [
        (START_NS - SECOND + place * 1_000_000 + step * 100_000, who.number, direction, seq, ack, flags)
        for place, who in enumerate(staying)
        for step, (direction, seq, ack, flags) in enumerate(
            (
                (0, who.initial[0] - 1, 0, SYN),
                (1, who.initial[1] - 1, who.initial[0], SYN | ACK),
                (0, who.initial[0], who.initial[1], ACK),
            )
        )
    ]
    time_ns, number, direction, seq, ack, flags = np.array(rows, np.int64).T
    none = np.zeros_like(time_ns)
    return _heads(number, direction, np.ones(len(rows), bool), (time_ns, flags, none, seq, ack)).tobytes()
