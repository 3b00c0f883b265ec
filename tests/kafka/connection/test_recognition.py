"""The verdict on a connection, its roles, and searches for frames."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.connection.connection import KafkaConnection
from kafkasniff.kafka.connection.events import MessageEvent, ProblemEvent, VerdictEvent
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.tcp.segments import Started
from tests.craft.kafka_bytes import (
    metadata_request,
    metadata_response,
)
from tests.kafka.connection.test_connection import CLOSED, SAID, STARTED, fed, stretches


def test_the_syn_or_the_first_request_identifies_the_client() -> None:
    turned = [(1 - side, data) for side, data in SAID]
    assert fed(stretches(turned, []))[0].client == 1
    assert fed([Started(0, 0, False)])[0].client == 1
    assert fed([Started(0, 1, True)])[0].client == 1
    assert fed([])[0].client is None
    assert KafkaConnection(ConnectionOptions(), 1).client == 1


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"SSH-2.0-x\r\n", b"\xff" * 30]
)
def test_a_stream_that_is_not_kafka(first: bytes) -> None:
    connection, events = fed([*STARTED, *stretches([(0, first), (1, b"\xff" * 30)], []), CLOSED])
    (verdict,) = events
    assert isinstance(verdict, VerdictEvent)
    assert not verdict.is_kafka
    assert connection.verdict == "not-kafka"
    assert (connection.buffered, connection.framed_of) == (0, [0, 0])
    # The rest of the stream is not parsed.
    assert connection.feed(stretches(SAID, [])) == []
    assert connection.buffered == 0


def test_the_search_restarts_at_a_frame_of_impossible_size() -> None:
    more = [(0, b"\xff" * 40), (0, metadata_request(4, ["orders"])), (1, metadata_response(4, "h", 9092, ["orders"]))]
    connection, events = fed([*STARTED, *stretches([*SAID, *more], []), CLOSED])
    assert [one.kind for one in events if isinstance(one, ProblemEvent)] != []
    numbers = [one.decoded.correlation_id for one in events if isinstance(one, MessageEvent) and one.is_request]
    assert numbers == [0, 1, 2, 3, 4]
    assert connection.bytes_of[0] - connection.framed_of[0] == 40
