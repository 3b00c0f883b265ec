"""Reports about TLS that cannot be read: one problem, with the visible facts."""

from __future__ import annotations

import ssl
import sys
from typing import Any

import pytest

from kafkasniff.tls.waiting import MAX_FLIGHT
from tests.craft.conversation import Conversation
from tests.craft.kafka_bytes import api_versions_request, api_versions_response
from tests.craft.outcome import Line, packets_outcome
from tests.craft.packet import Packet
from tests.tls.endpoints import Flight, Pair, kafka_talk, packets_of
from tests.tls.reading import decrypted

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def problem(packets: list[Packet], log: bytes | None = None, **options: Any) -> Line:
    found = packets_outcome(packets, **options) if log is None else decrypted(packets, log, **options)
    (line,) = found.lines
    assert line["type"] == "problem"
    assert line["connection"] == 1
    return line


def test_tls_13_without_keys() -> None:
    made = Pair(version=V13).talk(kafka_talk())
    line = problem(packets_of(made.flights))
    assert line["kind"] == "tls-not-decrypted"
    assert line["detail"] == (
        "the connection between 10.0.0.5:51334 and 10.0.0.9:9093: this is TLS 1.3 with TLS_AES_256_GCM_SHA384, "
        "server name broker.example, no ALPN, certificate not visible (TLS 1.3); "
        "there are no keys for it (--keylog FILE)"
    )
    # Reported with the server's first data after the client's part of the handshake: then the handshake has worked.
    assert line["packet"] == 10


def test_tls_12_without_keys() -> None:
    made = Pair(version=V12, ciphers="ECDHE-RSA-AES128-GCM-SHA256").talk(kafka_talk(), server_name=None)
    detail = problem(packets_of(made.flights))["detail"]
    assert "TLS 1.2 with TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, no server name, no ALPN, " in detail
    assert "certificate of CN=broker.example,O=Crafted" in detail


def test_keys_of_other_connections() -> None:
    made = Pair(version=V13).talk(kafka_talk())
    other = Pair(version=V13).talk(kafka_talk())
    assert problem(packets_of(made.flights), other.key_log)["detail"].endswith("there are keys, but none for it")


@pytest.mark.parametrize("version", [V12, V13])
def test_keys_that_do_not_fit(version: ssl.TLSVersion) -> None:
    made = Pair(version=version).talk(kafka_talk())
    log = b"".join(
        b" ".join((*words[:2], words[2][::-1])) + b"\n"
        for words in (line.split() for line in made.key_log.splitlines())
    )
    line = problem(packets_of(made.flights), log)
    assert line["kind"] == "tls-not-decrypted"
    assert line["detail"].endswith("the available keys do not match it")


def test_a_secret_of_another_length() -> None:
    made = Pair(version=V13).talk(kafka_talk())
    words = [line.split() for line in made.key_log.splitlines()]
    log = b"".join(b" ".join((label, random, secret[:64])) + b"\n" for label, random, secret in words)
    assert problem(packets_of(made.flights), log)["detail"].endswith("has a wrong length")


def test_without_the_package_that_decrypts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Pair(version=V12).talk(kafka_talk())
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    detail = problem(packets_of(made.flights), made.key_log)["detail"]
    assert detail.endswith("decryption needs the package cryptography: install kafkasniff[tls]")
    assert "certificate of a subject that only kafkasniff[tls] can read" in detail


def test_an_invalid_certificate() -> None:
    made = Pair(version=V12).talk(kafka_talk())
    server = bytearray(made.flights[1][1])
    at = server.index(b"\x0b\0", 60) + 10  # within the first certificate
    server[at : at + 40] = bytes(40)
    flights = [made.flights[0], ("broker", bytes(server)), *made.flights[2:]]
    assert "certificate of an unreadable subject" in problem(packets_of(flights))["detail"]  # type: ignore[arg-type]


def test_other_protocols_are_reported_on_kafka_s_ports_only() -> None:
    made = Pair(version=V13, alpn=["h2"]).talk([("client", b"PRI * HTTP/2.0"), ("broker", b"\0\0\0\4")])
    packets = packets_of(made.flights)
    assert packets_outcome(packets).lines == []
    assert packets_outcome(packets).summary.not_kafka == 1
    assert "ALPN offered: h2" in problem(packets, ports=[9093])["detail"]


def test_decrypted_data_that_is_not_kafka() -> None:
    made = Pair(version=V13).talk([("client", b"GET / HTTP/1.1\r\n\r\n"), ("broker", b"HTTP/1.1 200 OK\r\n\r\n")])
    packets = packets_of(made.flights)
    assert decrypted(packets, made.key_log).lines == []
    line = problem(packets, made.key_log, ports=[9093])
    assert line["kind"] == "not-kafka"
    assert "this is HTTP" in line["detail"]


def hello() -> bytes:
    return Pair(version=V13).talk(kafka_talk()).flights[0][1]


def test_tls_to_a_listener_without() -> None:
    # What a broker's plaintext listener does with a length of 369 million: it closes.
    line = problem(packets_of([("client", hello())]))
    assert "offered by the client, server name broker.example" in line["detail"]
    assert line["detail"].endswith("a listener without TLS just closes the connection")


def test_a_response_that_is_not_tls() -> None:
    line = problem(packets_of([("client", hello()), ("broker", b"HTTP/1.1 400 Bad Request\r\n")]))
    assert line["detail"].endswith("the answer of the other side is not TLS")


def test_an_alert_ends_the_handshake() -> None:
    made = Pair(version=V12).talk(kafka_talk())
    flights = [*made.flights[:2], ("client", b"\x15\3\3\0\2\2\x30")]
    line = problem(packets_of(flights))  # type: ignore[arg-type]
    assert line["detail"].endswith("the client ended the handshake with the alert unknown_ca (48)")
    assert "certificate of CN=broker.example" in line["detail"]


def test_a_clear_alert_after_the_hellos() -> None:
    """Reported instead of missing keys: a client's in TLS 1.3, a server's after the client's ChangeCipherSpec in
    1.2."""
    made = Pair(version=V13).talk(kafka_talk())
    line = problem(packets_of([*made.flights[:2], ("client", b"\x15\3\3\0\2\2\x30")]))
    assert line["detail"].endswith("the client ended the handshake with the alert unknown_ca (48)")
    made = Pair(version=V12).talk(kafka_talk())
    flights: list[Flight] = [*made.flights[:3], ("broker", b"\x15\3\3\0\2\2\x2a")]
    line = problem(packets_of(flights))
    assert line["detail"].endswith("the other side ended the handshake with the alert bad_certificate (42)")
    # With the keys of others, too; a connection that never ends this way is reported at its end.
    line = problem(packets_of(flights), Pair(version=V12).talk(kafka_talk()).key_log)
    assert line["detail"].endswith("bad_certificate (42)")
    assert problem(packets_of(made.flights[:3]))["detail"].endswith("there are no keys for it (--keylog FILE)")


def test_the_wait_for_the_other_side_is_bounded() -> None:
    """A client that is silent after a long flight of the server: reported then, not at the connection's end."""
    made = Pair(version=V13).talk(kafka_talk())
    record = b"\x17\3\3\x40\0" + bytes(1 << 14)
    flights: list[Flight] = [*made.flights[:2], *(("broker", record) for _ in range(9))]
    packets = packets_of(flights, sizes=len(record))
    line = problem(packets)
    assert line["detail"].endswith("there are no keys for it (--keylog FILE)")
    assert len(made.flights[1][1]) + 4 * len(record) > MAX_FLIGHT
    assert line["packet"] < len(packets) - 2 * 4


def test_a_resumed_tls_12_session() -> None:
    pair = Pair(version=V12)
    first = pair.talk(kafka_talk())
    made = pair.talk(kafka_talk(), session=first.session)
    assert made.resumed
    reported = problem(packets_of(made.flights), first.key_log)["detail"]
    assert "no certificate captured; there are keys, but none for it: it resumes a session of TLS 1.2" in reported


def test_an_old_version() -> None:
    made = Pair(version=V12).talk(kafka_talk())
    server = made.flights[1][1]
    old = server[:9] + b"\3\2" + server[11:]
    flights = [made.flights[0], ("broker", old), *made.flights[2:]]
    line = problem(packets_of(flights), made.key_log)  # type: ignore[arg-type]
    assert line["detail"].endswith("TLS 1.1 is not decrypted")


def test_a_stream_that_is_captured_from_its_middle() -> None:
    made = Pair(version=V13).talk(kafka_talk(20), ends=False)
    packets = packets_of(made.flights)[12:]
    assert packets_outcome(packets).lines == []
    line = problem(packets, made.key_log, ports=[9093])
    assert line["detail"].endswith("its ClientHello was not captured")


def test_one_side_only() -> None:
    made = Pair(version=V13).talk(kafka_talk(20))
    for sport, reported in ((9093, "its ClientHello was not captured"), (51334, "no answer of the other side")):
        packets = [packet for packet in packets_of(made.flights) if packet.sport == sport]
        assert reported in problem(packets, made.key_log, ports=[9093])["detail"]


def test_a_handshake_and_nothing_else_is_undecided() -> None:
    made = Pair(version=V13).talk([])
    found = decrypted(packets_of(made.flights), made.key_log)
    assert found.lines == []
    assert found.summary.undecided == 1


def test_bytes_add_up() -> None:
    made = Pair(version=V13).talk(kafka_talk())
    summary = decrypted(packets_of(made.flights), made.key_log).summary
    assert summary.bytes_stream == sum(len(data) for _, data in made.flights)
    assert summary.bytes_decoded == sum(len(data) for _, data in made.clear)
    assert summary.bytes_lost == 0
    assert summary.bytes_skipped == summary.bytes_stream - summary.bytes_decoded
    without = packets_outcome(packets_of(made.flights)).summary
    assert (without.bytes_stream, without.bytes_skipped) == (summary.bytes_stream, summary.bytes_stream)


def test_plain_connections_are_unchanged() -> None:
    # A length that begins like a hello, which only an absurd bound accepts; in one packet and in many.
    size = 0x16030102
    whole = [api_versions_request(1), api_versions_response(1)]
    for sizes in (1, 3, 1448):
        conversation = Conversation()
        conversation.handshake()
        conversation.send("client", size.to_bytes(4) + b"\0\x12\0\0", sizes)
        conversation.close()
        found = packets_outcome(conversation.packets, ports=[9092], max_frame=2**31 - 1)
        assert [line["kind"] for line in found.problems] == ["stream-cut"] or not found.problems
        plain = Conversation()
        plain.handshake()
        plain.exchange(whole[0], whole[1], sizes)
        plain.close()
        assert [line["type"] for line in packets_outcome(plain.packets).lines] == ["request", "response"]
