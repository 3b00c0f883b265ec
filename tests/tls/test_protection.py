"""The decryptor of a stream: which secret of the key log it needs, and why there may be none."""

from __future__ import annotations

import sys

import pytest

from kafkasniff.tls.ciphers import suite
from kafkasniff.tls.decrypt13 import next_secret
from kafkasniff.tls.handshake import TLS12, TLS13
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.protection import (
    Epoch,
    Negotiated,
    Phase,
    ProtectionError,
    later_secret,
    protection,
    secret_of,
    why_not,
)

RANDOM, OTHER, SESSION = b"r" * 32, b"o" * 32, b"i" * 32
GCM12, GCM13 = 0x009C, 0x1301


def agreed(version: int = TLS13, code: int = GCM13, compression: int = 0, session: bytes = b"") -> Negotiated:
    return Negotiated(RANDOM, b"s" * 32, version, code, compression, False, session)


def log(*lines: tuple[str, bytes, bytes]) -> KeyLog:
    text = "".join(f"{label} {random.hex()} {secret.hex()}\n" for label, random, secret in lines)
    return keys_of(text)


def keys_of(text: str) -> KeyLog:
    parts = [text.encode()]
    return KeyLog(lambda: parts.pop() if parts else b"")


@pytest.mark.parametrize(
    ("negotiated", "reason"),
    [
        (agreed(), None),
        (agreed(TLS12, GCM12), None),
        (agreed(0x0301, GCM12), "TLS 1.0 is not decrypted"),
        (agreed(TLS13, 0x1399), "its cipher suite is not supported"),
        # A suite of the other version.
        (agreed(TLS12, GCM13), "its cipher suite is not supported"),
        (agreed(TLS13, GCM12), "its cipher suite is not supported"),
        (agreed(TLS12, GCM12, compression=1), "its records are compressed, which is not decrypted"),
    ],
)
def test_reasons(negotiated: Negotiated, reason: str | None) -> None:
    assert why_not(negotiated) == reason


@pytest.mark.parametrize(
    ("phase", "client", "label"),
    [
        ("early", True, "CLIENT_EARLY_TRAFFIC_SECRET"),
        ("handshake", True, "CLIENT_HANDSHAKE_TRAFFIC_SECRET"),
        ("handshake", False, "SERVER_HANDSHAKE_TRAFFIC_SECRET"),
        ("application", True, "CLIENT_TRAFFIC_SECRET_0"),
        ("application", False, "SERVER_TRAFFIC_SECRET_0"),
    ],
)
def test_each_phase_has_its_secret(phase: Phase, client: bool, label: str) -> None:
    keys = log((label, RANDOM, b"x" * 32), (label, OTHER, b"y" * 32))
    assert secret_of(agreed(), phase, keys, 0, client=client) == b"x" * 32
    assert secret_of(agreed(), phase, log((label, OTHER, b"y" * 32)), 0, client=client) is None
    for other, side in (("clear", client), ("open", client), ("early", False)):
        assert secret_of(agreed(), other, keys, 0, client=side) is None  # type: ignore[arg-type]


def test_a_master_secret_is_found_by_its_session_too() -> None:
    by_session = keys_of(f"RSA Session-ID:{SESSION.hex()} Master-Key:{(b'm' * 48).hex()}\n")
    resumed = agreed(TLS12, GCM12, session=SESSION)
    assert secret_of(resumed, "tls12", by_session, 0, client=True) == b"m" * 48
    assert secret_of(agreed(TLS12, GCM12), "tls12", by_session, 0, client=True) is None
    both = keys_of(
        f"CLIENT_RANDOM {RANDOM.hex()} {(b'n' * 48).hex()}\nRSA Session-ID:{SESSION.hex()} "
        f"Master-Key:{(b'm' * 48).hex()}\n"
    )
    assert secret_of(resumed, "tls12", both, 0, client=False) == b"n" * 48


def test_both_sides_of_tls_12_have_keys_of_their_own() -> None:
    client = protection(agreed(TLS12, GCM12), "tls12", b"m" * 48, client=True)
    server = protection(agreed(TLS12, GCM12), "tls12", b"m" * 48, client=False)
    assert type(client) is type(server)
    assert client is not server
    assert client.lead == 8
    assert protection(agreed(), "application", b"x" * 32, client=True).lead == 0


@pytest.mark.parametrize(
    ("negotiated", "phase", "secret"),
    [(agreed(TLS12, GCM12), "tls12", b"m" * 47), (agreed(), "application", b"x" * 48)],
)
def test_a_secret_of_the_wrong_length(negotiated: Negotiated, phase: Phase, secret: bytes) -> None:
    with pytest.raises(ProtectionError, match="wrong length") as error:
        protection(negotiated, phase, secret, client=True)
    assert secret.hex() not in str(error.value)


def test_without_the_package_that_decrypts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kafkasniff.tls.decrypt")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ProtectionError, match=r"install kafkasniff\[tls\]"):
        protection(agreed(), "application", b"x" * 32, client=True)


def test_secrets_after_updates() -> None:
    found = suite(GCM13)
    assert found is not None
    assert later_secret(agreed(), b"x" * 32, 0) == b"x" * 32
    assert later_secret(agreed(), b"x" * 32, 2) == next_secret(found, next_secret(found, b"x" * 32))


def test_epochs_follow_one_another() -> None:
    assert Epoch("application") < Epoch("application", 1)
