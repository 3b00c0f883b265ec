"""Scrapes of metrics: deadlines and bounds; who may read them: tokens, certificates, and pages of a browser."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from prometheus_client.parser import text_string_to_metric_families

from kafkasniff.cli.running import scrapes
from kafkasniff.cli.running.scrapes import LOCAL_ADDRESS, MAX_TOKEN, guarded, listening, read_token, tls_context
from kafkasniff.errors import UsageError
from kafkasniff.live.metrics import Metrics
from tests.conftest import missing
from tests.live.scenes import Scene, Talk
from tests.tls.endpoints import certificate

PATIENCE = 60


@contextlib.contextmanager
def serving(
    metrics: Metrics, address: str, *, token: bytes | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, int]]:
    with listening(address, tls) as server, scrapes.serving(metrics, server, token) as place:
        yield place


def scrape(host: str, port: int, **headers: str) -> tuple[str, str]:
    request = urllib.request.Request(f"http://{host}:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.mark.parametrize("address", [":0", "[::1]:0"])
def test_a_scrape(address: str) -> None:
    if "::1" in address:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            missing("this machine has no IPv6 loopback")
    scene, metrics = Scene(), Metrics()
    with serving(metrics, address) as (host, port):
        shown = f"[{host}]" if ":" in host else host
        assert host in {"127.0.0.1", "::1"}
        for event in scene.whole(Talk(scene, 1, "c", "10.0.0.1", ""), 0, 5, "Metadata"):
            metrics.take(event)
        kind, text = scrape(shown, port)
        assert kind.startswith("text/plain")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        (sample,) = families["kafkasniff_requests"].samples
        assert (sample.labels, sample.value) == ({"api": "Metadata"}, 1)
        kind, text = scrape(shown, port, Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, port), timeout=30)


def asked(place: tuple[str, int], **headers: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of the answer to a GET with these headers."""
    connection = http.client.HTTPConnection(*place, timeout=PATIENCE)
    try:
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def drip(connection: socket.socket) -> None:
    """Send a request that never ends."""
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ")


def drip_until_closed(connection: socket.socket) -> None:
    """Ends with an exception. Without a deadline, that many bytes take much longer than one."""
    for _ in range(50_000):
        connection.sendall(b"x")
        time.sleep(0.001)


@pytest.mark.extended
def test_slow_and_rude_clients_block_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    """Clients that hold all connections lose the oldest one to a new scrape, which does not wait for them."""
    with serving(Metrics(), ":0") as place, contextlib.ExitStack() as around:
        held = []
        for number in range(3 * scrapes.MAX_SCRAPES):
            held.append(around.enter_context(socket.create_connection(place, timeout=PATIENCE)))
            if number % 3 == 1:
                drip(held[-1])
            elif number % 3 == 2:
                held[-1].sendall(b"\x16\x03\x01 garbage\r\n\r\n")
        for _ in range(5):
            assert "kafkasniff_build_info" in asked(place)[2]
        assert held[0].recv(1) == b""
        threads = [one for one in threading.enumerate() if "process_request_thread" in one.name]
        assert len(threads) <= scrapes.MAX_SCRAPES
    assert capfd.readouterr() == ("", "")


@pytest.mark.extended
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_request_has_a_deadline(encrypted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the whole request: bytes sent one at a time do not extend it."""
    monkeypatch.setattr(scrapes, "REQUEST_SECONDS", 0.2)
    tls = tls_context(*map(str, certificate("ecdsa"))) if encrypted else None
    with serving(Metrics(), ":0", tls=tls) as place:
        with socket.create_connection(place, timeout=PATIENCE) as silent:
            assert silent.recv(1) == b""
        with socket.create_connection(place, timeout=PATIENCE) as slow:
            if not encrypted:
                drip(slow)
            with pytest.raises(ConnectionError):
                drip_until_closed(slow)


@pytest.mark.extended
def test_a_request_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "REQUEST_SECONDS", 3600.0)
    with serving(Metrics(), ":0") as place, socket.create_connection(place, timeout=PATIENCE) as client:
        lines = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(99))
        assert len(lines) > scrapes.MAX_REQUEST
        with contextlib.suppress(ConnectionError):
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + lines)
        # The server closes, although the request is incomplete.
        with contextlib.suppress(ConnectionError):
            while client.recv(65_536):
                pass


def test_two_host_headers_are_refused() -> None:
    with serving(Metrics(), ":0") as place, socket.create_connection(place, timeout=PATIENCE) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert b" 403 " in client.recv(4096).splitlines()[0]


def test_scrapes_over_tls() -> None:
    context = ssl.create_default_context(cafile=str(certificate("ecdsa")[0]))
    context.check_hostname = False
    with serving(Metrics(), ":0", tls=tls_context(*map(str, certificate("ecdsa")))) as (host, port):
        url = f"https://localhost:{port}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE, context=context) as answer:
            assert b"kafkasniff_build_info" in answer.read()
        # Bytes that are not a handshake delay nobody.
        with socket.create_connection((host, port), timeout=PATIENCE) as plain, socket.create_connection((host, port)):
            plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with urllib.request.urlopen(url, timeout=PATIENCE, context=context) as answer:
                assert b"kafkasniff_build_info" in answer.read()
            with contextlib.suppress(ConnectionError):
                assert b"kafkasniff" not in plain.recv(4096)


def status_of(token: bytes | None = None, *, name: str = "10.0.0.1", local: str = "127.0.0.1", **headers: str) -> str:
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


TOKENS = ("Bearer secret", "bearer  secret ")
OTHERS = ("Bearer secrets", "Bearer secre", "Bearer", "Basic secret", "secret", "", "Bearer sécret")


@pytest.mark.parametrize("header", [*TOKENS, *OTHERS])
def test_a_token(header: str) -> None:
    assert status_of(b"secret", HTTP_AUTHORIZATION=header) == ("200 OK" if header in TOKENS else "401 Unauthorized")


def test_a_token_replaces_the_check_of_the_host() -> None:
    assert status_of(b"secret", HTTP_AUTHORIZATION="Bearer secret", HTTP_HOST="evil.example") == "200 OK"


OWN = ("localhost:9308", "LOCALHOST", "127.0.0.1:9308", "127.8.9.1", "[::1]:9308", "[::ffff:127.0.0.1]", "10.0.0.1")
STRANGE = (
    "evil.example",
    "localhost.evil.example",
    "localhost@evil.example",
    "10.0.0.2",
    "[::2]",
    "[localhost",
    "a b",
    "",
)


@pytest.mark.parametrize("host", [*OWN, *STRANGE])
def test_pages_cannot_read_what_is_served_locally(host: str) -> None:
    assert status_of(HTTP_HOST=host) == ("200 OK" if host in OWN else "403 Forbidden")
    # On another address any name may lead here.
    assert status_of(HTTP_HOST=host, local="10.0.0.1") == "200 OK"


def test_a_request_without_a_host_is_no_browsers() -> None:
    assert status_of() == "200 OK"


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
