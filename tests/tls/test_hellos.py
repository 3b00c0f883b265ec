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
from tests.analysis.test_security import seen
from tests.conftest import ROOT


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


def test_messages_that_are_cut() -> None:
    assert handshake.certificate_of_13(b"\0\0\0\x0a\0\0\3der\0\0" + bytes(2)) == b"der"
    for read in (handshake.client_hello, handshake.server_hello, handshake.certificate_of_13):
        assert read(b"\1") is None
    assert handshake.encrypted_extensions(b"\1") == (None, False)


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
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ImportError):
        shown_certificate(b"", None, None)
    view = seen(ROOT / "captures" / "tls" / "tls12-kafka-python.pcapng")
    assert all(one.transport.certificate is None for one in view.identities())
    assert any("kafkasniff[tls]" in note for note in view.notes())
