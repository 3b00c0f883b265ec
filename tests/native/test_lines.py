"""JSON lines by the kernel: parts of batches, versions without definitions, and lines too long for their room.

`tests/engine/test_lines.py` compares the lines of whole runs.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.native.feed import NONE
from kafkasniff.redact.payload import SHOWN, Payload
from tests.conftest import shipped_captures
from tests.native.feed_messages import Native, Recorder, Seen, batches, by_sink, crafted, recorded

CAPTURES = {path.name: path for path in shipped_captures()}
DROPPED = Payload("dropped")


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
    """Pieces of ranges, and responses whose requests were in an earlier batch, which may be known or not."""
    recorder, seen = captured("librdkafka-group-classic.pcap")
    native = Native.after(recorder)
    rng = Random(1)
    for size in (1, 7, 64):
        for reported in (True, False):
            pythons = 0
            for batch in batches(seen, size, tells_earlier=reported):
                expected = by_sink(batch)
                pieces = native.of(batch)
                left = compare(pieces, expected)
                unknown = {
                    at
                    for at, one in enumerate(batch.seen)
                    if batch.messages["pair"][at] == NONE and not one.event.is_request and not reported
                }
                assert unknown <= set(left)
                pythons += len(left) - len(unknown)
                whole = b"".join(expected[piece] if isinstance(piece, int) else piece for piece in pieces)
                at, parts = 0, b""
                while at < len(batch.seen):
                    end = rng.randint(at + 1, len(batch.seen))
                    for piece in native.take(at, end):
                        parts += expected[piece] if isinstance(piece, int) else piece
                    at = end
                assert parts == whole
            assert pythons < 0.5 * len(seen)


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
