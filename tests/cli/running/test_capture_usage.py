"""API versions that clients use, from packets: whatever the batches, connections and engine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafkasniff.analysis.offers import Offers
from kafkasniff.analysis.questions.versions import ClientVersions
from kafkasniff.cli.running import capture_usage as module
from kafkasniff.cli.running.capture_usage import CaptureUsage
from kafkasniff.engine.inspector import Inspector
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import START_NS, Conversation, interleaved
from tests.craft.packet import Packet

HEARTBEAT = kafka.request(12, 0, 9, kafka.string("g") + kafka.int32(1) + kafka.string("m"), client_id="crafted")
HEARD = kafka.response(9, kafka.int16(0))
METADATA = kafka.metadata_request(2, ["orders"]), kafka.metadata_response(2, "broker", 9092, ["orders"])
NAMED = kafka.api_versions_request(3, 3, ("craft", "1.0")), kafka.api_versions_response(3, 3)

Talk = tuple[bytes, bytes]


def talk(address: str, *exchanges: Talk, close: bool = True, start: int = 0) -> Conversation:
    found = Conversation((address, 50_000), start_ns=START_NS + start)
    found.handshake()
    for one in exchanges:
        found.exchange(*one)
    if close:
        found.close()
    return found


def used(packets: list[Packet], size: int = 1 << 20, **options: Any) -> CaptureUsage:
    inspector = Inspector(records="skip", headers=True, connections=True, **options)
    usage = CaptureUsage(inspector, ClientVersions(), Offers())
    rest = batch(packets)
    while len(rest):
        part, rest = rest.split(min(size, len(rest)))
        usage.feed(part)
    usage.close()
    return usage


def requests(usage: CaptureUsage) -> dict[tuple[Any, ...], int]:
    """Requests by client, software, API and version."""
    rows = usage._versions.parts["versions"].table().to_pylist()
    return {
        (row["client_ip"], row["software_name"], row["software_version"], row["api"], row["api_version"]): row[
            "requests"
        ]
        for row in rows
    }


def offers(usage: CaptureUsage) -> dict[tuple[str, int], int]:
    rows = usage._offers.parts["offers"].table().to_pylist()
    return {(row["client_ip"], row["api_key"]): row["highest"] for row in rows}


def test_requests_of_clients() -> None:
    usage = used(
        interleaved([talk("10.0.1.1", METADATA, METADATA, (HEARTBEAT, HEARD)), talk("10.0.1.2", METADATA, start=7)])
    )
    assert requests(usage) == {
        ("10.0.1.1", None, None, "Metadata", 1): 2,
        ("10.0.1.1", None, None, "Heartbeat", 0): 1,
        ("10.0.1.2", None, None, "Metadata", 1): 1,
    }
    assert usage.notes() == []


@pytest.mark.parametrize("close", [True, False])
def test_software_named_later_applies_to_earlier_requests(close: bool) -> None:
    """Clients that authenticate first do so. The connection may still be open at the end."""
    usage = used(talk("10.0.1.1", METADATA, NAMED, METADATA, close=close).packets)
    assert requests(usage) == {
        ("10.0.1.1", "craft", "1.0", "Metadata", 1): 2,
        ("10.0.1.1", "craft", "1.0", "ApiVersions", 3): 1,
    }


def test_each_connection_has_its_own_software() -> None:
    other = kafka.api_versions_request(3, 3, ("other", "2.0")), NAMED[1]
    usage = used(interleaved([talk("10.0.1.1", METADATA, NAMED), talk("10.0.1.2", METADATA, other, start=7)]))
    assert {key[:2] for key in requests(usage)} == {("10.0.1.1", "craft"), ("10.0.1.2", "other")}


def test_first_and_last_request() -> None:
    packets = talk("10.0.1.1", METADATA, METADATA, METADATA).packets
    (row,) = used(packets)._versions.parts["versions"].table().to_pylist()
    times = [packet.time_ns for packet in packets if packet.payload and packet.dport == 9092]
    assert (row["first"], row["last"]) == (times[0], times[-1])


def test_the_lowest_offer_counts() -> None:
    """A client may ask several brokers."""
    low, high = (
        (kafka.api_versions_request(1, 0), kafka.api_versions_response(1, 0, [(0, 0, most), (18, 0, 3)]))
        for most in (7, 9)
    )
    usage = used(interleaved([talk("10.0.1.1", high, low), talk("10.0.1.2", high, start=7)]))
    assert offers(usage) == {("10.0.1.1", 0): 7, ("10.0.1.1", 18): 3, ("10.0.1.2", 0): 9, ("10.0.1.2", 18): 3}


def test_a_request_without_a_response_is_counted() -> None:
    found = talk("10.0.1.1", METADATA, close=False)
    found.send("client", kafka.api_versions_request(5, 0))
    usage = used(found.packets)
    assert requests(usage)["10.0.1.1", None, None, "ApiVersions", 0] == 1
    assert offers(usage) == {}


def test_a_response_alone_has_no_version() -> None:
    found = talk("10.0.1.1", METADATA, close=False)
    found.send("broker", kafka.metadata_response(77, "broker", 9092, ["orders"]))
    assert requests(used(found.packets)) == {("10.0.1.1", None, None, "Metadata", 1): 1}


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("ended", [1, 4096])
def test_neither_batches_nor_ended_connections_matter(size: int, ended: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ended`: connections whose counts are handed on together."""
    packets = interleaved(
        [talk(f"10.0.1.{at}", METADATA, (HEARTBEAT, HEARD), NAMED, start=at * 150_000) for at in range(6)]
    )
    whole = used(packets)
    monkeypatch.setattr(module, "MAX_ENDED", ended)
    assert requests(used(packets, size)) == requests(whole)
    assert offers(used(packets, size)) == offers(whole)
    assert sum(requests(whole).values()) == 18


def test_python_and_kernel_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    packets = interleaved([talk(f"10.0.1.{at}", *[METADATA] * 30, NAMED, start=at) for at in range(4)])
    native = used(packets, 40)
    monkeypatch.setattr(module, "kernel", lambda: None)
    assert requests(used(packets, 40)) == requests(native)


def test_too_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with few requests are skipped, and that is reported."""
    monkeypatch.setattr(module, "_SENT", msgspec.structs.replace(module._SENT, bound=2))
    packets = interleaved([talk(f"10.0.1.{at}", *[METADATA] * (at + 1), start=at) for at in range(6)])
    usage = used(packets)
    (note,) = usage.notes()
    counted = sum(requests(usage).values())
    assert 0 < counted < 21
    assert note.startswith(f"{21 - counted} requests are not counted")
    assert requests(usage)["10.0.1.5", None, None, "Metadata", 1] == 6
