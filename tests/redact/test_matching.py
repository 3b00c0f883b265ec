"""Written captures: they decode to the same exchanges, and hold neither payload nor secrets."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from kafkasniff.capture.write import output_files
from kafkasniff.capture.write.capture_writer import commented
from kafkasniff.library import read
from kafkasniff.model import Exchange
from kafkasniff.redact import matching
from tests.capture.timelines import fragments
from tests.choice import DEEP, one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT, shipped_captures
from tests.craft import damage, disturb, intrude
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import START_NS, Conversation
from tests.craft.packet import Packet, checksum
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes, pcapng_bytes, write_pcap
from tests.redact.blanked import connections, lines, without_blanked, write
from tests.redact.test_payload import records
from tests.secret_traffic import TEXTS, capture, cases, found_in

CAPTURES = (
    *("java-0.9.pcap", "java-internal-topics.pcap", "kraft-2.8.pcap", "librdkafka-codecs.pcap"),
    *("librdkafka-ipv6-ns.pcapng", "librdkafka-schemas.pcap", "librdkafka-snaplen-128.pcap", "old-raw-sasl.pcap"),
)
"""One example of each kind; deep runs have all captures."""
ALL = [path.name for path in shipped_captures()] if DEEP else one_in(2, CAPTURES)
SAID_LESS = {"kraft-two-brokers.pcap", "kraft-three-brokers.pcap", "kraft-quorum.pcap"}
"""Records of the metadata log that hold a secret are blank there, and say nothing any more."""


@pytest.mark.parametrize("name", ALL)
def test_it_decodes_to_the_same_exchanges(name: str, tmp_path: Path) -> None:
    path, out = ROOT / "captures" / name, tmp_path / "blank.pcapng"
    done = kafkasniff("decode", "-q", "--no-payload", "--write-matching", out, path)
    assert (done.code, done.out, done.err) == (0, b"", "")
    reported = [without_blanked(line) for line in lines(out)]
    expected = [without_blanked(line) for line in lines(path)]
    if name in SAID_LESS:
        assert len(reported) == len(expected)
        return
    assert reported == expected


def payloads(path: Path) -> frozenset[bytes]:
    """Keys, values and header values of a capture that are long enough to differ from other text."""
    found: set[bytes] = set()
    for exchange in read([str(path)]):
        assert isinstance(exchange, Exchange)
        for message in (exchange.request, exchange.response):
            for record in records(None if message is None else message.body):
                values = [record["key"], record["value"], *(one["value"] for one in record.get("headers") or ())]
                found |= {value for value in values if isinstance(value, bytes) and len(value) > 8}
    assert found
    return frozenset(found)


@pytest.mark.parametrize("name", ["java-codecs.pcap", "kafkajs.pcap", "old-message-formats.pcap"])
def test_it_holds_no_payload(name: str, tmp_path: Path) -> None:
    path, out = ROOT / "captures" / name, tmp_path / "blank.pcapng"
    payload = {one for one in payloads(path) if len(set(one)) > 4}
    assert any(one in path.read_bytes() for one in payload)
    write(path, out)
    data = out.read_bytes()
    assert [one for one in payload if one in data] == []


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> list[Packet]:
    return capture()


DISTURBED: dict[str, Callable[[Sequence[Packet], Random], list[Packet]]] = {
    "as it is": lambda packets, _: list(packets),
    "retransmitted": disturb.retransmitted,
    "reordered": disturb.reordered,
    "resegmented": disturb.resegmented,
    "overlapped": disturb.overlapped,
    "duplicated": disturb.duplicated,
    "without handshake": disturb.without_handshake,
    "lossy": damage.lossy,
    "one side": damage.responses_only,
    "snapped": damage.snapped,
    "cut": damage.cut,
    "conflicting": intrude.conflicting,
    "out of window": intrude.out_of_window,
}


@pytest.mark.parametrize(
    ("name", "payload"),
    one_in(
        2, [*((name, True) for name in DISTURBED), *((name, False) for name in ("as it is", "conflicting", "lossy"))]
    ),
)
def test_it_holds_no_secret(secrets: list[Packet], name: str, payload: bool, tmp_path: Path) -> None:
    packets = DISTURBED[name](secrets, Random(5))
    path, out = write_pcap(tmp_path / "in.pcap", packets, nanoseconds=True), tmp_path / "out.pcap"
    write(path, out, payload=payload)
    assert found_in(out.read_bytes()) == set()
    with_secrets = tmp_path / "shown.pcap"
    if name == "as it is" and payload:
        write(path, with_secrets, secrets=True, payload=True)
        assert with_secrets.read_bytes() == path.read_bytes()
        assert found_in(path.read_bytes()) == set(TEXTS)


def test_comments_hold_no_secret(secrets: list[Packet], tmp_path: Path) -> None:
    """Not even with `--show-secrets`, where the packets do."""
    path, blank, shown = write_pcap(tmp_path / "in.pcap", secrets), tmp_path / "blank.pcapng", tmp_path / "shown.pcapng"
    assert kafkasniff("decode", "-q", "-w", blank, path).code == 0
    assert found_in(blank.read_bytes()) == set()
    assert kafkasniff("decode", "-q", "--show-secrets", "-w", shown, path).code == 0
    comments: list[bytes] = []
    with shown.open("rb") as file:
        for _ in commented(file, lambda _, __, options: comments.append(options)):
            pass
    assert sum(map(bool, comments)) > 10
    assert found_in(b"".join(comments)) == set()


def test_it_holds_no_secret_that_is_read_as_a_tag_of_the_header(tmp_path: Path) -> None:
    """As `test_secrets` has it for output: a damaged count of tagged fields makes the body a part of the header."""
    (case,) = [case for case in cases() if case.name == "token expired v2"]
    damaged = bytearray(case.request)
    assert damaged[14:22] == b"crafted\0"
    damaged[21] = 1
    made = Conversation()
    made.handshake()
    for correlation_id in range(3):
        made.exchange(kafka.api_versions_request(correlation_id), kafka.api_versions_response(correlation_id))
    made.send("client", bytes(damaged))
    path, out = write_pcap(tmp_path / "in.pcap", made.packets, nanoseconds=True), tmp_path / "out.pcap"
    assert found_in(path.read_bytes()) == case.secrets
    for payload in (True, False):
        write(path, out, payload=payload)
        # The names in the header stay, so the message was written.
        assert b"crafted" in out.read_bytes()
        assert found_in(out.read_bytes()) == set()


@pytest.mark.parametrize("name", one_in(3, [name for name in DISTURBED if name not in {"as it is", "snapped", "cut"}]))
def test_disturbed_packets_decode_to_the_same(name: str, tmp_path: Path) -> None:
    packets = DISTURBED[name](mixed(), Random(11))
    path, out = write_pcap(tmp_path / "in.pcap", packets, nanoseconds=True), tmp_path / "out.pcapng"
    write(path, out)
    reported = [without_blanked(line) for line in lines(out)]
    assert reported == [without_blanked(line) for line in lines(path)]
    assert reported


def test_the_size_of_batches_makes_no_difference(tmp_path: Path) -> None:
    packets = disturb.duplicated(disturb.resegmented(mixed(), Random(3)), Random(4), share=0.2)
    path = write_pcap(tmp_path / "in.pcap", packets)
    whole, pieces = tmp_path / "whole.pcapng", tmp_path / "pieces.pcapng"
    write(path, whole)
    write(path, pieces, chunk_size=900)
    assert whole.read_bytes() == pieces.read_bytes()


# -- which packets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["java-internal-topics.pcap", "kraft-two-brokers.pcap"])
def test_packets_on_the_disk_are_changed_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outs = [tmp_path / "before.pcap", tmp_path / "after.pcap"]
    for kept, out in zip((output_files.KEPT, 0), outs, strict=True):
        monkeypatch.setattr(output_files, "KEPT", kept)
        write(ROOT / "captures" / name, out, chunk_size=4096)
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_connections_that_follow_each_other_on_the_same_ports(tmp_path: Path) -> None:
    packets = disturb.reused(mixed(), Random(7))
    path = write_pcap(tmp_path / "in.pcap", packets, nanoseconds=True)
    every = [one for one in connections(path) if one.verdict == "kafka"]
    assert len({(one.client, one.broker) for one in every}) * 2 == len(every)
    for half in (every[: len(every) // 2], every[len(every) // 2 :]):
        out = tmp_path / "out.pcapng"
        written = write(path, out, only=half)
        assert written.connections == len(half)
        ends = {str(one.client) for one in half}
        times = {one.time_ns // 60_000_000_000 for one in half}
        assert written.packets == len(
            [
                packet
                for packet in packets
                if ends & {f"{packet.src}:{packet.sport}", f"{packet.dst}:{packet.dport}"}
                and packet.time_ns // 60_000_000_000 in times
            ]
        )
        assert {one.connection_id for one in connections(out)} == {one.connection_id for one in half}


@pytest.mark.parametrize("chunk_size", [150, 1 << 20])
def test_a_connection_that_takes_over_the_ports_of_an_open_one(chunk_size: int, tmp_path: Path) -> None:
    first, second = Conversation(), Conversation(isn=(0x2000_0000, 0x5000_0000), start_ns=START_NS + 10**9)
    for number, talk in enumerate((first, second)):
        talk.handshake()
        talk.exchange(kafka.api_versions_request(number, 3), kafka.api_versions_response(number, 3))
    # A copy after the other's SYN, and before anybody answers that.
    late = next(packet for packet in first.packets if packet.payload and packet.sport == 9092)
    late = late.but(time_ns=second.packets[0].time_ns + 10)
    packets = [*first.packets, second.packets[0], late, *second.packets[1:]]
    path, out = write_pcap(tmp_path / "in.pcap", packets, nanoseconds=True), tmp_path / "out.pcap"
    one, other = connections(path)
    for wanted, expected in ((one, [*first.packets, second.packets[0], late]), (other, second.packets)):
        assert write(path, out, only=[wanted], chunk_size=chunk_size).packets == len(expected)
        times = [int.from_bytes(packet[4:6]) for packet in written_packets(out)]
        assert times == [packet.ident for packet in expected]
        assert connections(out)[0].connection_id == wanted.connection_id


@pytest.mark.parametrize("distance", [1, 100, 120])
def test_a_copy_is_shown_as_long_as_its_bytes_are_remembered(distance: int, tmp_path: Path) -> None:
    """Whatever the batches are."""
    talk = Conversation()
    talk.handshake()
    talk.exchange(kafka.api_versions_request(0, 3), kafka.api_versions_response(0, 3))
    (sent, *_) = talk.send("client", kafka.metadata_request(1, ["a-topic-that-is-shown"]))
    talk.send("broker", kafka.metadata_response(1, "broker", 9092, ["orders"]))
    for number in range(distance):
        topics = [f"{number}-{index}-{'x' * 90}" for index in range(11)]
        talk.exchange(
            kafka.metadata_request(2 + number, topics), kafka.metadata_response(2 + number, "broker", 9092, [])
        )
    talk.packets.append(sent.but(time_ns=talk.time_ns, payload=b"?" * len(sent.payload)))
    path = write_pcap(tmp_path / "in.pcap", talk.packets, nanoseconds=True)
    for chunk_size in (2_000, 1 << 20):
        out = tmp_path / f"{chunk_size}.pcap"
        write(path, out, chunk_size=chunk_size)
        *_, last = written_packets(out)
        assert (sent.payload in last) == (distance < 120)
        assert b"???" not in last


def test_several_interfaces_need_pcapng(tmp_path: Path) -> None:
    from kafkasniff.errors import OutputError

    path, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    path.write_bytes(pcapng_bytes(mixed(), ("ethernet", "sll2"), sections=2))
    write(path, out)
    assert [without_blanked(line) for line in lines(out)] == [without_blanked(line) for line in lines(path)]
    with pytest.raises(OutputError, match="pcap has one link type"):
        write(path, tmp_path / "out.pcap")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in.pcapng", "out.pcapng"]


# -- bytes -------------------------------------------------------------------------------------------------------------


def written_packets(path: Path) -> Iterator[bytes]:
    """Packets of a pcap with nanoseconds, from the IP header on (Ethernet)."""
    data, at = path.read_bytes(), 24
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        yield data[at + 16 + 14 : at + 16 + size]
        at += 16 + size


def test_checksums_are_right(tmp_path: Path) -> None:
    packets = disturb.resegmented(mixed(), Random(2))
    out = tmp_path / "out.pcap"
    write(write_pcap(tmp_path / "in.pcap", packets), out, chunk_size=2_000)
    count = 0
    for packet in written_packets(out):
        tcp = packet[20:]
        assert checksum(packet[12:20] + struct.pack(">HH", 6, len(tcp)) + tcp) == 0
        count += len(tcp) > 20
    assert count > 50


def test_other_bytes_than_messages_are_blank(tmp_path: Path) -> None:
    noise = Random(1).randbytes(300)
    talk = Conversation()
    talk.handshake()
    talk.exchange(kafka.api_versions_request(1, 3), kafka.api_versions_response(1, 3))
    talk.send("client", b"\xff\xff\xff\xff" + noise)
    talk.exchange(kafka.metadata_request(2, ["orders"]), kafka.metadata_response(2, "broker", 9092, ["orders"]))
    talk.send("broker", kafka.frame(struct.pack(">i", 77) + noise))
    talk.send("client", kafka.metadata_request(3, ["orders"])[:20] + noise[:3])
    talk.close()
    path, out = write_pcap(tmp_path / "in.pcap", talk.packets), tmp_path / "out.pcap"
    write(path, out)
    data = out.read_bytes()
    assert not [at for at in range(0, 296) if noise[at : at + 4] in data]
    assert [without_blanked(line) for line in lines(out)] == [without_blanked(line) for line in lines(path)]


def test_connections_with_too_much_memory_are_given_up(
    secrets: list[Packet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "MAX_BUFFERED", 40)
    monkeypatch.setattr(matching, "LOOK_BYTES", 1)
    packets = disturb.resegmented(secrets, Random(3))
    path, out = write_pcap(tmp_path / "in.pcap", packets), tmp_path / "out.pcap"
    written = write(path, out, payload=True, chunk_size=600)
    assert written.given_up > 0
    assert found_in(out.read_bytes()) == set()
    assert len(lines(out)) > 10


def test_fragments_are_dropped_and_reported(tmp_path: Path) -> None:
    talk = Conversation()
    talk.handshake()
    talk.exchange(kafka.api_versions_request(1, 3), kafka.api_versions_response(1, 3))
    talk.close()
    data = pcap_bytes(talk.packets)
    # The request's packet in two fragments.
    records, at = [], 24
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        records.append((data[at : at + 8], data[at + 16 : at + 16 + size]))
        at += 16 + size
    time, packet = records[3]
    records[3:4] = [(time, packet[:14] + part) for part in fragments(packet[14:], 48, 7)]
    path, out = tmp_path / "in.pcap", tmp_path / "out.pcap"
    path.write_bytes(data[:24] + b"".join(time + struct.pack("<II", len(one), len(one)) + one for time, one in records))
    written = write(path, out)
    assert (written.fragments, written.packets) == (1, len(talk.packets) - 1)
    assert b"craft" not in out.read_bytes()
    whole = write(path, out, payload=True, secrets=True)
    assert (whole.fragments, whole.packets) == (0, len(records))
    assert [without_blanked(line) for line in lines(out)] == [without_blanked(line) for line in lines(path)]
