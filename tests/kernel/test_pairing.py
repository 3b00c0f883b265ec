"""What pairing needs of messages comes from definitions: headers, client ids, acks, mechanisms of raw tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.apis.dissectors import api_keys
from kafkasniff.kafka.messages.message import request_header
from kafkasniff.kafka.messages.message_spans import message_spans
from kafkasniff.model import Exchange, Message
from kafkasniff.packets import PacketBatch
from tests.choice import fewer, one_in
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.packet import Packet
from tests.invented import known
from tests.kernel.followers import results, split
from tests.oracle.inspector import ByPython
from tests.oracle.kafka.acks import is_silent, read_acks
from tests.vectors.reader import vectors

KEY = api_keys()[-1] + 1
INSTANCE = bytes(range(16))
FILES = {
    # Header versions that do not follow from flexible versions, as KIP-1313 has them.
    f"{KEY:03d}_identified.txt": f"""# Says little, with the header of tomorrow.
api {KEY} Identified   versions 0-2   flexible 1+
listeners broker

request   headers 1:0 2:1 3:2
  group  string      entity group_id
  wants  int32   1+  silences

response   headers 0:0-1 1:2
  error_code  error
""",
    "headers.txt": """# The client id holds for the connection.
data RequestHeader   kind header   versions 0-3   flexible 2+
  request_api_key      int16
  request_api_version  int16
  correlation_id       int32
  client_id            string?  1+  classic
  client_instance_id   uuid     3+  tag 0

# As always.
data ResponseHeader   kind header   versions 0-1   flexible 1+
  correlation_id  int32
""",
}


@pytest.fixture(autouse=True)
def _definitions(tmp_path: Path) -> Iterator[None]:
    with known(tmp_path, FILES):
        yield


def asks(number: int, version: int, *, client_id: str | None = None, wants: int = 1, instance: bool = False) -> bytes:
    """A request of the invented API."""
    tags = b"\1\0\x10" + INSTANCE if instance else kafka.NO_TAGS
    header = b"" if version == 0 else tags if version == 2 else kafka.NO_TAGS
    if version == 0:
        body = kafka.string("group")
    else:
        body = kafka.compact_string("group") + kafka.int32(wants) + kafka.NO_TAGS
    return kafka.request(KEY, version, number, header + body, client_id=client_id)


def answers(number: int, version: int) -> bytes:
    """The response to it."""
    return kafka.response(number, kafka.int16(0) + kafka.NO_TAGS * (version > 0), flexible=version == 2)


def talk(port: int, *parts: tuple[bytes, bytes | None], handshake: bool = True) -> list[Packet]:
    """A connection with these requests and responses."""
    made = Conversation(("10.0.0.5", port), ("10.0.0.9", 9092))
    if handshake:
        made.handshake()
    for request, response in parts:
        made.send("client", request)
        if response is not None:
            made.send("broker", response)
    return made.packets


def exchanged(number: int, version: int, **options: Any) -> tuple[bytes, bytes]:
    return asks(number, version, **options), answers(number, version)


GREETING = (kafka.api_versions_request(0), kafka.api_versions_response(0))
FIRST = exchanged(1, 2, client_id="first", instance=True)
PACKETS = {
    "the first request names the client": (
        talk(50_001, FIRST, exchanged(2, 2), exchanged(3, 2), exchanged(4, 2, client_id="other"), exchanged(5, 2)),
        ["first", "first", "first", "other", "first"],
    ),
    "an earlier header names the client": (
        talk(50_002, GREETING, exchanged(1, 2, instance=True), exchanged(2, 2)),
        ["crafted", "crafted", "crafted"],
    ),
    "earlier headers have no client id if they have none": (
        talk(50_003, FIRST, exchanged(2, 1), exchanged(3, 0), exchanged(4, 2)),
        ["first", None, None, "first"],
    ),
    "the first request was not captured": (
        talk(
            50_004,
            exchanged(1, 2),
            exchanged(2, 2),
            exchanged(3, 2, client_id="x"),
            exchanged(4, 2),
            handshake=False,
        ),
        [None, None, "x", "x"],
    ),
    "an empty client id is one": (talk(50_005, exchanged(1, 2, client_id=""), exchanged(2, 2)), ["", ""]),
}
"""Packets of connections, and the client ids of their requests."""


def pieces(packets: list[Packet]) -> Iterator[PacketBatch]:
    return split(batch(packets), [1] * len(packets))


@pytest.mark.parametrize("name", PACKETS)
def test_client_ids(name: str) -> None:
    packets, expected = PACKETS[name]
    found = results(Inspector, [batch(packets)])
    messages = [one for one in found[0] if isinstance(one, Message)]
    assert [one.client_id for one in messages if one.type == "request"] == expected
    assert [one.client_id for one in messages if one.type == "response"] == expected
    assert [problem for one in messages for problem in one.problems] == []
    assert all(one.body is not None for one in messages)
    # The header shows the bytes on the wire.
    raw = [one.header["client_id"] for one in messages if one.type == "request" and one.header is not None]
    assert [one for one in raw if one is not None] == [one for one in dict.fromkeys(expected) if one is not None]
    assert results(Inspector, pieces(packets)) == found == results(ByPython, [batch(packets)])


def test_header_versions_do_not_follow_from_flexible_versions() -> None:
    for version, size in ((0, 10), (1, 11), (2, 11)):
        data = asks(7, version)[4:]
        header = request_header(data, 0, len(data))
        assert header is not None
        assert header.length == size
    data = FIRST[0][4:]
    (message, *_) = [one for one in results(Inspector, [batch(talk(50_009, FIRST))])[0] if isinstance(one, Message)]
    assert message.header_tags == ((0, INSTANCE),)
    spans = {span.path: span.value for span in message_spans(message, data, show_secrets=False)}
    assert spans["client_instance_id"] == "AAECAwQFBgcICQoLDA0ODw"


def test_a_definition_says_which_requests_have_no_response() -> None:
    packets = talk(
        50_010,
        GREETING,
        (asks(1, 1, wants=0), None),
        (asks(2, 1, wants=5), answers(2, 1)),
        (asks(3, 2, wants=0, client_id="c"), None),
        (asks(4, 2, wants=0), answers(4, 2)),
    )
    found = results(Inspector, [batch(packets)])
    ends = {one.exchange_id: one.status for one in found[0] if isinstance(one, Exchange)}
    expected = ["answered", "no_response", "answered", "no_response", "answered"]
    assert [ends[number] for number in sorted(ends)] == expected
    kinds = [problem.kind for one in found[0] if isinstance(one, Message) for problem in one.problems]
    assert kinds == ["response-to-acks-0"]
    assert results(Inspector, pieces(packets)) == found == results(ByPython, [batch(packets)])


PRODUCE_VECTORS = [vector for vector in vectors() if (vector.kind, vector.key) == ("request", 0)]


def test_acks_of_every_version() -> None:
    """As Kafka's classes write them, whole and cut at any of the first bytes."""
    assert {vector.version for vector in PRODUCE_VECTORS} == set(range(14))
    for number, vector in enumerate(one_in(6, PRODUCE_VECTORS)):
        data, acks = vector.data, vector.body["acks"]
        header = request_header(data, 0, len(data))
        assert header is not None
        assert read_acks(data, header.length, len(data), vector.version) == acks, vector
        assert is_silent(data, 0, len(data)) is (acks == 0)
        for cut in {len(data), *range(header.length, min(header.length + fewer(2, 4), len(data)))}:
            packets = talk(
                50_100 + number, GREETING, (kafka.frame(data[:cut]), None), (kafka.api_versions_request(9), None)
            )
            statuses = [one.status for one in results(Inspector, [batch(packets)])[0] if isinstance(one, Exchange)]
            expected = [one.status for one in results(ByPython, [batch(packets)])[0] if isinstance(one, Exchange)]
            assert statuses == expected
            assert ("no_response" in statuses) is is_silent(data[:cut], 0, cut)
