"""Form E: form C in trouble. Most responses have an error, some messages are odd, some segments are lost or late.

Clients also use topic ids, fetch sessions and flexible versions. Seeded, the same in every run.
"""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.small_messages import BROKER_PORT, Pairs, templates, write
from tests.craft import kafka_bytes as kafka

TEMPLATES: Final = 256
ERROR_SHARE: Final = 2 / 3
"""Share of the responses with an error code."""
ODD_SHARE: Final = 0.05
"""Share of the messages that have a problem."""
DISTURBED_SHARE: Final = 0.01
"""Share of the segments with data that are lost or late."""

COPIES: Final = 8
"""Copies of each template of form C, so that a share of a few percent can be odd."""
SESSION: Final = 1_234_567
PARTITION_ERRORS: Final = (3, 5, 6, 7, 9, 19, 74)
"""Codes of partitions that clients retry."""
GROUP_ERRORS: Final = (14, 15, 16, 22, 25, 27)


def pairs(seed: int) -> Pairs:
    """Requests and responses with correlation id 0."""
    rng = Random(seed)
    return _with_odd([_pair(number, rng) for number in range(TEMPLATES)], ODD_SHARE, rng)


def odd_pairs(seed: int, share: float) -> Pairs:
    """Requests and responses of form C, of which this share is odd."""
    return _with_odd(templates(seed) * COPIES, share, Random(seed))


def _with_odd(pairs: Pairs, share: float, rng: Random) -> Pairs:
    places = [(index, side) for index in range(len(pairs)) for side in (0, 1)]
    messages = [list(pair) for pair in pairs]
    for number, (index, side) in enumerate(rng.sample(places, round(share * len(places)))):
        messages[index][side] = odd(messages[index][side], side, number % 3, rng)
    return [(request, response) for request, response in messages]


def odd(frame: bytes, side: int, how: int, rng: Random) -> bytes:
    """A frame (length prefix, message) that is cut, has trailing bytes, or a null instead of a string of its body."""
    message = frame[4:]
    start = 10 + struct.unpack_from(">h", message, 8)[0] if side == 0 else 4
    if how == 0 and len(message) > start + 1:
        message = message[: rng.randrange(start + 1, len(message))]
    elif how == 2 and (place := _string(message, start)) is not None:
        size = struct.unpack_from(">h", message, place)[0]
        message = message[:place] + b"\xff\xff" + message[place + 2 + size :]
    else:
        message += bytes(rng.randrange(1, 8))
    return struct.pack(">i", len(message)) + message


def _string(message: bytes, start: int) -> int | None:
    """Where the first string of a body is whose text is one of form C's."""
    for word in (b"topic-", b"group", b"broker"):
        found = message.find(word, start)
        if found >= start + 2:
            return found - 2
    return None


def _pair(number: int, rng: Random) -> tuple[bytes, bytes]:
    topic, topic_id = f"topic-{number % 7}", bytes([number % 7 + 1]) * 16
    value = bytes(rng.choices(range(97, 123), k=rng.randint(40, 200)))
    batch = kafka.record_batch([kafka.record(0, f"key-{number}".encode(), value)], base_offset=number)
    fails = rng.random() < ERROR_SHARE
    code = rng.choice(PARTITION_ERRORS) if fails else 0
    match number % 12:
        case 0 | 1 | 2:
            response = kafka.produce_response(0, topic, -1 if code else number, error=code)
            return kafka.produce_request(0, topic, batch), response
        case 3 | 4:
            response = kafka.produce_response(0, topic, -1 if code else number, error=code, version=9)
            return kafka.produce_request(0, topic, batch, version=9), response
        case 5 | 6:
            request = kafka.fetch_request_by_id(0, session=(SESSION, number + 1))
            parts = [(topic_id, number % 4, b"" if code else batch)]
            return request, kafka.fetch_response_by_id(0, parts, session=SESSION, partition_error=code)
        case 7 if number < 12:
            request = kafka.fetch_request_by_id(0, [(topic_id, [0, 1, 2, 3])], session=(0, 0))
            return request, kafka.fetch_response_by_id(0, [(topic_id, 0, batch)], session=SESSION)
        case 7 | 8:
            answer = kafka.fetch_response(0, topic, b"" if code else batch, number + 1, error=code)
            return kafka.fetch_request(0, topic, number), answer
        case 9 | 10:
            body = kafka.string("group") + kafka.int32(number) + kafka.string(f"member-{number}")
            answer = kafka.int16(rng.choice(GROUP_ERRORS) if fails else 0)
            return kafka.request(12, 0, 0, body), kafka.response(0, answer)
        case _:
            request = kafka.metadata_request_by_id(0, [(kafka.NO_ID, topic)])
            topics = [(topic_id, None if fails else topic)]
            return request, kafka.metadata_response_with_ids(0, topics, [(1, "broker", BROKER_PORT)])


def write_trouble(path: Path, connections: int = 2000, wanted: int = 500_000, seed: int = 1) -> dict[str, int]:
    """Write a capture of about `wanted` packets; returns how many packets, requests and responses were sent."""
    return write(path, connections, wanted, seed, pairs(seed), disturbed=DISTURBED_SHARE, session=SESSION)
