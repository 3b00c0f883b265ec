"""Reports about TLS that cannot be read, and failed handshakes: one problem, with the visible facts."""

from __future__ import annotations

import datetime
import ssl
import sys
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from kafkasniff.tls import descriptions
from kafkasniff.tls.negotiation import MAX_FLIGHT
from tests.craft.conversation import Conversation, Side
from tests.craft.outcome import Line, packets_outcome
from tests.craft.packet import Packet
from tests.tls.endpoints import Flight, Pair, Talk, kafka_talk, packets_of
from tests.tls.reading import decrypted

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def problem(packets: list[Packet], log: bytes | None = None, **options: Any) -> Line:
    found = packets_outcome(packets, **options) if log is None else decrypted(packets, log, **options)
    (line,) = found.lines
    assert line["type"] == "problem"
    assert line["connection"] == 1
    return line


def talk(version: ssl.TLSVersion = V13, **options: Any) -> Talk:
    return Pair(version=version, **options).talk(kafka_talk())


def test_tls_13_without_keys() -> None:
    line = problem(packets_of(talk().flights))
    assert line["kind"] == "tls-not-decrypted"
    assert line["detail"] == (
        "the connection between 10.0.0.5:51334 and 10.0.0.9:9093: this is TLS 1.3 with TLS_AES_256_GCM_SHA384, "
        "server name broker.example, no ALPN, certificate not visible (TLS 1.3); "
        "there are no keys for it (--keylog FILE)"
    )
    # Reported with the server's first data after the client's part of the handshake: then the handshake has worked.
    assert line["packet"] == 10


def reversed_secrets(log: bytes) -> bytes:
    lines = (line.split() for line in log.splitlines())
    return b"".join(b" ".join((*words[:2], words[2][::-1])) + b"\n" for words in lines)


@pytest.mark.parametrize("version", [V12, V13])
def test_keys_that_do_not_fit(version: ssl.TLSVersion) -> None:
    made = talk(version)
    packets = packets_of(made.flights)
    line = problem(packets, reversed_secrets(made.key_log))
    assert line["kind"] == "tls-not-decrypted"
    assert line["detail"].endswith("the available keys do not match it")
    assert problem(packets, talk(version).key_log)["detail"].endswith("there are keys, but none for it")


def test_without_the_package_that_decrypts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = talk(V12)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    detail = problem(packets_of(made.flights), made.key_log)["detail"]
    assert detail.endswith("decryption needs the package cryptography: install kafkasniff[tls]")
    assert "certificate not read (pip install 'kafkasniff[tls]')" in detail


def test_an_invalid_certificate() -> None:
    made = talk(V12)
    server = bytearray(made.flights[1][1])
    at = server.index(b"\x0b\0", 60) + 10  # within the first certificate
    server[at : at + 40] = bytes(40)
    flights: list[Flight] = [made.flights[0], ("broker", bytes(server)), *made.flights[2:]]
    assert "certificate of an unreadable subject" in problem(packets_of(flights))["detail"]


def test_other_protocols_are_reported_on_kafka_s_ports_only() -> None:
    made = Pair(version=V13, alpn=["h2"]).talk([("client", b"PRI * HTTP/2.0"), ("broker", b"\0\0\0\4")])
    packets = packets_of(made.flights)
    assert packets_outcome(packets).lines == []
    assert packets_outcome(packets).summary.not_kafka == 1
    assert "ALPN offered: h2" in problem(packets, ports=[9093])["detail"]
    # Decrypted data that is not Kafka.
    made = Pair(version=V13).talk([("client", b"GET / HTTP/1.1\r\n\r\n"), ("broker", b"HTTP/1.1 200 OK\r\n\r\n")])
    packets = packets_of(made.flights)
    assert decrypted(packets, made.key_log).lines == []
    line = problem(packets, made.key_log, ports=[9093])
    assert line["kind"] == "not-kafka"
    assert "this is HTTP" in line["detail"]


ALERTS: dict[str, tuple[Side, bytes, str]] = {
    "unknown CA": ("client", b"\x15\3\3\0\2\2\x30", "the client ended the handshake with the alert unknown_ca (48)"),
    "bad certificate": (
        *("broker", b"\x15\3\3\0\2\2\x2a"),
        "the other side ended the handshake with the alert bad_certificate (42)",
    ),
    "a listener without TLS": ("broker", b"", "a listener without TLS just closes the connection"),
    "no TLS": ("broker", b"HTTP/1.1 400 Bad Request\r\n", "the answer of the other side is not TLS"),
}


@pytest.mark.parametrize(
    ("version", "flights", "name"),
    [
        (V13, 1, "a listener without TLS"),
        (V13, 1, "no TLS"),
        (V12, 2, "unknown CA"),
        # In TLS 1.3 a client's alert after the hellos is clear, in 1.2 a server's after the client's ChangeCipherSpec.
        (V13, 2, "unknown CA"),
        (V12, 3, "bad certificate"),
    ],
)
def test_handshakes_that_end_early(version: ssl.TLSVersion, flights: int, name: str) -> None:
    """Reported instead of missing keys, even with the keys of others."""
    side, data, ending = ALERTS[name]
    packets = packets_of([*talk(version).flights[:flights], (side, data)])
    for log in (None, talk(version).key_log):
        detail = problem(packets, log)["detail"]
        assert detail.endswith(ending)
        assert "server name broker.example" in detail
        assert version is V13 or "certificate of CN=broker.example" in detail


def test_a_handshake_that_is_captured_in_part() -> None:
    made = talk(V12)
    assert problem(packets_of(made.flights[:3]))["detail"].endswith("there are no keys for it (--keylog FILE)")


def test_the_wait_for_the_other_side_is_bounded() -> None:
    """A client that is silent after a long flight of the server: reported then, not at the connection's end."""
    made = talk()
    record = b"\x17\3\3\x40\0" + bytes(1 << 14)
    flights: list[Flight] = [*made.flights[:2], *(("broker", record) for _ in range(9))]
    packets = packets_of(flights, sizes=len(record))
    line = problem(packets)
    assert line["detail"].endswith("there are no keys for it (--keylog FILE)")
    assert len(made.flights[1][1]) + 4 * len(record) > MAX_FLIGHT
    assert line["packet"] < len(packets) - 2 * 4


def test_a_stream_that_is_captured_from_its_middle() -> None:
    made = Pair(version=V13).talk(kafka_talk(20), ends=False)
    packets = packets_of(made.flights)[12:]
    assert packets_outcome(packets).lines == []
    line = problem(packets, made.key_log, ports=[9093])
    assert line["detail"].endswith("its ClientHello was not captured")


def test_a_handshake_and_nothing_else_is_undecided() -> None:
    made = Pair(version=V13).talk([])
    found = decrypted(packets_of(made.flights), made.key_log)
    assert found.lines == []
    assert found.summary.undecided == 1


def test_bytes_add_up() -> None:
    made = talk()
    summary = decrypted(packets_of(made.flights), made.key_log).summary
    assert summary.bytes_stream == sum(len(data) for _, data in made.flights)
    assert summary.bytes_decoded == sum(len(data) for _, data in made.clear)
    assert summary.bytes_lost == 0
    assert summary.bytes_skipped == summary.bytes_stream - summary.bytes_decoded
    without = packets_outcome(packets_of(made.flights)).summary
    assert (without.bytes_stream, without.bytes_skipped) == (summary.bytes_stream, summary.bytes_stream)


FINISHED = 69
"""Size of an encrypted Finished with SHA-384."""
SECOND = 1_000_000_000


def record(size: int) -> bytes:
    """An encrypted record of TLS 1.3."""
    return b"\x17\3\3" + size.to_bytes(2) + bytes(size)


def hellos(version: ssl.TLSVersion = V13) -> tuple[Flight, Flight]:
    first, second = talk(version).flights[:2]
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
    assert reason(ended(*hellos(), ("client", record(size)))) == descriptions.CLIENT_REFUSED


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        *(([FINISHED], False), ([1_000, FINISHED], False), ([25, FINISHED], True), ([41, 85], True), ([93], True)),
        ([77, 82], True),
    ],
)
def test_a_server_that_answers_with_an_alert(said: list[int], shown: bool) -> None:
    """`shown`: the client's Certificate is as short as an empty one, alone or with its Finished."""
    flights: list[Flight] = [("client", record(size)) for size in said]
    for answers, expected in (([("broker", record(19))], descriptions.SERVER_REFUSED), ([], descriptions.SERVER_LEFT)):
        detail = reason(ended(*hellos(), *flights, *answers, by="broker"))
        assert detail == (f"{expected}; {descriptions.NO_CLIENT_CERTIFICATE}" if shown else expected)


def test_a_handshake_that_worked() -> None:
    """The server's tickets or data prove it, whatever follows."""
    for answer in (record(255), record(40)):
        detail = reason(ended(*hellos(), ("client", record(FINISHED)), ("broker", answer), ("broker", record(19))))
        assert detail == "there are no keys for it (--keylog FILE)"


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
    assert descriptions._certificate_text(certificate(*names), asked, seconds(year)) == expected
