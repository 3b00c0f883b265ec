"""Features that Python's ssl cannot produce, with OpenSSL's own programs: suites of TLS 1.3, key updates, early data
…"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.tls.endpoints import Flight, certificate, kafka_talk, packets_of
from tests.tls.openssl import Endpoints
from tests.tls.reading import clear_contents, contents, decrypted, kinds

RequireTool = Callable[[str], str]


def check(flights: Sequence[Flight], log: bytes, said: Sequence[Flight]) -> None:
    for sizes in (1448, 61):
        found = decrypted(packets_of(flights, sizes=sizes), log)
        assert contents(found) == clear_contents(said)
        assert kinds(found) == []


def converse(
    openssl: str,
    folder: Path,
    *,
    server: Sequence[str] = (),
    client: Sequence[str] = (),
    between: Sequence[Flight] = (),
) -> bytes:
    """A Kafka dialogue with `between` before each message but the first, decrypted and compared; returns the key
    log."""
    said = kafka_talk(2)
    ends = Endpoints(openssl, folder, server)
    try:
        with ends.connection(*client) as connection:
            for number, (side, data) in enumerate(said):
                if number:
                    for who, command in between:
                        connection.say(who, command)
                connection.say(side, data)
        log = ends.log.read_bytes()
        check(connection.flights, log, said)
        return log
    finally:
        ends.close()


@pytest.mark.parametrize(
    "suite",
    [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    ],
)
def test_suites_of_tls_13(require_tool: RequireTool, tmp_path: Path, suite: str) -> None:
    converse(require_tool("openssl"), tmp_path, server=["-ciphersuites", suite], client=["-ciphersuites", suite])


@pytest.mark.parametrize("command", [b"K\n", b"k\n"])
def test_key_updates(require_tool: RequireTool, tmp_path: Path, command: bytes) -> None:
    converse(require_tool("openssl"), tmp_path, between=[("client", command), ("broker", command), ("client", command)])


def test_records_with_padding(require_tool: RequireTool, tmp_path: Path) -> None:
    converse(
        require_tool("openssl"),
        tmp_path,
        server=["-record_padding", "300"],
        client=["-record_padding", "512", "-max_send_frag", "512"],
    )


def test_hello_retry_request(require_tool: RequireTool, tmp_path: Path) -> None:
    converse(require_tool("openssl"), tmp_path, server=["-groups", "P-384"], client=["-groups", "X25519:P-384"])


def test_a_client_with_a_certificate(require_tool: RequireTool, tmp_path: Path) -> None:
    cert, key = certificate("rsa")
    converse(require_tool("openssl"), tmp_path, server=["-verify", "1"], client=["-cert", str(cert), "-key", str(key)])


def test_renegotiation(require_tool: RequireTool, tmp_path: Path) -> None:
    """TLS 1.2: new keys in mid-connection. R of s_client requests it, and both sides' hellos are encrypted."""
    version = ["-tls1_2"]
    log = converse(
        require_tool("openssl"),
        tmp_path,
        server=[*version, "-client_renegotiation"],
        client=version,
        between=[("client", b"R\n")],
    )
    assert log.count(b"CLIENT_RANDOM") > 2


@pytest.mark.parametrize("accepted", [True, False])
def test_early_data(require_tool: RequireTool, tmp_path: Path, accepted: bool) -> None:
    said = kafka_talk(2)
    early = tmp_path / "early"
    early.write_bytes(said[0][1])
    session = tmp_path / "session"
    ends = Endpoints(require_tool("openssl"), tmp_path, ["-early_data"] if accepted else ["-max_early_data", "16000"])
    try:
        with ends.connection("-sess_out", str(session)) as connection:
            for side, data in said:
                connection.say(side, data)
        check(connection.flights, ends.log.read_bytes(), said)
        before = len(ends.log.read_bytes())
        with ends.connection("-sess_in", str(session), "-early_data", str(early)) as connection:
            # Rejected early data has to be sent again.
            for side, data in said[1:] if accepted else said:
                connection.say(side, data)
        log = ends.log.read_bytes()[before:]
        assert b"CLIENT_EARLY_TRAFFIC_SECRET" in log
        check(connection.flights, log, said)
    finally:
        ends.close()
