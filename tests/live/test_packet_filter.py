"""Files with exactly the packets of Kafka connections, which decode to the same messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.capture.live.live import LiveSource
from kafkasniff.capture.write.output_files import CaptureFiles, Rotation
from kafkasniff.engine.inspector import Inspector
from kafkasniff.live import packet_filter
from kafkasniff.live.packet_filter import Keeper
from kafkasniff.model import Message, Problem, SaslToken
from tests.capture.fake_interface import Captured, FakeInterface, captured
from tests.choice import in_turn
from tests.craft.conversation import START_NS, Conversation, interleaved
from tests.craft.packet import Packet
from tests.craft.samples import bystander, mixed, producer
from tests.craft.write import LINKS, link_bytes


def frames_of(packets: Sequence[Packet]) -> list[Captured]:
    return [(*link_bytes(packet, LINKS["ethernet"]), packet.time_ns) for packet in packets]


def said(events: list[Any]) -> list[Any]:
    """Messages, tokens and problems, without the numbers that count across a capture."""
    found = []
    for event in events:
        if isinstance(event, Message | SaslToken | Problem):
            reported = msgspec.structs.asdict(event)
            for name in ("connection", "exchange", "first_packet", "last_packet", "packet", "capture"):
                reported.pop(name, None)
            found.append(reported)
    return found


def keep(
    packets: list[Captured], path: Path, *, blocks: Sequence[int] = (7,), every: bool = False, **options: Any
) -> tuple[list[Any], Keeper]:
    """Output of a live capture of these packets that keeps those of Kafka."""
    inspector = Inspector(exchanges=False, **options)
    events: list[Any] = []
    with (
        patch("kafkasniff.capture.live.live.JOIN_BYTES", 0),
        LiveSource([FakeInterface("eth0", 0, packets, blocks)]) as source,
    ):
        files = CaptureFiles(str(path), source.interfaces, Rotation(), counts=source.counts, failed=pytest.fail)
        keeper = Keeper(files, None if every else inspector)
        source.stop()
        for batch in source:
            events += inspector.feed(batch)
            keeper.take(source.frames, source.fragments, batch)
        events += inspector.close()
        keeper.close()
        keeper.close()
    return events, keeper


def decoded(path: Path, **options: Any) -> list[Any]:
    inspector = Inspector(exchanges=False, **options)
    with open_captures([path]) as source:
        events = [event for batch in source for event in inspector.feed(batch)]
        assert not source.broken
    return events + inspector.close()


@pytest.mark.parametrize(("blocks", "every"), in_turn([(1,), (2, 1), (7,), (10_000,)], [False, True], 2), ids=str)
def test_the_file_decodes_to_the_live_output(blocks: Sequence[int], every: bool, tmp_path: Path) -> None:
    packets = frames_of(mixed())
    live, keeper = keep(packets, tmp_path / "x", blocks=blocks, every=every)
    assert len(said(live)) >= 46
    assert said(decoded(tmp_path / "x")) == said(live)
    kept = captured(tmp_path / "x")
    strangers = {packet[0] for packet in frames_of(bystander(start_ns=START_NS + 66_000).packets)}
    assert strangers
    assert ({packet[0] for packet in kept} & strangers == set()) != every
    assert sorted(kept) == sorted(packet for packet in packets if every or packet[0] not in strangers)
    assert keeper.files.packets == len(kept)


def test_waiting_packets_are_bounded_and_missing_ones_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends its first request late, among connections with nothing to judge by."""
    monkeypatch.setattr(packet_filter, "MAX_WAITING_BYTES", 5_000)
    late = producer(start_ns=START_NS)
    silent = []
    for number in range(40):
        talk = Conversation(("10.0.1.5", 40_000 + number), ("10.0.0.80", 22), start_ns=START_NS + 1_000)
        talk.handshake()
        silent += talk.packets
    packets = frames_of([*late.packets[:3], *silent, *late.packets[3:]])
    live, keeper = keep(packets, tmp_path / "x", blocks=(1,))
    assert keeper.missing == 3
    kept = captured(tmp_path / "x")
    assert sorted(kept) == sorted(frames_of(late.packets[3:]))
    messages = [event for event in live if isinstance(event, Message)]
    assert len([event for event in decoded(tmp_path / "x") if isinstance(event, Message)]) == len(messages)


def test_fragments_are_kept(tmp_path: Path) -> None:
    from scapy.layers.inet import IP, TCP, fragment
    from scapy.layers.l2 import Ether

    frames: list[Captured] = []
    for packet in interleaved([producer(), bystander(start_ns=START_NS + 5)]):
        data, wire = link_bytes(packet, LINKS["ethernet"])
        if len(packet.payload) < 200:
            frames.append((data, wire, packet.time_ns))
            continue
        whole = Ether(data)
        whole[IP].id = len(frames) + 1
        del whole[IP].chksum
        assert TCP in whole
        frames.extend((bytes(part), len(part), packet.time_ns) for part in fragment(whole, fragsize=160))
    assert len(frames) > len(producer().packets) + len(bystander().packets)
    for blocks in ((1,), (5,), (1_000,)):
        live, _ = keep(frames, tmp_path / "x", blocks=blocks)
        assert said(decoded(tmp_path / "x")) == said(live)
        assert sum(isinstance(event, Message) for event in live) == 29
