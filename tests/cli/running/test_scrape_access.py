"""Who may read metrics: tokens, certificates, and pages of a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from kafkasniff.cli.running.scrape_access import LOCAL_ADDRESS, MAX_TOKEN, guarded, read_token, tls_context
from kafkasniff.errors import UsageError
from tests.tls.endpoints import certificate


def asked(token: bytes | None = None, *, name: str = "10.0.0.1", local: str = "127.0.0.1", **headers: str) -> str:
    """The status of a request."""
    status: list[str] = []

    def app(_: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        return [b"metrics"]

    def start(found: str, _: Any) -> None:
        status.append(found)

    body = guarded(app, token=token, name=name)({LOCAL_ADDRESS: local, **headers}, start)  # type: ignore[arg-type]
    (found,) = status
    assert (b"".join(body) == b"metrics") is (found == "200 OK")
    return found


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("Bearer secret", True),
        ("bearer  secret ", True),
        ("Bearer secrets", False),
        ("Bearer secre", False),
        ("Bearer", False),
        ("Basic secret", False),
        ("secret", False),
        ("", False),
        ("Bearer sécret", False),
    ],
)
def test_a_token(header: str, allowed: bool) -> None:
    assert asked(b"secret", HTTP_AUTHORIZATION=header) == ("200 OK" if allowed else "401 Unauthorized")


def test_a_token_replaces_the_check_of_the_host() -> None:
    assert asked(b"secret", HTTP_AUTHORIZATION="Bearer secret", HTTP_HOST="evil.example") == "200 OK"


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost:9308", True),
        ("LOCALHOST", True),
        ("127.0.0.1:9308", True),
        ("127.8.9.1", True),
        ("[::1]:9308", True),
        ("[::ffff:127.0.0.1]", True),
        ("10.0.0.1", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("localhost@evil.example", False),
        ("10.0.0.2", False),
        ("[::2]", False),
        ("[localhost", False),
        ("a b", False),
        ("", False),
    ],
)
def test_pages_cannot_read_what_is_served_locally(host: str, allowed: bool) -> None:
    assert asked(HTTP_HOST=host) == ("200 OK" if allowed else "403 Forbidden")
    # On another address any name may lead here.
    assert asked(HTTP_HOST=host, local="10.0.0.1") == "200 OK"


def test_a_request_without_a_host_is_no_browsers() -> None:
    assert asked() == "200 OK"


@pytest.mark.parametrize("content", [b"  secret\r\n", b"x" * MAX_TOKEN])
def test_a_token_in_a_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    assert read_token(str(path)) == content.strip()


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"a\x7f", "é".encode(), b"x" * (MAX_TOKEN + 1)])
def test_an_invalid_token_is_not_shown(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="must contain one word of ASCII") as error:
        read_token(str(path))
    assert not content.strip() or content.strip().decode() not in str(error.value)


def test_certificates(tmp_path: Path) -> None:
    cert, key = certificate("ecdsa")
    assert tls_context(str(cert), str(key)).minimum_version.name == "TLSv1_2"
    other = certificate("rsa")[1]
    with pytest.raises(UsageError, match="cannot use"):
        tls_context(str(cert), str(other))
    with pytest.raises(UsageError, match="cannot use"):
        tls_context(str(tmp_path / "missing"), str(key))


def test_a_key_with_a_passphrase_does_not_ask_for_it(tmp_path: Path) -> None:
    cert, key = certificate("rsa")
    private = load_pem_private_key(key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")))
    with pytest.raises(UsageError, match="is protected by a passphrase"):
        tls_context(str(cert), str(locked))
