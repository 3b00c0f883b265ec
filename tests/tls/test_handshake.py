"""Hellos and certificates as OpenSSL writes them; and truncated or damaged anywhere."""

from __future__ import annotations

import ssl

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tls import handshake
from kafkasniff.tls.handshake import HandshakeBuffer
from tests.tls.endpoints import Pair, certificate, kafka_talk


def messages(data: bytes) -> list[tuple[int, bytes]]:
    """The handshake messages of a flight's records before the first protected record."""
    found: list[tuple[int, bytes]] = []
    buffer = HandshakeBuffer()
    while data and data[0] == 22:
        end = 5 + int.from_bytes(data[3:5])
        found += buffer.add(data[5:end])
        data = data[end:]
    return found


def hellos(version: ssl.TLSVersion, **options: object) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    talk = Pair(version=version, **options).talk(kafka_talk(0))  # type: ignore[arg-type]
    return messages(talk.flights[0][1]), messages(talk.flights[1][1])


def test_hellos_of_tls_13() -> None:
    client, server = hellos(ssl.TLSVersion.TLSv1_3, alpn=["h2", "http/1.1"])
    assert client[0][0] == handshake.CLIENT_HELLO
    hello = handshake.client_hello(client[0][1])
    assert hello is not None
    assert hello.version == handshake.TLS13
    assert hello.server_name == "broker.example"
    assert hello.alpn == ("h2", "http/1.1")
    assert not hello.early_data
    answer = handshake.server_hello(server[0][1])
    assert answer is not None
    assert (answer.version, answer.suite, answer.retry) == (handshake.TLS13, 0x1302, False)


def test_hellos_of_tls_12() -> None:
    client, server = hellos(ssl.TLSVersion.TLSv1_2, alpn=["kafka"], ciphers="ECDHE-RSA-AES256-SHA384")
    hello = handshake.client_hello(client[0][1])
    assert hello is not None
    assert hello.version == handshake.TLS12
    answer = handshake.server_hello(server[0][1])
    assert answer is not None
    assert (answer.version, answer.suite, answer.alpn) == (handshake.TLS12, 0xC028, "kafka")
    assert answer.encrypt_then_mac
    assert server[1][0] == handshake.CERTIFICATE
    found = handshake.certificate_of(server[1][1])
    assert found is not None
    expected = x509.load_pem_x509_certificate(certificate("rsa")[0].read_bytes())
    assert x509.load_der_x509_certificate(found) == expected


def test_certificates_of_tls_13() -> None:
    listed = b"\0\0\3der\0\0" + b"\0\0\2ca\0\0"  # each with extensions
    body = len(listed).to_bytes(3, "big") + listed
    assert handshake.certificate_of_13(b"\0" + body) == handshake.certificate_of_13(b"\2ab" + body) == b"der"
    assert handshake.certificate_of_13(b"\0\0\0\0") is None


def test_the_random_of_a_retry_is_that_of_the_rfc() -> None:
    # RFC 8446, 4.1.3
    random = bytes.fromhex("CF21AD74E59A6111BE1D8C021E65B891C2A211167ABB8C5E079E09E2C8A8339C")
    body = b"\x03\x03" + random + b"\0" + b"\x13\x01" + b"\0"
    answer = handshake.server_hello(body)
    assert answer is not None
    assert answer.retry


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_cut_anywhere(version: ssl.TLSVersion) -> None:
    for sent in hellos(version, alpn=["kafka"]):
        for _, body in sent:
            for length in range(len(body)):
                handshake.client_hello(body[:length])
                handshake.server_hello(body[:length])
                handshake.encrypted_extensions(body[:length])
                handshake.certificate_of(body[:length])
                handshake.certificate_of_13(body[:length])
    client, _ = hellos(version)
    assert handshake.client_hello(client[0][1][:-1]) is None
    assert handshake.client_hello(client[0][1][:20]) is None


@given(st.binary(max_size=200))
def test_garbage_never_raises(data: bytes) -> None:
    handshake.client_hello(data)
    handshake.server_hello(data)
    handshake.encrypted_extensions(data)
    handshake.certificate_of(data)
    handshake.certificate_of_13(data)
    list(HandshakeBuffer().add(data))


@given(st.lists(st.integers(1, 9), max_size=20))
def test_messages_span_records(cuts: list[int]) -> None:
    data = b"\x01\0\0\x03abc" + b"\x14\0\0\0" + b"\x0b\0\0\x14" + bytes(20)
    buffer = HandshakeBuffer()
    found, at = [], 0
    for cut in (*cuts, len(data)):
        found += buffer.add(data[at : at + cut])
        at += cut
    assert found == [(1, b"abc"), (20, b""), (11, bytes(20))]


def test_a_message_above_the_bound_is_skipped() -> None:
    buffer = HandshakeBuffer()
    assert list(buffer.add(b"\x0b\xff\xff\xff" + bytes(100))) == [(11, b"")]
