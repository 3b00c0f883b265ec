"""The stream engine yields what Python's follower yields: of captures as they are and disturbed."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Connection, Exchange, Problem
from tests.baseline.inputs import shipped
from tests.choice import fewer, one_in
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.packet import Packet
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.fuzz.oracle import case_of, difference
from tests.kernel.followers import results
from tests.oracle.inspector import ByPython

CRAFTED = "crafted"
CAPTURES = {path.name: path for path in shipped()}
MOST_PACKETS = 800
SIZES = (1, 7, 40, 300)
"""Packets of the batches, in turn."""


def packets_of(source: str) -> list[Packet]:
    return (mixed() if source == CRAFTED else read_packets(CAPTURES[source]))[:MOST_PACKETS]


def seeded(*names: Any) -> Random:
    return Random(zlib.crc32(" ".join(map(str, names)).encode()))


@pytest.mark.parametrize("name", one_in(12, sorted(CAPTURES)))
def test_of_a_capture(name: str) -> None:
    with open_captures([CAPTURES[name]]) as source:
        batches = list(source)
    assert results(Inspector, batches) == results(ByPython, batches)


@pytest.mark.parametrize("start", range(0, fewer(80, 400), 40))
def test_of_disturbed_captures(start: int) -> None:
    """Those of `python -m tests.fuzz oracle`: disturbed, with changed bytes, any options, in batches of any sizes."""
    for number in range(start, start + 40):
        case = case_of(number)
        assert difference(case) is None, case.name


def test_a_clients_stream_that_cannot_begin_with_a_frame() -> None:
    """The port of TLS clients is taken as Kafka's, so their alert is the beginning of requests."""
    alerts = batch(packets_of("tls-plaintext-client.pcap"))
    found = results(Inspector, [alerts], ports=[44958])
    assert [one.bytes for one in found[0] if isinstance(one, Problem) and one.kind == "frame-size"] == [None]
    assert found == results(ByPython, [alerts], ports=[44958])


def test_a_stream_that_cannot_begin_with_its_first_record() -> None:
    """A stream of TLS begins with a hello: one that begins with application data is something else, at once."""
    talk = Conversation()
    talk.handshake()
    talk.send("client", b"\x17\x03\x03\0\x05hello" * 3)
    talk.close()
    found = results(Inspector, [batch(talk.packets)])
    verdicts = [(one.verdict_detail, one.verdict_packet) for one in found[0] if isinstance(one, Connection)]
    assert verdicts == [("this is TLS", 4)]
    assert found == results(ByPython, [batch(talk.packets)])


@pytest.mark.parametrize("records", ["skip", "full"])
def test_damaged_records_do_not_show_that_a_response_answers_another_request(records: str) -> None:
    """The ids restarted, and a segment is missing: the response has to fit as far as it goes, but not its records."""
    talk = Conversation()
    talk.handshake()
    topic, batches = bytes(range(16)), kafka.record_batch([kafka.record(0, b"key", b"value")])
    damaged = [(topic, 0, batches[:-1] + b"?")]
    sent = []
    for number in (9, 3, 4):
        talk.send("client", kafka.fetch_request_by_id(number, [(topic, [0])]))
        sent.append(talk.send("broker", kafka.fetch_response_by_id(number, damaged), [149, 3]))
    packets = batch([one for one in talk.packets if one is not sent[1][1]])
    found = results(Inspector, [packets], records=records)
    assert [one.status for one in found[0] if isinstance(one, Exchange)] == ["answered"] * 3
    assert found == results(ByPython, [packets], records=records)
