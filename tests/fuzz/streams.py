"""A connection in any capture of it: its bytes add up, every output has a line, and neither batches nor Python change
anything. An input has options; then each segment has direction and fate, two bytes of length, bytes."""

from __future__ import annotations

import functools
import io
from typing import Any, Final

from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher
from kafkasniff.model import Exchange, Message, Problem, SaslToken, Summary
from kafkasniff.packets import ACK, FIN, RST, SYN, PacketBatch
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.text import TextSink
from kafkasniff.tls.keylog import KeyLog
from tests.craft import kafka_bytes as kafka
from tests.fuzz.corpus import Said, conversations, spread
from tests.fuzz.intake import Intake
from tests.oracle.inspector import ByPython
from tests.oracle.tcp.batches import Raw, batch

MAX_LENGTH = 8000
DEAR = 2
MEGABYTES = 1024
"""A message may hold 256 MB of compressed records (context.MAX_DECOMPRESSED)."""
WORDS = (
    *map(bytes.fromhex, ("00120000", "00120003", "00110000", "00110001", "00240002", "00000009")),
    *(b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", b"\r\n\r\n\x00\r\nQUIT\n!\x11\x00\x0c", b"GET / HTTP/1.1\r\n"),
    *(b"\x16\x03\x01", b"\x60\x40\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"),
    *(b"\x00\x05PLAIN", b"\x00\x0dSCRAM-SHA-256", b"n,,n=u,r=abc"),
)

_BEGUN, _FORCED, _SHOWN, _SMALL, _FINISHED, _RESET, _ONE_SIDED = (1 << bit for bit in range(7))
"""Bits of the first byte: the SYNs are captured; …"""
_BROKER, _LOST, _CUT, _REORDERED = (1 << bit for bit in range(4))
"""Bits of a segment's first byte: the broker sends it; …"""

MAX_FRAME: Final = 3000
"""Bound of frames if the input asks for a small one."""
MOST_SEGMENTS: Final = 60
_STEP: Final = 3_000_000


def segments_of(intake: Intake) -> list[tuple[int, bytes]]:
    """(fate, bytes) of each segment."""
    found = []
    while len(intake) and len(found) < MOST_SEGMENTS:
        kind, size = intake.number(), intake.number(2)
        found.append((kind, intake.take(size)))
    return found


def packets_of(how: int, segments: list[tuple[int, bytes]]) -> list[Raw]:
    """The captured packets of a connection that sends these segments."""
    following = [1000, 2000]
    packets: list[Raw] = []
    late: Raw | None = None
    clock = 1_000_000_000

    def add(sender: int, flags: int, payload: bytes = b"", wire: int | None = None) -> Raw:
        nonlocal clock
        clock += _STEP
        seq, ack = following[sender], following[1 - sender]
        following[sender] += (len(payload) if wire is None else wire) + (flags & (SYN | FIN) > 0)
        return Raw(sender, seq, payload, flags, ack, clock, 0, wire)

    if how & _BEGUN:
        packets += [add(0, SYN), add(1, SYN | ACK)]
    for kind, data in segments:
        sender = kind & _BROKER
        payload = data[: len(data) // 2] if kind & _CUT else data
        packet = add(sender, ACK, payload, len(data))
        if kind & _LOST or (how & _ONE_SIDED and sender):
            continue
        if kind & _REORDERED and late is None:
            late = packet
            continue
        packets.append(packet)
        if late is not None:
            packets.append(late)
            late = None
    if late is not None:
        packets.append(late)
    if how & _RESET:
        packets.append(add(1, RST))
    elif how & _FINISHED:
        packets += [add(1, FIN | ACK), add(0, FIN | ACK)]
    return packets


def reported(
    batches: list[PacketBatch], key_log: bytes | None = None, kind: type[Inspector] = Inspector, **options: Any
) -> tuple[list[Any], Summary]:
    parts = [] if key_log is None else [key_log]
    keys = None if key_log is None else KeyLog(lambda: parts.pop() if parts else b"")
    inspector = kind(connections=True, keys=keys, **options)
    events: list[Any] = []
    for one in batches:
        events += inspector.feed(one)
    events += inspector.close()
    return events, inspector.summary


def in_batches(packets: list[Raw], count: int) -> list[PacketBatch]:
    """Packets in at most `count` batches of about the same size."""
    step = -(-len(packets) // count) or 1
    return [batch(packets[at : at + step], start=at) for at in range(0, len(packets), step)]


def check(packets: list[Raw], key_log: bytes | None = None, **options: Any) -> None:
    """Check the promises about the events for packets: in one batch and in several, in every form of output."""
    whole = in_batches(packets, 1)
    events, summary = reported(whole, key_log, **options)
    for again, other in (
        reported(in_batches(packets, 3 + len(packets) % 3), key_log, **options),
        reported(whole, key_log, ByPython, **options),
    ):
        # Also as text: NaN is not equal to itself.
        assert again == events or repr(again) == repr(events), "a different result in other batches, or by Python"
        assert other == summary
    assert summary.bytes_decoded + summary.bytes_skipped + summary.bytes_lost == summary.bytes_stream
    assert min(summary.bytes_decoded, summary.bytes_skipped, summary.bytes_lost) >= 0
    messages = [event for event in events if isinstance(event, Message)]
    assert len(messages) == summary.requests + summary.responses
    if key_log is None:
        assert summary.bytes_decoded <= sum(len(packet.payload) for packet in packets)
    Enricher(summary=summary).feed(events)
    shown = [event for event in events if isinstance(event, Message | SaslToken | Problem | Exchange)]
    for form in (JsonSink, functools.partial(TextSink, verbosity=2), TextSink):
        stream = io.BytesIO()
        sink = form(stream)
        for event in shown:
            sink.write(event)
        sink.close()
        lines = sum(not isinstance(event, Exchange) for event in shown)
        assert form is not JsonSink or stream.getvalue().count(b"\n") == lines


def options_of(how: int) -> dict[str, Any]:
    """Options of the inspector that the first byte selects."""
    options: dict[str, Any] = {"show_secrets": bool(how & _SHOWN), "ports": (9092,) if how & _FORCED else ()}
    if how & _SMALL:
        options["max_frame"] = MAX_FRAME
    return options


def one_input(data: bytes) -> None:
    intake = Intake(data)
    how = intake.number()
    check(packets_of(how, segments_of(intake)), **options_of(how))


def input_of(how: int, said: list[Said], kinds: dict[int, int] | None = None) -> bytes:
    """The input of a connection with this data; `kinds`: the fates of some segments."""
    out = bytearray((how,))
    for index, one in enumerate(said):
        kind = (0 if one.from_client else _BROKER) | (kinds or {}).get(index, 0)
        out += bytes((kind,)) + len(one.data).to_bytes(2) + one.data
    return bytes(out)


def _whole(talk: tuple[Said, ...], longest: int) -> list[Said]:
    """The first segments of a connection, whole ones."""
    kept: list[Said] = []
    for one in talk:
        longest -= len(one.data) + 3
        if longest < 0:
            break
        kept.append(one)
    return kept


def seeds() -> list[bytes]:
    talks = [kept for talk in conversations() if (kept := _whole(talk, 3000))]
    ways = (_BEGUN | _FINISHED, 0, _BEGUN | _SHOWN, _FORCED, _BEGUN | _RESET, _ONE_SIDED)
    found = []
    for number, said in enumerate(spread(talks, 60)):
        how = ways[number % len(ways)]
        damage = {2: _LOST} if number % 3 == 1 else {1: _CUT, 3: _REORDERED} if number % 3 == 2 else None
        found.append(input_of(how, said, damage))
    greeting = Said(True, kafka.api_versions_request(1, 3))
    for head in WORDS[6:11]:
        found.append(input_of(_BEGUN, [Said(True, head), greeting]))
        found.append(input_of(_BEGUN | _FINISHED, [greeting, Said(False, head)]))
    found.append(input_of(_BEGUN | _SMALL | _FINISHED, [greeting, Said(True, kafka.frame(bytes(4000)))]))
    return found
