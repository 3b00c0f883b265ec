"""Makers of captures whose TCP and whose order of requests and responses are what costs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.craft import kafka_bytes as kafka
from tests.fuzz.costs.wire import Talk, Wire

HEARTBEAT = 12
LAST_ID = 1 << 31
CLOCK_SECONDS = 75 * 365 * 86_400
"""What is left of the 32 bits of a pcap file's seconds."""


def heartbeat(number: int) -> bytes:
    """A request that is as short as one can be: 22 bytes."""
    return kafka.request(HEARTBEAT, 0, number % LAST_ID, bytes(8), client_id=None)


def alive(number: int) -> bytes:
    """Its response: 10 bytes."""
    return kafka.response(number % LAST_ID, bytes(2))


def exchange(talk: Talk, number: int) -> None:
    talk.send("client", heartbeat(number))
    talk.send("broker", alive(number))


def begun(size: int) -> tuple[Wire, Talk]:
    """A wire and a connection on it that is known to be Kafka's."""
    wire = Wire(size)
    return wire, next(known(wire))


def known(wire: Wire) -> Iterator[Talk]:
    """Connections that are known to be Kafka's."""
    for talk in wire.talks():
        talk.open()
        exchange(talk, 0)
        yield talk


def gaps_outstanding(size: int, outstanding: int, ids: int, hole: int, together: int) -> bytes:
    """`outstanding` requests with `ids` correlation ids wait for responses. The broker's stream loses `hole` bytes
    before each response, and none answers one of them; the client acknowledges `together` responses at once."""
    wire, talk = begun(size)
    talk.send("client", b"".join(heartbeat(1 + number % ids) for number in range(min(outstanding, size // 44))))
    while not wire.full:
        for _ in range(together):
            talk.skip("broker", hole)
            talk.send("broker", alive(LAST_ID - 1))
        talk.acknowledge("client")
    return wire.pcap()


def segments_holes(size: int, segment: int, run: int, backwards: int) -> bytes:
    """Segments of `segment` bytes, a byte missing after each `run` of them, in order or reversed, unacknowledged."""
    wire = Wire(size)
    for talk in known(wire):
        places, at = [], talk.next["client"] + 1
        for number in range(16_000):
            places.append(at)
            at += segment + ((number + 1) % run == 0)
        for place in reversed(places) if backwards else places:
            if wire.full:
                break
            talk.packet("client", bytes(segment), place)
    return wire.pcap()


def segments_candidates(size: int, segment: int, spacing: int, stated: int) -> bytes:
    """A stream captured from its middle, in which a frame of `stated` bytes might begin at each `spacing` bytes."""
    wire = Wire(size)
    start = kafka.int32(stated) + kafka.int16(3) + kafka.int16(1) + kafka.int32(1)
    piece = (start + bytes(spacing))[: max(spacing, 4)]
    data = piece * (size // len(piece) + 1)
    for talk in wire.talks():
        at = 0
        while not wire.full and at < min(len(data), 3 << 20):
            talk.send("client", data[at : at + segment])
            at += segment
    return wire.pcap()


def early_requests(size: int, early: int, reverse: int, hole: int) -> bytes:
    """This many responses are captured in front of their requests, in their order or against it."""
    wire = Wire(size)
    early = min(early, size // 64)
    for talk in known(wire):
        number = 1
        while not wire.full:
            numbers = range(number, number + early)
            talk.send("broker", b"".join(alive(one) for one in (reversed(numbers) if reverse else numbers)))
            talk.skip("client", hole)
            talk.send("client", b"".join(map(heartbeat, numbers)))
            number += early
    return wire.pcap()


def overhead_connections(size: int, exchanges: int) -> bytes:
    """Connections of few packets: exchanges and an end."""
    wire = Wire(size)
    for talk in wire.talks():
        talk.open()
        for number in range(exchanges):
            exchange(talk, number)
        talk.close()
    return wire.pcap()


def unfinished_connections(size: int, stated: int, segment: int) -> bytes:
    """Each connection begins a long message and says no more than the beginning of it."""
    wire = Wire(size)
    begun = kafka.int32(stated) + kafka.int16(kafka.PRODUCE) + kafka.int16(3) + kafka.int32(1) + kafka.string("c")
    for talk in known(wire):
        talk.send("client", begun + bytes(min(stated, segment)), segment)
    return wire.pcap()


def repeats_segments(size: int, repeats: int, segment: int) -> bytes:
    wire = Wire(size)
    for talk in known(wire):
        number = 1
        while not wire.full and number < 20_000:
            data = b"".join(heartbeat(number + more) for more in range(max(1, segment // 22)))
            for first in range(0, len(data), segment):
                piece = data[first : first + segment]
                for _ in range(repeats):
                    if wire.full:
                        break
                    talk.packet("client", piece, talk.next["client"])
                talk.skip("client", len(piece))
            number += max(1, segment // 22)
    return wire.pcap()


def dates_rows(size: int, seconds: int, exchanges: int) -> bytes:
    """This many exchanges, then this many seconds of silence, again and again; the clock begins anew after 75 years."""
    wire = Wire(size)
    started, silent = wire.time_ns, 0
    for talk in wire.talks():
        for number in range(exchanges):
            if wire.full:
                break
            exchange(talk, number)
        silent = (silent + seconds) % CLOCK_SECONDS
        wire.time_ns = started + silent * 1_000_000_000
    return wire.pcap()


def tokens_connections(size: int, token: int, tokens: int) -> bytes:
    """Raw SASL tokens, as Kerberos has them, instead of requests."""
    wire = Wire(size)
    data = kafka.frame((b"\x60\x23\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(token))[: max(token, 13)])
    for talk in wire.talks():
        talk.open()
        for _ in range(tokens):
            if wire.full:
                break
            talk.send("client", data)
    return wire.pcap()
