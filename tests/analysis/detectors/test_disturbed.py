"""Captures that lost packets, or parts of them: missing data is not reported as trouble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kafkasniff.analysis.detectors import run
from tests.conftest import ROOT
from tests.craft.packet import Packet
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


def from_the_middle(packets: Sequence[Packet]) -> Sequence[Packet]:
    """The capture begins later."""
    return packets[len(packets) * 2 // 9 :]


def test_connections_on_which_nothing_was_seen_may_be_idle(tmp_path: Path) -> None:
    path = disturbed("faults/connections-idle.pcap", tmp_path / "a.pcap", from_the_middle)
    assert not run([path], only=["broker-gone"]).findings


@pytest.mark.parametrize(
    ("name", "disturb", "detector"),
    [
        ("java-2.4.pcap", thinned, "offsets-out-of-range"),
        ("java-connect.pcap", snapped, "metadata-storms"),
        ("java-streams-classic.pcap", thinned, "late-answers"),
        ("librdkafka-sasl.pcap", snapped, "unanswered-requests"),
    ],
)
def test_what_is_missing_is_no_trouble(tmp_path: Path, name: str, disturb: Disturb, detector: str) -> None:
    found = run([disturbed(name, tmp_path / name, disturb)], only=[detector])
    assert found.visible.share is None or found.visible.share < 0.95, "nothing is missing"
    assert [one for one in found.findings if one.severity != "note"] == []


@pytest.mark.parametrize("first", [92, 145, 216])
def test_what_came_before_the_capture_excuses_nothing(tmp_path: Path, first: int) -> None:
    path = disturbed("faults/broker-frozen.pcap", tmp_path / "a.pcap", lambda packets: packets[first:])
    (found,) = run([path], only=["late-answers"]).findings
    assert found.severity == "warning"
    assert "answered nothing from 08:08:52.768 to 08:08:56.668" in found.title


def test_an_offset_of_a_topic_whose_name_is_not_captured(tmp_path: Path) -> None:
    """ListOffsets names it, Fetch does not."""
    path = disturbed("faults/offset-beyond-end.pcap", tmp_path / "a.pcap", lambda some: some[len(some) * 4 // 9 :])
    (one,) = run([path], only=["offsets-out-of-range"]).findings
    assert one.severity == "note"
    assert "it continued at 100" in one.title


def test_batches_that_are_cut_off_may_have_been_sent_again(tmp_path: Path) -> None:
    path = disturbed("faults/batch-split.pcap", tmp_path / "a.pcap", snapped)
    (one,) = run([path], only=["oversized-messages"]).findings
    assert (one.severity, one.values["unknown"]) == ("warning", one.count)
    assert "largest" not in one.title
