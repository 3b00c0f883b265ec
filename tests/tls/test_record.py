"""Records cut out of streams, and the hellos and certificates in them."""

from __future__ import annotations

import ssl
import sys

import pytest

from kafkasniff.tables.checkpoint import dump, load
from kafkasniff.tls import keylog
from kafkasniff.tls.descriptions import shown_certificate, suite
from kafkasniff.tls.gate import TlsGate, is_tls
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.record import HandshakeBuffer, RecordCutter, may_be_header
from tests.analysis.test_security import seen
from tests.choice import in_turn
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.outcome import outcome, output
from tests.craft.packet import SYN, Packet
from tests.tls.endpoints import kafka_talk, packets_of
from tests.tls.reading import contents, keys, kinds


def test_an_invalid_header_is_detected_at_once() -> None:
    for head in (b"\x19", b"\x17\x02", b"\x17\x03\x05", b"\x17\x03\x03\xff\xff"):
        assert not may_be_header(head)
        cutter = RecordCutter()
        cutter.add(head, 0, 0, 0, 1)
        assert cutter.cut() is None
        assert cutter.flawed
    assert may_be_header(b"")
    assert may_be_header(b"\x17\x03")


HELLO = b"\x16\x03\x01\x02\x00\x01"
DATA = b"\x17\x03\x03\x00\x10" + bytes(16)


@pytest.mark.parametrize(
    ("head", "aligned", "found"),
    [
        (HELLO, True, True),
        (HELLO, False, True),
        (HELLO[:5], True, None),
        (HELLO[:1], True, None),
        (HELLO[:5] + b"\x02", True, True),
        (HELLO[:5] + b"\x0b", True, False),
        (b"\x16\x03\x05", True, False),
        (b"\x16\x03\x01\xff\xff\x01", True, False),
        (b"\x00\x00\x00\x1d", True, False),
        (b"GET ", True, False),
        (b"\x15\x03\x03\x00\x02\x02\x28", True, False),
        (DATA, True, False),
        (DATA, False, None),
        (DATA + b"\x17\x03", False, None),
        (DATA + b"\x17\x03\x03", False, True),
        (DATA + b"\x15\x03\x03", False, True),
        (DATA + b"\x17\x02", False, False),
        (DATA[:3], False, None),
    ],
)
def test_first_bytes(head: bytes, aligned: bool, found: bool | None) -> None:
    assert is_tls(head, aligned=aligned) is found


def singly(packets: list[Packet]) -> list[object]:
    return [batch([packet], [place]) for place, packet in enumerate(packets)]


@pytest.mark.parametrize(
    ("head", "size"), in_turn([b"\x16", HELLO[:4], DATA[:4], DATA, b"\x17\x03\x03\x3f\xff"], [1, 2, 7, 1448], 4)
)
def test_kafka_that_begins_like_tls(monkeypatch: pytest.MonkeyPatch, head: bytes, size: int) -> None:
    """Kafka from the middle of a message whose next bytes look like a TLS record is decoded as usual."""
    said = kafka_talk(6)
    side, data = said[0]
    said[0] = (side, head + b"\x00rest of some message" + data)
    packets = [packet for packet in packets_of(said, sizes=size) if not packet.flags & SYN]
    whole = output([batch(packets)], ports=[9093])
    assert output(singly(packets), ports=[9093]) == whole  # type: ignore[arg-type]
    found = outcome([batch(packets)], ports=[9093])
    assert not any(kind.startswith("tls") for kind in kinds(found))
    monkeypatch.setattr(TlsGate, "feed", lambda gate, item, *_, **__: [item])
    assert contents(found) == contents(outcome([batch(packets)], ports=[9093]))
    assert size < 7 or len(contents(found)) > 12


RANDOM = bytes(range(32))
SECRET = b"\x5a" * 48
LINE = f"CLIENT_RANDOM {RANDOM.hex()} {SECRET.hex()}\n".encode()


def test_lines_of_every_kind() -> None:
    found = keys(
        b"\xef\xbb\xbf# SSL/TLS secrets log file\r\n\r\n"
        + LINE.replace(b"\n", b"\r\n")
        + f"SERVER_TRAFFIC_SECRET_0 {RANDOM.hex().upper()} {'ab' * 32}\n".encode()
        + f"EXPORTER_SECRET {RANDOM.hex()} {'cd' * 32}\n".encode()
        + f"RSA 0011223344556677 8899\nRSA Session-ID:0a0B Master-Key:{'ef' * 48}\n".encode()
    )
    assert found.find("CLIENT_RANDOM", RANDOM, 0) == SECRET
    assert found.find("SERVER_TRAFFIC_SECRET_0", RANDOM, 0) == b"\xab" * 32
    assert found.find(keylog.SESSION_ID, b"\x0a\x0b", 0) == b"\xef" * 48
    assert found.find("CLIENT_TRAFFIC_SECRET_0", RANDOM, 0) is None
    assert found.find("CLIENT_RANDOM", bytes(32), 0) is None
    assert found.take_flaws() == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"hello", "is not LABEL CLIENT_RANDOM SECRET"),
        (LINE[:-2], "odd number"),
        (LINE.replace(RANDOM.hex().encode(), b"00"), "client random of 1 bytes, not 32"),
        (LINE[:-3], "secret of 47 bytes"),
        (b"x" * 5000, "longer than any valid line"),
        (b"RSA Session-ID: Master-Key:" + b"ab" * 48, "empty session id"),
        (b"RSA Session-ID:" + b"00" * 33 + b" Master-Key:" + b"ab" * 48, "session id of 33 bytes"),
        (b"RSA Session-ID:00 Master-Key:" + b"ab" * 32, "master key of 32 bytes, not 48"),
    ],
)
def test_bad_lines_are_reported_by_number_and_without_their_text(line: bytes, expected: str) -> None:
    found = keys(LINE + line + b"\n" + LINE)
    (flaw,) = found.take_flaws()
    assert flaw.startswith("line 2 of the key log ")
    assert expected in flaw
    assert SECRET.hex()[:20] not in flaw
    assert found.find("CLIENT_RANDOM", RANDOM, 0) == SECRET
    assert found.take_flaws() == []


def test_secrets_of_a_capture_count_from_their_place() -> None:
    found = KeyLog()
    assert not found.may_come(10**9)
    found.add_captured(LINE, 100)
    assert found.find("CLIENT_RANDOM", RANDOM, 99) is None
    assert not found.may_come(99)
    assert found.find("CLIENT_RANDOM", RANDOM, 100) == SECRET
    assert found.may_come(100)
    found.add_captured(LINE, 200)
    assert found.find("CLIENT_RANDOM", RANDOM, 100) == SECRET


def test_a_state_has_secrets_of_captures_but_not_of_the_file() -> None:
    other = bytes(32)
    found = keys(LINE)
    found.add_captured(LINE.replace(RANDOM.hex().encode(), other.hex().encode()), 5)
    state = dump(found)
    assert RANDOM not in state
    again = load(state, KeyLog)
    assert again.find("CLIENT_RANDOM", RANDOM, 9) is None
    assert again.find("CLIENT_RANDOM", other, 9) == SECRET
    assert again.find("CLIENT_RANDOM", other, 4) is None


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keylog, "MAX_SECRETS", 3)

    def line(number: int) -> bytes:
        return LINE.replace(RANDOM.hex().encode(), number.to_bytes(32).hex().encode())

    log = b"".join(line(number) for number in range(5))
    found = keys(log)
    assert [found.find("CLIENT_RANDOM", number.to_bytes(32), 0) is not None for number in range(5)] == [
        False, False, True, True, True,
    ]  # fmt: skip
    captured = KeyLog()
    captured.add_captured(log, 0)
    assert [captured.find("CLIENT_RANDOM", number.to_bytes(32), 0) is not None for number in range(5)] == [
        True, True, True, False, False,
    ]  # fmt: skip


# Hellos, suites and certificates as OpenSSL has them; and truncated or damaged anywhere.


def test_a_message_above_the_bound_is_skipped() -> None:
    buffer = HandshakeBuffer()
    assert list(buffer.add(b"\x0b\xff\xff\xff" + bytes(100))) == [(11, b"")]


def offered() -> dict[int, dict[str, object]]:
    """OpenSSL's suites by code, with OpenSSL's facts about them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    return {cipher["id"] & 0xFFFF: dict(cipher) for cipher in context.get_ciphers()}


# OpenSSL's names: mode and bits of the key.
MODES = {
    **{f"aes-{bits}-{mode}": (mode, bits // 8) for mode in ("gcm", "ccm", "cbc") for bits in (128, 256)},
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


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ImportError):
        shown_certificate(b"", None, None)
    view = seen(ROOT / "captures" / "tls" / "tls12-kafka-python.pcapng")
    assert all(one.transport.certificate is None for one in view.identities())
    assert any("kafkasniff[tls]" in note for note in view.notes())
