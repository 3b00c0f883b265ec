"""TLS: an input selects a connection, as in `streams` after the length and the lines of a key log; or one message,
record stream or key log. Seeds are new connections of Python's TLS, with their key logs."""

from __future__ import annotations

import functools
import ssl

from kafkasniff.tls.descriptions import describe
from kafkasniff.tls.gate import is_tls
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.record import (
    HandshakeBuffer,
    RecordCutter,
    certificate_of,
    client_hello,
    encrypted_extensions,
    server_hello,
)
from tests.fuzz.corpus import Said
from tests.fuzz.intake import Intake
from tests.fuzz.streams import check, input_of, options_of, packets_of, segments_of
from tests.tls.endpoints import NO_ENCRYPT_THEN_MAC, Pair, Talk, kafka_talk

MAX_LENGTH = 9000
MEGABYTES = 512
WORDS = (
    *map(bytes.fromhex, ("160301", "170303", "140303000101", "15030300020228", "010000", "020000", "0b0000")),
    *(b"CLIENT_RANDOM ", b"SERVER_TRAFFIC_SECRET_0 ", b"\x00\x2b\x00\x02\x03\x04", b"\x00\x10\x00\x05\x00\x03\x02h2"),
)

_CONNECTION, _HELLO, _CERTIFICATE, _RECORDS, _KEY_LOG = 0, 4, 5, 6, 7
"""Selection by the first byte, modulo 8; all values below 4 are connections."""
_V12, _V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def one_input(data: bytes) -> None:
    intake = Intake(data)
    what = intake.number() % 8
    if what < _HELLO:
        key_log = intake.take(intake.number(2))
        how = intake.number()
        check(packets_of(how, segments_of(intake)), key_log, **options_of(how))
    elif what == _HELLO:
        _hello(intake.rest())
    elif what == _CERTIFICATE:
        _certificate(intake.rest())
    elif what == _RECORDS:
        _records(intake)
    else:
        _key_log(intake)


def _hello(data: bytes) -> None:
    client, server = client_hello(data), server_hello(data)
    alpn, _ = encrypted_extensions(data)
    assert describe(client, server, None, alpn, 0).encode()
    for aligned in (False, True):
        assert not data or is_tls(data, aligned=aligned) in (True, False, None)


def _certificate(data: bytes) -> None:
    certificate = certificate_of(data)
    if certificate is not None:
        assert certificate in data
        describe(None, server_hello(bytes(40)), certificate, None, 0).encode()


def _records(intake: Intake) -> None:
    """Records are parts of the stream, and the same in other pieces."""
    size = 1 + intake.number()
    data = intake.rest()
    found = []
    for pieces in ([data], [data[at : at + size] for at in range(0, len(data), size)]):
        cutter, handshake = RecordCutter(), HandshakeBuffer()
        records, messages = [], []
        for number, piece in enumerate(pieces):
            cutter.add(piece, number, number, number, number)
            while (record := cutter.cut()) is not None:
                assert record.header + record.data in data
                records.append((record.content_type, record.version, record.data))
                messages += handshake.add(record.data)
        found.append((records, messages, cutter.flawed))
    assert found[0] == found[1], "different records in other pieces"


def _key_log(intake: Intake) -> None:
    """A growing file gives the same as the whole file, as long as its last line is complete."""
    size = 1 + intake.number()
    data = intake.rest() + b"\n"
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    whole = KeyLog(iter([data, b""]).__next__)
    growing = KeyLog(iter([*parts, b""]).__next__)
    assert growing._file == whole._file, "different secrets in other pieces"
    reported = whole.take_flaws()
    assert all(flaw.isascii() for flaw in reported)
    if all(len(line) < 4096 for line in data.split(b"\n")):
        assert growing.take_flaws() == reported
    captured = KeyLog()
    captured.add_captured(data, 3)
    assert {key: secret for key, (_, secret) in captured._captured.items()}.keys() == whole._file.keys()


@functools.cache
def _talks() -> tuple[Talk, ...]:
    said = kafka_talk(1)
    pairs = (
        Pair(version=_V13),
        Pair(version=_V12, ciphers="ECDHE-RSA-AES128-GCM-SHA256", alpn=["kafka"]),
        Pair(version=_V12, ciphers="ECDHE-RSA-CHACHA20-POLY1305"),
        Pair(version=_V12, ciphers="ECDHE-RSA-AES256-SHA384"),
        Pair(version=_V12, ciphers="AES128-SHA", options=NO_ENCRYPT_THEN_MAC),
    )
    return tuple(pair.talk(said) for pair in pairs)


def seeds() -> list[bytes]:
    found = []
    for talk in _talks():
        flights = [Said(side == "client", data) for side, data in talk.flights]
        for key_log in (talk.key_log, b""):
            head = bytes((_CONNECTION,)) + len(key_log).to_bytes(2) + key_log
            found.append(head + input_of(1 | 16, flights))
        lossy = dict.fromkeys((5, 7), 2) | {9: 4, 10: 8}
        head = bytes((_CONNECTION,)) + len(talk.key_log).to_bytes(2) + talk.key_log
        found.append(head + input_of(1, flights, lossy))
        found.append(bytes((_KEY_LOG, 20)) + talk.key_log)
        for one in flights[:3]:
            found += [bytes((_RECORDS, 9)) + one.data, bytes((_HELLO,)) + one.data[9:]]
        found += [bytes((_CERTIFICATE,)) + body for body in _certificates(flights[1].data)]
    return found


def _certificates(flight: bytes) -> list[bytes]:
    """The bodies of Certificate messages in the server's first flight."""
    cutter, handshake = RecordCutter(), HandshakeBuffer()
    cutter.add(flight, 0, 0, 0, 0)
    found = []
    while (record := cutter.cut()) is not None:
        found += [body for kind, body in handshake.add(record.data) if kind == 11]
    return found
