"""Handshake messages, from real hellos, and the keys that they announce for each stream."""

from __future__ import annotations

import ssl

import pytest

from kafkasniff.tls import handshake
from kafkasniff.tls.half import Half
from kafkasniff.tls.handshake import HandshakeBuffer
from kafkasniff.tls.negotiation import MAX_FOREIGN, Negotiation
from kafkasniff.tls.protection import Epoch
from tests.tls.endpoints import Pair, kafka_talk

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
HANDSHAKE = 22
FINISHED = bytes(12)


def hellos(version: ssl.TLSVersion) -> tuple[bytes, bytes]:
    """Bodies of a ClientHello and a ServerHello of OpenSSL."""
    flights = Pair(version=version).talk(kafka_talk(1)).flights
    found = {}
    for side, data in flights[:2]:
        buffer = HandshakeBuffer()
        size = int.from_bytes(data[3:5], "big")
        assert data[0] == HANDSHAKE
        for kind, body in buffer.add(data[5 : 5 + size]):
            found[side, kind] = body
    return found["client", handshake.CLIENT_HELLO], found["broker", handshake.SERVER_HELLO]


def negotiated(version: ssl.TLSVersion, client: int = 0) -> tuple[Negotiation, Half, Half]:
    halves = Half(0), Half(1)
    made = Negotiation(halves)
    hello, answer = hellos(version)
    assert made.message(halves[client], handshake.CLIENT_HELLO, hello, clear=True) is None
    assert made.agreed is None
    assert made.message(halves[1 - client], handshake.SERVER_HELLO, answer, clear=True) is None
    return made, halves[client], halves[1 - client]


@pytest.mark.parametrize("version", [V12, V13])
@pytest.mark.parametrize("client", [0, 1])
def test_two_hellos_agree(version: ssl.TLSVersion, client: int) -> None:
    made, mine, theirs = negotiated(version, client)
    assert made.client == client
    assert made.is_client(mine)
    assert not made.is_client(theirs)
    assert made.is_13 is (version == V13)
    assert mine.negotiated is theirs.negotiated is made.agreed
    phase = "handshake" if version == V13 else "clear"
    assert (mine.epoch, theirs.epoch) == (Epoch(phase), Epoch(phase))


def test_keys_of_tls_12_begin_with_change_cipher_spec() -> None:
    made, client, server = negotiated(V12)
    made.change_cipher(client)
    assert (client.epoch.phase, server.epoch.phase) == ("tls12", "clear")


def test_change_cipher_spec_means_nothing_in_tls_13_or_before_the_hellos() -> None:
    made, client, _ = negotiated(V13)
    made.change_cipher(client)
    assert client.epoch.phase == "handshake"
    halves = Half(0), Half(1)
    Negotiation(halves).change_cipher(halves[0])
    assert halves[0].epoch.phase == "clear"


def test_the_phases_of_tls_13() -> None:
    made, client, server = negotiated(V13)
    for half in (server, client):
        made.message(half, handshake.FINISHED, FINISHED, clear=False)
        assert half.epoch == Epoch("application")
    made.message(server, handshake.KEY_UPDATE, b"\0", clear=False)
    made.message(server, handshake.KEY_UPDATE, b"\0", clear=False)
    assert (client.epoch, server.epoch) == (Epoch("application"), Epoch("application", 2))


def test_messages_in_the_wrong_phase_change_nothing() -> None:
    made, client, _ = negotiated(V13)
    for kind in (handshake.KEY_UPDATE, handshake.END_OF_EARLY_DATA):
        made.message(client, kind, b"\0", clear=False)
        assert client.epoch == Epoch("handshake")
    made.message(client, handshake.FINISHED, FINISHED, clear=True)
    assert client.epoch == Epoch("handshake")


@pytest.mark.parametrize(("accepted", "phase", "skippable"), [(True, "early", 0), (False, "handshake", MAX_FOREIGN)])
def test_early_data(accepted: bool, phase: str, skippable: int) -> None:
    """Whether the server accepts it is known from its encrypted extensions."""
    made, client, server = negotiated(V13)
    client.enter(Epoch("open"))
    extension = b"\0\x2a\0\0" if accepted else b""
    made.message(server, handshake.ENCRYPTED_EXTENSIONS, len(extension).to_bytes(2, "big") + extension, clear=False)
    assert (client.epoch.phase, client.skippable) == (phase, skippable)
    made.message(client, handshake.END_OF_EARLY_DATA, b"", clear=False)
    assert client.epoch.phase == "handshake"


@pytest.mark.parametrize(
    ("kind", "name"), [(handshake.CLIENT_HELLO, "ClientHello"), (handshake.SERVER_HELLO, "ServerHello")]
)
def test_an_invalid_hello_is_reported(kind: int, name: str) -> None:
    halves = Half(0), Half(1)
    assert Negotiation(halves).message(halves[0], kind, b"\1\2", clear=True) == f"its {name} is invalid"


def test_the_other_side_sends_no_client_hello() -> None:
    made, _, server = negotiated(V13)
    before = made.hello
    assert made.message(server, handshake.CLIENT_HELLO, hellos(V12)[0], clear=True) is None
    assert made.hello is before


def test_a_renegotiation_begins_anew() -> None:
    made, client, server = negotiated(V12)
    before = made.agreed
    hello, answer = hellos(V12)
    made.message(client, handshake.CLIENT_HELLO, hello, clear=False)
    assert made.agreed is None
    made.message(server, handshake.SERVER_HELLO, answer, clear=False)
    assert made.agreed is not None
    assert made.agreed != before


def test_a_client_without_the_certificate_that_it_was_asked_for() -> None:
    made, client, _ = negotiated(V12)
    made.message(client, handshake.CERTIFICATE, b"\0\0\0", clear=True)
    assert made.lacks_certificate
    assert made.handshake.client_certificate is None


def test_certificates_of_both_sides() -> None:
    def listed(name: bytes) -> bytes:
        return (len(name) + 3).to_bytes(3, "big") + len(name).to_bytes(3, "big") + name

    made, client, server = negotiated(V12)
    for half, name in ((server, b"broker"), (client, b"client")):
        made.message(half, handshake.CERTIFICATE, listed(name), clear=True)
    assert (made.handshake.certificate, made.handshake.client_certificate) == (b"broker", b"client")
    # TLS 1.3 encrypts them.
    made, client, server = negotiated(V13)
    for half, name in ((server, b"broker"), (client, b"client")):
        made.message(half, handshake.CERTIFICATE, b"\0" + listed(name), clear=False)
    assert (made.handshake.certificate, made.handshake.client_certificate) == (b"broker", b"client")
    assert not made.lacks_certificate


def test_a_session_without_a_certificate_was_resumed() -> None:
    """Up to TLS 1.2, where the certificate is visible."""
    assert negotiated(V12)[0].resumed
    assert not negotiated(V13)[0].resumed
