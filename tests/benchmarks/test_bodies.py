from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import bodies
from benchmarks.bodies import bodies_of, equal_share
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation
from tests.craft.outcome import files_outcome
from tests.craft.packet import Packet
from tests.craft.write import write_pcap

CAPTURES = Path(__file__).resolve().parents[2] / "captures"


def talk(topics: list[str]) -> list[Packet]:
    """Heartbeats that are equal, and Metadata of these topics."""
    made = Conversation()
    made.handshake()
    for number, topic in enumerate(topics):
        heartbeat = kafka.string("group") + kafka.int32(1) + kafka.string("member")
        made.exchange(kafka.request(12, 0, 2 * number, heartbeat), kafka.response(2 * number, kafka.int16(0)))
        response = kafka.metadata_response(2 * number + 1, "broker", 9092, [topic])
        made.exchange(kafka.metadata_request(2 * number + 1, [topic]), response)
    made.close()
    return made.packets


@pytest.mark.parametrize("name", ["java-codecs", "java-group-consumer", "librdkafka-codecs", "franz-go", "sarama"])
def test_bodies_are_those_of_the_decoder(name: str) -> None:
    path = CAPTURES / f"{name}.pcap"
    summary = files_outcome([path]).summary
    found = bodies_of(path)
    requests = [body for body in found if body.kind[2]]
    assert (len(requests), len(found) - len(requests)) == (summary.requests, summary.responses)


def test_equal_bodies_are_counted(tmp_path: Path) -> None:
    found = bodies_of(write_pcap(tmp_path / "talk.pcap", talk(["a", "b", "c", "a"])))
    # Three later heartbeats and a repeated Metadata exchange out of 16 messages, each with request and response.
    assert len(found) == 16
    assert equal_share(found) == 8 / 16
    assert equal_share([]) == 0


def test_nothing_is_read_after_a_gap(tmp_path: Path) -> None:
    packets = talk(["a", "b", "c"])
    requests = [packet for packet in packets if packet.payload and packet.dport == 9092]
    packets.remove(requests[2])
    found = bodies_of(write_pcap(tmp_path / "talk.pcap", packets))
    assert [body.kind[:2] for body in found if body.kind[2]] == [(12, 0), (3, 1)]
    # Responses to requests that are not there have no version.
    assert len(found) == 4


def test_a_table_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_pcap(tmp_path / "talk.pcap", talk(["a", "b"]))
    monkeypatch.setattr(sys, "argv", ["bodies", str(path)])
    bodies.main()
    assert "| talk | 8 | 25.0% |" in capsys.readouterr().out
