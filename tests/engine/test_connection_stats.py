"""Every byte of a stream is decoded, skipped or lost: statistics against counts made here, over disturbed captures."""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections import defaultdict
from collections.abc import Sequence
from random import Random

import pytest

from kafkasniff.cli.running.pipeline import summary_line
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.message_table import Output
from kafkasniff.model import Connection, Endpoint, Exchange, Message, Problem, SaslToken, StreamBytes, Summary
from tests.choice import one_in
from tests.conftest import shipped_captures
from tests.craft.batches import batch
from tests.craft.packet import ACK, FIN, RST, SYN, Packet, Stream, ahead
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.test_disturbed import DAMAGE, HARMLESS, INTRUSIONS, Disturbance

CRAFTED = "crafted"
SHIPPED = {path.name: path for path in shipped_captures()}
AS_IT_IS = "as it is"
DISTURBANCES: dict[str, Disturbance] = {
    AS_IT_IS: lambda packets, rng: list(packets),
    **DAMAGE,
    **HARMLESS,
    **INTRUSIONS,
}
FAR = 1 << 29
"""Bytes this far away from a stream's first are not part of it."""


def pairs() -> list[tuple[str, str]]:
    """Disturbances of the crafted packets, and one of some real captures, in turn."""
    names = list(DISTURBANCES)
    turns = [(source, names[place % len(names)]) for place, source in enumerate(SHIPPED)]
    return [*((CRAFTED, name) for name in one_in(2, names)), *one_in(8, turns)]


def packets_of(source: str) -> list[Packet]:
    return mixed() if source == CRAFTED else read_packets(SHIPPED[source])


@dataclasses.dataclass
class Counted:
    """Counts of a stream, from its packets."""

    captured: int = 0
    """Payload bytes, each as often as it came."""
    seen: int = 0
    """Payload bytes from the stream's first on, each once."""
    size: int = 0
    """From the first byte to the last, as far as data or a FIN show."""
    cut: bool = False
    """A packet of it was captured in part: the rest is lost, and a repetition where it comes later all the same."""


def count_packets(packets: Sequence[Packet]) -> dict[Stream, Counted]:
    """Count by sequence numbers. The first SYN, FIN or byte of a stream is its beginning.

    The stream ends with the last captured byte or, if its peer has acknowledged more by the end, with that.
    """
    first: dict[Stream, int] = {}
    spans: dict[Stream, list[tuple[int, int]]] = defaultdict(list)
    found: dict[Stream, Counted] = defaultdict(Counted)
    for packet in packets:
        if packet.flags & RST or not (packet.payload or packet.cut or packet.flags & (SYN | FIN)):
            continue
        seq = (packet.seq + bool(packet.flags & SYN)) % 2**32
        start = ahead(seq, first.setdefault(packet.stream, seq))
        stream = found[packet.stream]
        stream.captured += len(packet.payload)
        stream.cut = stream.cut or packet.cut > 0
        if abs(start) < FAR:
            end = start + len(packet.payload)
            spans[packet.stream].append((start, end))
            stream.size = max(stream.size, end + packet.cut)
    for key, ends in spans.items():
        reach = 0
        for start, end in sorted(ends):
            found[key].seen += max(end - max(start, reach), 0)
            reach = max(reach, end)
    heard, closed = {packet.stream for packet in packets}, {packet.stream for packet in packets if packet.flags & FIN}
    acks: dict[Stream, list[int]] = defaultdict(list)
    for packet in packets:
        if packet.flags & ACK and not packet.flags & RST:
            acks[packet.dst, packet.dport, packet.src, packet.sport].append(packet.ack)
    for key, numbers in acks.items():
        peer = key[2:] + key[:2]
        if key in first and key not in closed:
            behind = ahead(numbers[-1], first[key] + found[key].size)
            found[key].size += behind if 1 < behind < FAR else 0
        elif key not in heard and peer in first:
            # One of them is the FIN, which both sides have sent if one is seen.
            behind = sum(ahead(later, earlier) for earlier, later in itertools.pairwise(numbers)) - (peer in closed)
            found[key].size = behind if behind > 1 else 0
    return found


def inspect(packets: Sequence[Packet]) -> tuple[list[Output], Summary]:
    inspector = Inspector(records="skip", show_secrets=True, connections=True)
    return inspector.feed(batch(packets)) + inspector.close(), inspector.summary


def bytes_emitted(events: Sequence[Output]) -> dict[tuple[int | None, str], int]:
    """Bytes of the emitted messages and tokens, with their length prefixes, by connection and direction."""
    reported: dict[tuple[int | None, str], int] = defaultdict(int)
    for event in events:
        if isinstance(event, Message):
            cut = [problem.offset for problem in event.problems if problem.kind == "frame-incomplete"]
            reported[event.connection, event.type] += 4 + (event.size if not cut else cut[0] or 0)
        elif isinstance(event, SaslToken):
            assert event.token is not None
            reported[event.connection, event.direction] += 4 + len(event.token)
    return reported


def streams_of(connection: Connection) -> list[tuple[str, Endpoint, Endpoint, StreamBytes]]:
    client, broker = connection.client, connection.broker
    return [
        ("request", client, broker, connection.client_stream),
        ("response", broker, client, connection.broker_stream),
    ]


@pytest.mark.parametrize(("source", "name"), pairs())
def test_bytes_add_up(source: str, name: str) -> None:
    packets = DISTURBANCES[name](packets_of(source), Random(zlib.crc32(f"{source} {name}".encode())))
    events, summary = inspect(packets)
    counted, reported = count_packets(packets), bytes_emitted(events)
    connections = [event for event in events if isinstance(event, Connection)]
    ends = [frozenset((one.client, one.broker)) for one in connections]
    compared = 0
    for connection in connections:
        for direction, sender, receiver, stream in streams_of(connection):
            assert stream.decoded == reported[connection.connection, direction]
            assert min(stream.skipped, stream.lost, stream.repeated, stream.ignored) >= 0
            assert 0 <= stream.pending <= stream.skipped
            if ends.count(frozenset((connection.client, connection.broker))) > 1:
                continue  # ports used again: packets alone do not separate the connections
            compared += 1
            expected = counted[sender.address, sender.port, receiver.address, receiver.port]
            late = expected.seen - stream.decoded - stream.skipped
            assert 0 <= late <= (min(stream.lost, stream.repeated) if expected.cut else 0), (direction, connection)
            assert stream.size == expected.size, (connection.connection, direction)
            assert stream.decoded + stream.skipped + stream.repeated + stream.ignored == expected.captured
    assert compared
    assert reported.keys() <= {(one.connection, way) for one in connections for way in ("request", "response")}
    compare_summary(summary, connections)
    compare_messages(events, connections)
    cut = [event for event in events if isinstance(event, Problem) and event.kind == "stream-cut"]
    assert sum(event.bytes or 0 for event in cut if "incomplete" in event.detail) == summary.bytes_pending


def compare_messages(events: Sequence[Output], connections: Sequence[Connection]) -> None:
    """What a connection says of its messages is what they say."""
    for one in connections:
        messages = [event for event in events if isinstance(event, Message) and event.connection == one.connection]
        requests = [message for message in messages if message.type == "request"]
        assert (one.requests, one.responses) == (len(requests), len(messages) - len(requests))
        named = dict.fromkeys(message.client_id for message in requests if message.client_id is not None)
        assert one.client_ids == tuple(named)
        ended = [event for event in events if isinstance(event, Exchange) and event.connection == one.connection]
        assert one.unanswered == sum(exchange.status in ("unanswered", "open", "lost") for exchange in ended)
        of_streams = [event for event in events if isinstance(event, Problem) and event.connection == one.connection]
        # The verdict itself is not one of the connection's.
        counted = sum(problem.kind != "not-kafka" for problem in of_streams)
        assert one.problems == counted + sum(len(message.problems) for message in messages)
        bodies = [(request.api, request.body) for request in requests if request.body is not None]
        software = [body["client_software_name"] for _, body in bodies if "client_software_name" in body]
        assert one.software_name == (software[-1] if software else None)
        mechanisms = [body["mechanism"] for api, body in bodies if api == "SaslHandshake" and "mechanism" in body]
        assert one.sasl_mechanism == (mechanisms[-1] if mechanisms else None)


def compare_summary(summary: Summary, connections: Sequence[Connection]) -> None:
    streams = [stream for one in connections for stream in (one.client_stream, one.broker_stream)]
    for name in ("decoded", "skipped", "lost", "pending", "repeated", "ignored"):
        assert getattr(summary, f"bytes_{name}") == sum(getattr(stream, name) for stream in streams), name
    assert summary.bytes_stream == sum(stream.size for stream in streams)
    for one in connections:
        client, broker = one.client_stream, one.broker_stream
        assert one.client_bytes == client.decoded + client.skipped
        assert one.broker_bytes == broker.decoded + broker.skipped
        assert one.bytes_decoded == client.decoded + broker.decoded
        assert one.bytes_lost == client.lost + broker.lost


def test_the_summary_line_lists_nonzero_counts() -> None:
    line = summary_line(Summary(packets=3, bytes_stream=30, bytes_decoded=30))
    assert line == "3 packets, 0 connections, 0 messages, 0 problems, 0 bytes lost"
    whole = Summary(bytes_lost=1, bytes_skipped=2_000, bytes_pending=9, bytes_repeated=3, bytes_ignored=4)
    line = summary_line(whole)
    assert line.endswith("1 byte lost, 2,000 bytes skipped (9 of frames truncated at the end), 4 bytes ignored")
