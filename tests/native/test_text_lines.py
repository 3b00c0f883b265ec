"""Lines of text by the kernel, between those of a `TextSink`: all of them are those of the sink alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.enrich import Enricher
from kafkasniff.kafka.connection.detail import Detail
from kafkasniff.model import Endpoint
from kafkasniff.native.lines import LineBatch
from kafkasniff.sinks import text_columns
from kafkasniff.sinks.native_lines import Ends
from kafkasniff.sinks.native_text import NativeText
from kafkasniff.sinks.text import TextSink
from tests.choice import in_turn
from tests.conftest import shipped_captures
from tests.native.feed_messages import Recorder, Seen, Side, batches, named_by, recorded
from tests.native.kernel_and_walker import the_kernel

CAPTURES = {path.name: path for path in shipped_captures()}
WAYS: list[dict[str, Any]] = [
    {},
    {"colour": True},
    {"captures": True, "colour": True},
    {"verbosity": 1, "width": 60},
    {"verbosity": 2, "colour": True},
    {"verbosity": 2, "width": 1, "captures": True},
]


def captured(*names: str, records: str = "metadata") -> tuple[Recorder, list[Seen]]:
    with open_captures([str(CAPTURES[name]) for name in names], stdin=None) as source:
        recorder, seen = recorded(source, records=records)
    for one in seen:
        if (named := named_by(Enricher(sessions=False), one.message)) is not None:
            msgspec.structs.force_setattr(one.message, "body", named.body)
    return recorder, seen


def lines(recorder: Recorder, seen: Sequence[Seen], way: dict[str, Any], *, size: int = 64) -> tuple[bytes, int]:
    """The lines of what was recorded, and how many of them the kernel wrote.

    `seen`: the messages that it may write.
    """
    events, names = recorder.reported, recorder._state.captures
    sides = {one.connection.number: one.connection for one in seen}

    def ends(index: int) -> Ends:
        return sides[index]

    out = io.BytesIO()
    sink = TextSink(out, **way)
    assert sink.writes_plain_lines
    enricher = Enricher(sessions=False)
    native = NativeText(the_kernel(), sink, ends, names.__getitem__, enricher)
    native.use(Detail(recorder.decode_options))
    of = {id(one.message): one for one in seen}
    ours = [of[id(event)] for event in events if id(event) in of]
    made = batches(ours, size)
    at = end = written = 0
    waiting = list(events)[::-1]
    while waiting:
        event = waiting.pop()
        if id(event) not in of:
            sink.write(event)
            continue
        if at == end:
            batch = next(made)
            at, end = 0, len(batch.seen)
            native.bind(LineBatch(batch.messages, batch.numbers, batch.buffer, batch.arena, batch.earlier))
        first = at
        at += 1
        while at < end and waiting and waiting[-1] is batch.seen[at].message:
            waiting.pop()
            at += 1
        while first < at:
            left = native.write(first, at)
            written += left - first
            if left < at:
                sink.write(batch.seen[left].message)
                left += 1
            first = left
    sink.close()
    return out.getvalue(), written


def alone(events: Sequence[Any], way: dict[str, Any]) -> bytes:
    """The lines of the sink alone."""
    out = io.BytesIO()
    sink = TextSink(out, **way)
    for event in events:
        sink.write(event)
    sink.close()
    return out.getvalue()


@pytest.mark.parametrize(("name", "way"), in_turn(list(CAPTURES), map(str, range(len(WAYS))), 4))
def test_the_same_lines(name: str, way: str) -> None:
    chosen = WAYS[int(way)]
    recorder, seen = captured(name, records="full" if chosen.get("verbosity", 0) > 1 else "metadata")
    made, written = lines(recorder, seen, chosen)
    assert made == alone(recorder.reported, chosen)
    assert written > 0.3 * len(seen) or len(seen) < 20


def test_summaries_are_made() -> None:
    """Else the test above would compare the sink with itself."""
    recorder, seen = captured("librdkafka-group-classic.pcap")
    assert lines(recorder, seen, {})[1] > 0.5 * len(seen)


@pytest.mark.parametrize("kept", [4096, 2])
def test_several_captures(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures begin, and few connections are remembered."""
    monkeypatch.setattr(text_columns, "LINE_CACHE", kept)
    recorder, seen = captured("java-1.1.pcap", "librdkafka-ipv6-ns.pcapng", "java-2.4.pcap", "sarama.pcap")
    clients = sorted({str(one.connection.client) for one in seen})
    for names in ({}, dict.fromkeys(clients[3:5], "a-rather-long-name")):
        way = {"captures": True, "names": names}
        for size in (1, 3, 1000):
            assert lines(recorder, seen, way, size=size)[0] == alone(recorder.reported, way)


CLIENT_IDS = [
    None,
    b"",
    b"a",
    b"a b",
    b'q"uote',
    b"x" * 24,
    b"x" * 25,
    b"y z" * 30,
    b"back\\slash",
    b"\x1b[31m",
    "größe".encode(),
    b"\xff",
]
"""Names of clients: plain, quoted, cut, and for Python."""


def test_what_messages_say() -> None:
    """Times of other days, latencies of any length, numbers that grow, client ids of all kinds."""
    recorder, seen = captured("librdkafka-group-classic.pcap")
    request = next(one for one in seen if one.message.api == "Heartbeat" and one.event.is_request)
    response = next(one for one in seen if one.message.exchange == request.message.exchange and one is not request)
    side = Side(1, Endpoint("192.0.2.1", 40_000), Endpoint("2001:db8::2", 9092))
    rng = Random(3)
    latencies = [10**n + off for n in range(12) for off in (-1, 0, 1)] + [995 * 10**n for n in range(9)]
    latencies += [9_995 * 10**n + off for n in range(8) for off in (-1, 0)] + [
        1_005,
        10_050,
        1_125,
        2_675,
        999_500,
        10**13,
    ]
    latencies += [rng.randrange(10 ** rng.randrange(1, 13)) for _ in range(3000)]
    latencies += [-one for one in latencies[:200]]
    made, time = [], 951_782_399_000_000_000
    for number, latency in enumerate(latencies):
        time += rng.choice([0, 1, 999, 10**6, 10**9, 3600 * 10**9, -7200 * 10**9])
        client_id = rng.choice(CLIENT_IDS)
        data = (
            request.data[:8]
            + (b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id)
            + request.data[10 + int.from_bytes(request.data[8:10], "big") :]
        )
        try:
            name = None if client_id is None else client_id.decode()
        except UnicodeDecodeError:
            name = client_id
        for one, size in ((request, data), (response, response.data)):
            number_of = number**3 - 5
            message = msgspec.structs.replace(
                one.message,
                exchange=number_of,
                connection=1,
                time_ns=time,
                client=side.client,
                broker=side.broker,
                client_id=name,
                latency_ns=None if one is request else latency,
                duration_ns=None if one is request else latency,
                size=len(size),
                capture="capture",
            )
            frame = one.event.frame._replace(data=size, start=0, end=len(size), size=len(size), time_ns=time)
            event = msgspec.structs.replace(
                one.event, frame=frame, latency_ns=message.latency_ns, duration_ns=message.latency_ns
            )
            made.append(Seen(event, message, side))
    recorder.reported, recorder._state.captures = [one.message for one in made], ("capture",)
    for way in WAYS:
        found, written = lines(recorder, made, way, size=500)
        assert found == alone(recorder.reported, way)
        assert written > len(made) / 3
