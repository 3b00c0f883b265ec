"""Failed handshakes without keys: their end on the wire, and ends that only look similar."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.tables.checkpoint import dump, load
from kafkasniff.tls import descriptions, failing
from tests.choice import fewer
from tests.conftest import ROOT
from tests.craft.conversation import Conversation, Side
from tests.craft.outcome import packets_outcome
from tests.craft.packet import Packet
from tests.tls.endpoints import Flight, Pair, kafka_talk

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
FINISHED = 69
"""Size of an encrypted Finished with SHA-384."""
SECOND = 1_000_000_000


def record(size: int) -> bytes:
    """An encrypted record of TLS 1.3."""
    return b"\x17\3\3" + size.to_bytes(2) + bytes(size)


def hellos(version: ssl.TLSVersion = V13) -> tuple[Flight, Flight]:
    first, second = Pair(version=version).talk(kafka_talk()).flights[:2]
    return first, second


def ended(*flights: Flight, by: Side = "client") -> list[Packet]:
    conversation = Conversation(client=("10.0.0.5", 51_334), broker=("10.0.0.9", 9093))
    conversation.handshake()
    for side, data in flights:
        conversation.send(side, data)
    conversation.close(by)
    return conversation.packets


def reason(packets: list[Packet]) -> str:
    (line,) = packets_outcome(packets).lines
    assert line["kind"] == "tls-not-decrypted"
    return str(line["detail"]).partition("(TLS 1.3); ")[2]


@pytest.mark.parametrize("size", [11, 19, 27, 35])
def test_a_client_that_answers_with_an_alert(size: int) -> None:
    """With the tags of all suites, with and without the padding that Java adds."""
    assert reason(ended(*hellos(), ("client", record(size)))) == failing.CLIENT_REFUSED


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ([FINISHED], False),
        ([1_000, FINISHED], False),
        ([25, FINISHED], True),
        ([41, 85], True),
        ([93], True),
        ([77, 82], True),
    ],
)
def test_a_server_that_answers_with_an_alert(said: list[int], shown: bool) -> None:
    """`shown`: the client's Certificate is as short as an empty one, alone or with its Finished."""
    flights: list[Flight] = [("client", record(size)) for size in said]
    for answers, expected in (([("broker", record(19))], failing.SERVER_REFUSED), ([], failing.SERVER_LEFT)):
        detail = reason(ended(*hellos(), *flights, *answers, by="broker"))
        assert detail == (f"{expected}; {failing.NO_CLIENT_CERTIFICATE}" if shown else expected)


def test_a_server_that_sends_close_notify_to_a_client_that_left() -> None:
    """Its close_notify is as short as any alert, and comes after the client's FIN."""
    packets = ended(*hellos(), ("client", record(FINISHED)))
    assert reason(packets) == failing.LEFT_AT_ONCE


def test_a_handshake_that_worked() -> None:
    """The server's tickets or data prove it, whatever follows."""
    for answer in (record(255), record(40)):
        detail = reason(ended(*hellos(), ("client", record(FINISHED)), ("broker", answer), ("broker", record(19))))
        assert detail == "there are no keys for it (--keylog FILE)"


@pytest.mark.parametrize("version", [V12, V13])
def test_a_client_that_leaves_without_an_alert(version: ssl.TLSVersion) -> None:
    (line,) = packets_outcome(ended(*hellos(version))).lines
    assert line["detail"].endswith(f"; {failing.CLIENT_LEFT}")
    (line,) = packets_outcome(ended(*hellos(version), by="broker")).lines
    assert "without an alert" not in line["detail"]


def test_missing_packets_prove_nothing() -> None:
    packets = ended(*hellos(), ("client", record(19)))
    del packets[next(place for place, one in enumerate(packets) if one.sport == 9093 and one.payload)]
    assert failing.CLIENT_REFUSED not in " ".join(line["detail"] for line in packets_outcome(packets).lines)


def run(capture: Path, *, every: int = 0) -> list[object]:
    """An inspector's output packet by packet; after every `every` packets, another inspector resumes from its state."""
    inspector = Inspector()
    events: list[object] = []
    with open_captures([str(capture)]) as source:
        for batch in source:
            rest, fed = batch, 0
            while len(rest) > 1:
                part, rest = rest.split(1)
                events += inspector.feed(part)
                fed += 1
                if every and fed % every == 0:
                    inspector = load(dump(inspector), Inspector)
            events += inspector.feed(rest)
    return events + inspector.close()


@pytest.mark.parametrize("name", ["tls-no-client-certificate", "tls-works", "tls-client-killed"])
def test_batches_and_states_change_nothing(name: str) -> None:
    """Handshakes of real clients and brokers that failed, worked and were abandoned."""
    capture = ROOT / "captures" / "faults" / f"{name}.pcap"
    inspector = Inspector()
    with open_captures([str(capture)]) as source:
        whole = [event for batch in source for event in inspector.feed(batch)]
    whole += inspector.close()
    assert run(capture) == whole
    assert run(capture, every=fewer(3, 1)) == whole


def certificate(*names: str, end: datetime.datetime = datetime.datetime(2030, 1, 1)) -> bytes:
    """A certificate that is valid from 2026."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(datetime.datetime(2026, 1, 1)).not_valid_after(end)
    if names:
        held = x509.SubjectAlternativeName([x509.DNSName(one) for one in names])
        builder = builder.add_extension(held, critical=False)
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


def seconds(year: int) -> int:
    return int(datetime.datetime(year, 6, 1, tzinfo=datetime.UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("names", "asked", "year", "expected"),
    [
        (["a.example"], "a.example", 2027, "certificate of CN=broker"),
        (["*.example"], "A.example", 2027, "certificate of CN=broker"),
        ([], "a.example", 2027, "certificate of CN=broker"),
        (["a.example"], None, 2027, "certificate of CN=broker"),
        (["a.example"], "a.example", 2031, "certificate of CN=broker; expired on 2030-01-01"),
        (["a.example"], "a.example", 2025, "certificate of CN=broker; not valid before 2026-01-01"),
        (
            ["*.example", "c.example"],
            "a.b.example",
            2027,
            "certificate of CN=broker; not for this server name but for *.example, c.example",
        ),
    ],
)
def test_flaws_of_a_certificate(names: list[str], asked: str | None, year: int, expected: str) -> None:
    assert descriptions._certificate(certificate(*names), asked, seconds(year)) == expected
