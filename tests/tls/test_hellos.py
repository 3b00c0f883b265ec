"""Hellos, suites and certificates as OpenSSL has them; and truncated or damaged anywhere."""

from __future__ import annotations

import ssl
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tls import handshake
from kafkasniff.tls.certificates import shown_certificate
from kafkasniff.tls.ciphers import suite
from kafkasniff.tls.handshake import HandshakeBuffer
from tests.analysis.security.test_view import seen
from tests.conftest import ROOT
from tests.tls.endpoints import Pair, kafka_talk


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


def offered() -> dict[int, dict[str, object]]:
    """OpenSSL's suites by code, with OpenSSL's facts about them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    return {cipher["id"] & 0xFFFF: dict(cipher) for cipher in context.get_ciphers()}


# OpenSSL's names: mode and bits of the key.
MODES = {
    "aes-128-gcm": ("gcm", 16),
    "aes-256-gcm": ("gcm", 32),
    "aes-128-ccm": ("ccm", 16),
    "aes-256-ccm": ("ccm", 32),
    "aes-128-cbc": ("cbc", 16),
    "aes-256-cbc": ("cbc", 32),
    "chacha20-poly1305": ("chacha20", 32),
}


def test_suites_are_what_openssl_says() -> None:
    compared = 0
    for code, facts in offered().items():
        symmetric, found = str(facts["symmetric"]).lower(), suite(code)
        if symmetric not in MODES:
            assert found is None, facts["name"]  # Camellia, ARIA and the like
            continue
        assert found is not None, f"{facts['name']} 0x{code:04x}"
        assert (found.mode, found.key_length) == MODES[symmetric], facts["name"]
        assert found.tls13 == (facts["protocol"] == "TLSv1.3"), facts["name"]
        if found.mode == "cbc":
            assert found.mac == str(facts["digest"]).lower(), facts["name"]
        compared += 1
    assert compared > 30


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x03\x02\x01\x00", b"x" * 1000])
def test_what_is_no_certificate(data: bytes) -> None:
    assert shown_certificate(data, None, None) is None


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ImportError):
        shown_certificate(b"", None, None)
    view = seen(ROOT / "captures" / "tls" / "tls12-kafka-python.pcapng")
    assert all(one.transport.certificate is None for one in view.identities())
    assert any("kafkasniff[tls]" in note for note in view.notes())
