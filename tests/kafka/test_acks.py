"""Whether a Produce request expects a response, read from its body and by itself."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.messages.message import decode_request, read_acks
from kafkasniff.kafka.messages.message_header import request_header
from kafkasniff.kafka.schema.context import DecodeOptions
from tests.craft import kafka_bytes as kafka
from tests.vectors.reader import vectors

PRODUCE = [vector for vector in vectors() if (vector.kind, vector.key) == ("request", 0)]
HEADERS = DecodeOptions(bodies=False, headers=True)


def test_there_are_vectors_of_all_versions() -> None:
    assert {vector.version for vector in PRODUCE} == set(range(14))


@pytest.mark.parametrize("vector", PRODUCE, ids=lambda vector: f"v{vector.version}-{vector.variant}")
def test_it_agrees_with_the_body(vector: object) -> None:
    data, acks = vector.data, vector.body["acks"]
    header = request_header(data, 0, len(data))
    assert header is not None
    assert read_acks(data, header.length, len(data), vector.version) == acks
    assert decode_request(data, 0, len(data)).silent is (acks == 0)
    bare = decode_request(data, 0, len(data), HEADERS)
    assert (bare.silent, bare.body, bare.problems) == (acks == 0, None, ())


@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 13])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_at_any_place(version: int, acks: int) -> None:
    """With a transactional id of any length before it, cut anywhere."""
    for name in (None, "", "t" * 5, "t" * 300):
        before = b"" if version < 3 else (kafka.string(name) if version < 9 else kafka.compact_string(name))
        body = before + kafka.int16(acks)
        assert read_acks(b"xx" + body + b"yy", 2, 2 + len(body), version) == acks
        for end in range(len(body)):
            assert read_acks(body, 0, end, version) is None


def test_only_produce_is_silent() -> None:
    heartbeat = kafka.request(12, 0, 1, kafka.string("g") + kafka.int32(0) + kafka.string("m"))[4:]
    assert not decode_request(heartbeat, 0, len(heartbeat)).silent
