"""Captures that lost packets, or parts of them: missing data is not reported as trouble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest

from kafkasniff.analysis.detectors import Evidence, run
from kafkasniff.analysis.detectors.unanswered import LateAnswers
from kafkasniff.analysis.detectors.undecoded import Losses
from tests.conftest import ROOT
from tests.craft.packet import ACK, SYN, Packet
from tests.craft.read import read_packets
from tests.craft.write import write_pcap

Disturb = Callable[[Sequence[Packet]], Sequence[Packet]]


def disturbed(name: str, path: Path, disturb: Disturb) -> str:
    return str(write_pcap(path, disturb(read_packets(ROOT / "captures" / name)), nanoseconds=True))


def thinned(packets: Sequence[Packet]) -> list[Packet]:
    """50 of each 150 packets are missing."""
    return [packet for place, packet in enumerate(packets) if place // 50 % 3]


def snapped(packets: Sequence[Packet]) -> list[Packet]:
    """Only headers of packets, and some bytes."""
    return [one.but(payload=one.payload[:40], cut=one.cut + len(one.payload[40:])) for one in packets]


def one_side(packets: Sequence[Packet], end: str) -> list[Packet]:
    """A mirror port with one direction: to the ports to which connections were opened, or from them."""
    ports = {one.dport for one in packets if one.flags & SYN and not one.flags & ACK}
    return [one for one in packets if getattr(one, end) in ports]


requests, responses = partial(one_side, end="dport"), partial(one_side, end="sport")


def from_the_middle(packets: Sequence[Packet]) -> Sequence[Packet]:
    return packets[len(packets) * 2 // 9 :]


def test_connections_on_which_nothing_was_seen_may_be_idle(tmp_path: Path) -> None:
    path = disturbed("faults/connections-idle.pcap", tmp_path / "a.pcap", from_the_middle)
    assert not run([path], only=["broker-gone"]).findings


@pytest.mark.parametrize(
    ("name", "disturb", "detector"),
    [
        ("java-2.4.pcap", thinned, "offsets-out-of-range"),
        ("java-0.9.pcap", responses, "wrong-protocol"),
        ("java-connect.pcap", snapped, "metadata-storms"),
        ("java-streams-classic.pcap", thinned, "late-answers"),
        ("kraft-quorum.pcap", requests, "unreached-listeners"),
        ("librdkafka-sasl.pcap", snapped, "unanswered-requests"),
    ],
)
def test_what_is_missing_is_no_trouble(tmp_path: Path, name: str, disturb: Disturb, detector: str) -> None:
    found = run([disturbed(name, tmp_path / name, disturb)], only=[detector])
    assert found.visible.share is None or found.visible.share < 0.95, "nothing is missing"
    assert [one for one in found.findings if one.severity != "note"] == []


def lossy(share: float, seed: str) -> Disturb:
    """Each packet is lost with this probability."""
    random = Random(seed)
    return lambda packets: [one for one in packets if random.random() >= share]


@pytest.mark.parametrize(
    ("name", "share", "seed", "detector"),
    [
        ("java-group-classic", 0.01, 1, "lost-members"),
        ("java-transactions", 0.33, 0, "wrong-protocol"),
        ("kraft-three-brokers", 0.33, 0, "unreached-listeners"),
        ("kraft-three-brokers", 0.33, 1, "late-answers"),
        ("kraft-three-brokers", 0.33, 1, "unanswered-requests"),
    ],
)
def test_what_was_lost_is_no_trouble(tmp_path: Path, name: str, share: float, seed: int, detector: str) -> None:
    path = disturbed(f"{name}.pcap", tmp_path / "a.pcap", lossy(share, f"{name}:{seed}"))
    found = run([path], only=[detector, "undecoded-traffic"]).findings
    assert {one.detector for one in found if one.severity != "note"} <= {"undecoded-traffic"}
    assert any("bytes missing in the capture" in one.title for one in found)


@pytest.mark.parametrize(
    ("count", "share", "gaps", "severity"),
    [
        (2, 0.0, True, "warning"),
        (2, 0.02, True, "note"),
        # Many messages are hardly lost by chance, nor are all that follow one.
        (5, 0.02, True, "warning"),
        (2, 0.02, False, "warning"),
        (0, 0.33, True, "warning"),
        (5, 0.33, True, "note"),
    ],
)
def test_losses_explain_few_messages(count: int, share: float, gaps: bool, severity: str) -> None:
    evidence = (Evidence(7, 1, 0),)
    title = "a broker answered nothing"
    found = LateAnswers().finding(
        "warning", title, meaning="", advice="", subject={}, count=count, first=0, last=0, evidence=evidence
    )
    assert Losses(share, 1000, frozenset({7} if gaps else {8})).weighed(found, count).severity == severity


@pytest.mark.parametrize("first", [92, 145, 216])
def test_what_came_before_the_capture_excuses_nothing(tmp_path: Path, first: int) -> None:
    path = disturbed("faults/broker-frozen.pcap", tmp_path / "a.pcap", lambda packets: packets[first:])
    (found,) = run([path], only=["late-answers"]).findings
    assert found.severity == "warning"
    assert "answered nothing from 08:08:52.768 to 08:08:56.668" in found.title


HEALTHY = (
    *("aiokafka-codecs", "franz-go", "java-4.4-streams-group", "java-connect", "java-group-consumer"),
    *("java-group-share", "java-transactions", "kraft-quorum"),
)


@pytest.mark.extended
@pytest.mark.parametrize("name", HEALTHY)
def test_disturbances_add_no_trouble(name: str, tmp_path: Path) -> None:
    """One direction, a snap length, a hundredth of the packets lost, a part: at most less that can be decoded."""
    some = Random(name).randrange(2, 8)

    def part(packets: Sequence[Packet]) -> Sequence[Packet]:
        middle = len(packets) * some // 9
        return packets[middle:] if some % 2 else packets[:middle]

    path = ROOT / "captures" / f"{name}.pcap"
    usual = {one.detector for one in run([str(path)]).findings if one.severity != "note"} | {"undecoded-traffic"}
    for disturb in (requests, responses, snapped, lossy(0.01, name), lossy(0.05, name), lossy(0.33, name), part):
        found = run([disturbed(path.name, tmp_path / "a.pcap", disturb)]).findings
        added = [one.title for one in found if one.severity != "note" and one.detector not in usual]
        assert added == [], disturb
