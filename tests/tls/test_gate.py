"""Whether a connection is TLS: by its first bytes, in any pieces. Other connections are not changed."""

from __future__ import annotations

import functools
import ssl

import pytest

from kafkasniff.tls.gate import TlsGate, is_tls
from tests.choice import in_turn
from tests.craft.batches import batch
from tests.craft.outcome import outcome, output, packets_outcome
from tests.craft.packet import SYN, Packet
from tests.craft.samples import mixed
from tests.tls.endpoints import Pair, kafka_talk, packets_of
from tests.tls.reading import contents, kinds

HELLO = b"\x16\x03\x01\x02\x00\x01"
DATA = b"\x17\x03\x03\x00\x10" + bytes(16)


@pytest.mark.parametrize(
    ("head", "aligned", "found"),
    [
        (HELLO, True, True),
        (HELLO, False, True),
        (HELLO[:5], True, None),
        (HELLO[:1], True, None),
        (HELLO[:5] + b"\x02", True, True),
        (HELLO[:5] + b"\x0b", True, False),
        (b"\x16\x03\x05", True, False),
        (b"\x16\x03\x01\xff\xff\x01", True, False),
        (b"\x00\x00\x00\x1d", True, False),
        (b"GET ", True, False),
        (b"\x15\x03\x03\x00\x02\x02\x28", True, False),
        (DATA, True, False),
        (DATA, False, None),
        (DATA + b"\x17\x03", False, None),
        (DATA + b"\x17\x03\x03", False, True),
        (DATA + b"\x15\x03\x03", False, True),
        (DATA + b"\x17\x02", False, False),
        (DATA[:3], False, None),
    ],
)
def test_first_bytes(head: bytes, aligned: bool, found: bool | None) -> None:
    assert is_tls(head, aligned=aligned) is found


def singly(packets: list[Packet]) -> list[object]:
    return [batch([packet], [place]) for place, packet in enumerate(packets)]


@functools.cache
def tls_packets(sizes: int) -> list[Packet]:
    made = Pair(version=ssl.TLSVersion.TLSv1_3).talk(kafka_talk(30), ends=False)
    return packets_of(made.flights, sizes=sizes)


@pytest.mark.parametrize("sizes", [20, 1448])
def test_from_the_middle(sizes: int) -> None:
    """The connection from some packet on."""
    found = 0
    # There are many small segments: test fewer places.
    for first in range(20, 60, 9 if sizes == 20 else 2):
        packets = tls_packets(sizes)[first:]
        whole = output([batch(packets)], ports=[9093])
        assert output(singly(packets), ports=[9093]) == whole  # type: ignore[arg-type]
        found += b"tls-not-decrypted" in whole.json
    # Small segments hardly ever begin with a record.
    assert found > 15 or sizes == 20


@pytest.mark.parametrize(
    ("head", "size"), in_turn([b"\x16", HELLO[:4], DATA[:4], DATA, b"\x17\x03\x03\x3f\xff"], [1, 2, 7, 1448], 2)
)
def test_kafka_that_begins_like_tls(monkeypatch: pytest.MonkeyPatch, head: bytes, size: int) -> None:
    """Kafka from the middle of a message whose next bytes look like a TLS record is decoded as usual."""
    said = kafka_talk(6)
    side, data = said[0]
    said[0] = (side, head + b"\x00rest of some message" + data)
    packets = [packet for packet in packets_of(said, sizes=size) if not packet.flags & SYN]
    whole = output([batch(packets)], ports=[9093])
    assert output(singly(packets), ports=[9093]) == whole  # type: ignore[arg-type]
    found = outcome([batch(packets)], ports=[9093])
    assert not any(kind.startswith("tls") for kind in kinds(found))
    monkeypatch.setattr(TlsGate, "feed", lambda gate, items, *_, **__: items)
    assert contents(found) == contents(outcome([batch(packets)], ports=[9093]))
    assert size < 7 or len(contents(found)) > 12


def test_plain_captures_are_unchanged() -> None:
    packets = mixed()
    found = packets_outcome(packets)
    assert not any(kind.startswith("tls") for kind in kinds(found))
    assert packets_outcome(packets, ports=[9092]).summary.requests > 10
