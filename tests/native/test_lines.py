"""JSON lines by the kernel: those of `JsonSink`, byte for byte, over all shipped captures and beyond."""

from __future__ import annotations

import re
import struct
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.enrich import Enricher
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.messages.message_header import request_header
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.native.feed import NONE
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.jsonl import BytesForm
from tests.choice import in_turn
from tests.conftest import shipped_captures
from tests.native.feed_messages import Batch, Native, Recorder, Seen, batches, by_sink, crafted, named_by, recorded

CAPTURES = {path.name: path for path in shipped_captures()}
DROPPED, HASHED = Payload("dropped"), Payload.hashed(b"salt of the tests")
WAYS: list[tuple[BytesForm, Payload, dict[str, Any]]] = [
    ("auto", SHOWN, {}),
    ("hex", SHOWN, {"records": "batches"}),
    ("base64", SHOWN, {"show_secrets": True}),
    ("auto", SHOWN, {"records": "skip"}),
    ("auto", DROPPED, {}),
    ("hex", HASHED, {}),
    ("base64", DROPPED, {"records": "batches"}),
    ("auto", SHOWN, {"headers": True}),
]


def captured(*names: str, **options: Any) -> tuple[Recorder, list[Seen]]:
    with open_captures([str(CAPTURES[name]) for name in names], stdin=None) as source:
        return recorded(source, **options)


def compare(pieces: list[bytes | int], expected: list[bytes]) -> list[int]:
    """The indices that are Python's; all other lines are as expected."""
    left: list[int] = []
    at = 0
    for piece in pieces:
        if isinstance(piece, int):
            assert piece == at
            left.append(piece)
            at += 1
            continue
        lines = piece.splitlines(keepends=True)
        assert lines == expected[at : at + len(lines)]
        at += len(lines)
    assert at == len(expected)
    return left


def holds_records(one: Seen) -> bool:
    """Whether a `records` field of a message has any bytes."""
    message, data = one.message, one.data
    assert message.api_key is not None
    assert message.api_version is not None
    if one.event.is_request:
        body = decode_request(data, 0, len(data)).body
    else:
        body = decode_response(data, 0, len(data), message.api_key, message.api_version).body
    return re.search(r"'batches': \[\{|'truncated_bytes': [1-9]", str(body)) is not None


def is_pythons(one: Seen, renderer: Renderer) -> bool:
    """Whether the line of a message is for Python to write: there is more to report, or it has to read the body."""
    message, data = one.message, one.data
    assert message.api_key is not None
    assert message.api_version is not None
    plan = (request_plan if one.event.is_request else response_plan)(message.api_key, message.api_version)
    named = named_by(Enricher(sessions=False), message)
    if named is None or ("_topic_name" in str(named.body) and plan.has_records and holds_records(one)):
        return True
    program = renderer.line_program(message.api_key, message.api_version, message.type)
    if message.problems or message.header_tags or plan.needed or plan.asks_connection or program is None:
        return True
    start = 4 + (plan.header > 0)
    if one.event.is_request:
        header = request_header(data, 0, len(data))
        assert header is not None
        start = header.length
    body = renderer.body(program, data, start, len(data))
    return body is None or body.odd is not None


@pytest.mark.parametrize(("name", "way"), in_turn(list(CAPTURES), map(str, range(len(WAYS))), 6))
def test_the_same_lines(name: str, way: str) -> None:
    form, payload, options = WAYS[int(way)]
    recorder, seen = captured(name, **options)
    native = Native.after(recorder, form, payload)
    for batch in batches(seen, 500):
        left = compare(native.of(batch), by_sink(batch, form, payload))
        if "headers" not in options:
            known = {*batch.earlier["message"].tolist(), *np.flatnonzero(batch.messages["pair"] != NONE).tolist()}
            unknown = [at for at, one in enumerate(batch.seen) if not one.event.is_request and at not in known]
            expected = {at for at, one in enumerate(batch.seen) if is_pythons(one, native.renderer)}
            assert left == sorted({*expected, *unknown})


def test_the_kernel_writes_lines() -> None:
    """Else the test above would compare nothing."""
    names = "java-1.1.pcap", "librdkafka-codecs.pcap", "librdkafka-group-classic.pcap", "java-errors.pcap"
    codecs, errors = set(), 0
    for name in names:
        recorder, seen = captured(name)
        (batch,) = batches(seen, len(seen))
        lines = b"".join(piece for piece in Native.after(recorder).of(batch) if isinstance(piece, bytes))
        assert lines.count(b"\n") >= 20, name
        codecs |= set(re.findall(rb'"compression":"(\w+)"', lines))
        errors += lines.count(b'"errors":[{')
    assert len(codecs) >= 4
    assert errors > 0


@pytest.mark.parametrize("payload", [SHOWN, DROPPED])
@pytest.mark.parametrize("shows", [False, True])
def test_versions_that_are_not_known(payload: Payload, *, shows: bool) -> None:
    """The next version of each API, and an unknown API: the bytes of their bodies, or the number of bytes."""
    options = DecodeOptions(show_secrets=shows)
    seen = []
    for key in (*api_keys(), 120):
        found = api(key)
        version = 0 if found is None else found.max_version + 1
        head = struct.pack(">hhih", key, version, 7, 6) + b"client"
        data = head[:8] if request_plan(key, version).header == 0 else head
        one = crafted(data + bytes(request_plan(key, version).header > 1) + b"\xffbody", None, options)
        seen.append(one)
        seen.append(crafted(struct.pack(">i", 7) + b"\0\xffbody", (key, version), options))
    assert None not in seen
    native = Native([seen[0].connection], ["capture"], options, payload=payload)
    for batch in batches(seen, len(seen), client_ids={7: b"client"}):
        left = compare(native.of(batch), by_sink(batch, payload=payload))
    pythons = []
    for at, one in enumerate(seen):
        plan = (request_plan if one.event.is_request else response_plan)(one.message.api_key, one.message.api_version)
        if plan.needed or plan.asks_connection or (plan.secret_marks and not shows):
            pythons.append(at)
    assert left == pythons


def test_parts_and_small_batches() -> None:
    """Pieces of ranges, and responses whose requests were in an earlier batch."""
    recorder, seen = captured("librdkafka-group-classic.pcap")
    native = Native.after(recorder)
    rng = Random(1)
    for size in (1, 2, 7, 64):
        for reported in (True, False):
            for batch in batches(seen, size, tells_earlier=reported):
                expected = by_sink(batch)
                pieces = native.of(batch)
                left = compare(pieces, expected)
                for index in left:
                    one = batch.seen[index]
                    asks = batch.messages["pair"][index] == NONE and not one.event.is_request
                    assert is_pythons(one, native.renderer) or (asks and not reported)
                whole = b"".join(expected[piece] if isinstance(piece, int) else piece for piece in pieces)
                at, parts = 0, b""
                while at < len(batch.seen):
                    end = rng.randint(at + 1, len(batch.seen))
                    for piece in native.take(at, end):
                        parts += expected[piece] if isinstance(piece, int) else piece
                    at = end
                assert parts == whole


def test_several_captures_and_a_terminal() -> None:
    recorder, seen = captured("java-1.1.pcap", "librdkafka-ipv6-ns.pcapng", "java-2.4.pcap")
    assert len(recorder._state.captures) == 3
    native = Native.after(recorder, names_captures=True, terminal=True)
    for batch in batches(seen, 100):
        compare(native.of(batch), by_sink(batch, capture=True, terminal=True))


def test_a_long_line_makes_room() -> None:
    recorder, seen = captured("librdkafka-codecs.pcap")
    largest = max(seen, key=lambda one: len(one.data))
    native = Native.after(recorder)
    assert native.lines._way is not None
    caller = native.lines._way.lines._caller
    caller._grow(200)
    for batch in batches(seen, len(seen)):
        compare(native.of(batch), by_sink(batch))
    assert len(caller.view) >= len(largest.data)
    caller._grow(200)
    caller.most_output = 200
    for batch in batches(seen, len(seen)):
        pieces = native.of(batch)
        assert compare(pieces, by_sink(batch)) == list(range(len(seen)))


TIMES = [
    0,
    1,
    -1,
    999_999_999,
    -1_000_000_000,
    951_782_399_999_999_999,
    951_782_400_000_000_000,
    2**63 - 1,
    -(2**63) + 1,
]
DURATIONS = [
    0,
    1,
    9,
    10,
    11,
    99,
    100,
    1_000,
    12_345,
    999_999,
    1_000_000,
    1_500_000,
    10**15 - 1,
    10**15,
    -1,
    -15,
    -3_000_000,
]


def test_times_and_durations() -> None:
    """All days of the calendar's turns, and numbers of any length."""
    recorder, seen = captured("librdkafka-group-classic.pcap")
    response = next(one for one in seen if one.message.api == "Heartbeat" and not one.event.is_request)
    request = next(one for one in seen if one.message.exchange == response.message.exchange)
    rng = Random(1)
    times = TIMES + [rng.randrange(-(2**63) + 1, 2**63) for _ in range(3000)]
    times += [(days * 86_400 - second) * 10**9 for days in range(-80_000, 80_000, 61) for second in (0, 1)]
    durations = DURATIONS + [rng.randrange(-(10 ** rng.randrange(1, 16)), 10 ** rng.randrange(1, 16)) for _ in times]
    durations = durations[: len(times)]
    (pair,) = batches([request, response], 2)
    native = Native.after(recorder)
    messages = np.concatenate((pair.messages[:1], np.repeat(pair.messages[1:], len(times))))
    messages["time"][1:], messages["latency"][1:], messages["duration"][1:] = times, durations, durations[::-1]
    expected = [request] + [
        response._replace(
            message=msgspec.structs.replace(response.message, time_ns=time, latency_ns=latency, duration_ns=duration)
        )
        for time, latency, duration in zip(times, durations, durations[::-1], strict=True)
    ]
    numbers = np.repeat(pair.numbers[:1], len(messages))
    batch = Batch(expected, messages, numbers, pair.buffer, pair.arena, pair.earlier, [])
    left = compare(native.of(batch), by_sink(batch))
    long = [at for at, _ in enumerate(times) if max(abs(durations[at]), abs(durations[-1 - at])) >= 10**15]
    assert left == [at + 1 for at in long]
