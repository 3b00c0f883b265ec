"""The table of cipher suites, compared with OpenSSL's own."""

from __future__ import annotations

import ssl

import pytest

from kafkasniff.tls.ciphers import Suite, suite


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


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0x1301, Suite("TLS_AES_128_GCM_SHA256", "gcm", 16, 16, "sha256", "", True)),
        (0x1302, Suite("TLS_AES_256_GCM_SHA384", "gcm", 32, 16, "sha384", "", True)),
        (0x1305, Suite("TLS_AES_128_CCM_8_SHA256", "ccm", 16, 8, "sha256", "", True)),
        (0xC02F, Suite("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "gcm", 16, 16, "sha256", "", False)),
        (0x002F, Suite("TLS_RSA_WITH_AES_128_CBC_SHA", "cbc", 16, 20, "sha256", "sha1", False)),
        (0xC028, Suite("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "cbc", 32, 48, "sha384", "sha384", False)),
        (0xC0AC, Suite("TLS_ECDHE_ECDSA_WITH_AES_128_CCM", "ccm", 16, 16, "sha256", "", False)),
    ],
)
def test_suites_from_the_registry(code: int, expected: Suite) -> None:
    assert suite(code) == expected


def test_other_suites_are_unknown() -> None:
    for code in (0x0000, 0x0005, 0x000A, 0x00FF, 0x5600, 0xC03C):
        assert suite(code) is None
