"""The recorder's TLS terminator and its certificates, between a client and a listener played by sockets."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from captures.record import certificates
from captures.record.terminator import TlsTerminator

WAIT_SECONDS = 20.0


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Certificates, just made."""
    monkeypatch.setattr(certificates, "FOLDER", tmp_path / "certificates")
    return certificates.made()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A listener without TLS that echoes its input backwards until that ends with a full stop; it then closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(1 << 16):
                    connection.sendall(data[::-1])
                    if data.endswith(b"."):
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def test_it_forwards_data_and_logs_the_secrets(folder: Path, tmp_path: Path, listener: socket.socket) -> None:
    keys = tmp_path / "keys.log"
    port = listener.getsockname()[1]
    trusting = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    with TlsTerminator(tmp_path / "terminator", port, folder / "broker-ecdsa.pem", keys) as terminator:
        plain = socket.create_connection(("127.0.0.1", terminator.port), WAIT_SECONDS)
        with trusting.wrap_socket(plain, server_hostname="broker.example") as client:
            client.sendall(b"to the broker")
            assert client.recv(100) == b"rekorb eht ot"
            client.sendall(b"the end.")
            assert client.recv(100) == b".dne eht"
            assert client.recv(100) == b""
        assert terminator.pid is not None
    labels = [line.split()[0] for line in keys.read_text().splitlines() if not line.startswith("#")]
    assert {"CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"} <= set(labels)
    assert keys.stat().st_mode & 0o077 == 0


def test_certificates_are_of_their_authority_alone(folder: Path) -> None:
    assert certificates.made() == folder
    private = ["broker-ecdsa.pem", "broker-rsa.pem", "client.pem"]
    assert sorted(path.name for path in folder.iterdir()) == [*private[:2], "ca.pem", *private[2:], "other-ca.pem"]
    for name in private:
        assert (folder / name).stat().st_mode & 0o077 == 0
        for authority, trusted in (("ca.pem", True), ("other-ca.pem", False)):
            assert handshake(folder / name, folder / authority) is trusted


def handshake(certificate: Path, authority: Path) -> bool:
    """Whether a client that trusts an authority takes a certificate of 127.0.0.1."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    wires = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        server.wrap_bio(wires[0], wires[1], server_side=True),
        ssl.create_default_context(cafile=str(authority)).wrap_bio(wires[1], wires[0], server_hostname="127.0.0.1"),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True
