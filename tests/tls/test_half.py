"""Missing and damaged bytes: decoding resumes after them, and no message is reported that was not sent."""

from __future__ import annotations

import functools
import random
import ssl

import pytest

from kafkasniff.tls import half, session
from tests.choice import DEEP, fewer, one_in
from tests.craft.outcome import Line, Outcome
from tests.craft.packet import Packet
from tests.tls.endpoints import NO_ENCRYPT_THEN_MAC, Pair, Talk, kafka_talk, packets_of
from tests.tls.reading import clear_contents, contents, decrypted, kinds

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
SUITES = [
    (V13, None, 0),
    (V12, "ECDHE-RSA-AES128-GCM-SHA256", 0),
    (V12, "ECDHE-RSA-CHACHA20-POLY1305", 0),
    (V12, "ECDHE-RSA-AES256-SHA384", 0),
    (V12, "AES128-SHA", NO_ENCRYPT_THEN_MAC),
]
EXCHANGES = 40


@functools.cache
def long_talk(version: ssl.TLSVersion, ciphers: str | None = None, options: int = 0) -> Talk:
    pair = Pair(version=version, ciphers=ciphers, options=options)
    return pair.talk(kafka_talk(EXCHANGES, b"v" * 400), pieces=150)


def without(packets: list[Packet], places: set[int]) -> list[Packet]:
    return [packet for place, packet in enumerate(packets) if place not in places]


def whole_messages(found: Outcome) -> list[Line]:
    return [line for line in contents(found) if not line["problems"]]


def said(made: Talk) -> dict[tuple[object, object], Line]:
    return {(line["type"], line["correlation_id"]): line for line in clear_contents(made.clear)}


def check_nothing_invented(found: Outcome, made: Talk) -> int:
    """Checks that every complete message was sent; returns their number."""
    sent = said(made)
    for line in whole_messages(found):
        assert line == sent[line["type"], line["correlation_id"]]
    return len(whole_messages(found))


@pytest.mark.parametrize(("version", "ciphers", "options"), SUITES)
@pytest.mark.parametrize("count", one_in(2, [1, 2, 25, 7]))
def test_missing_packets(version: ssl.TLSVersion, ciphers: str | None, options: int, count: int) -> None:
    made = long_talk(version, ciphers, options)
    packets = packets_of(made.flights, sizes=300)
    data = [place for place, packet in enumerate(packets) if packet.payload]
    middle = len(data) // 2
    lost = set(data[middle : middle + count])
    found = decrypted(without(packets, lost), made.key_log)
    whole = check_nothing_invented(found, made)
    # The lost messages, those that share a packet with them, and those skipped until frames are found again.
    assert whole >= 2 * EXCHANGES + 4 - 2 * (count + 4)
    last = max(line["correlation_id"] for line in whole_messages(found))
    assert last == EXCHANGES + 2
    assert "tls-lost" not in kinds(found)
    assert "tcp-gap" in kinds(found)


@pytest.mark.parametrize("version", [V12, V13])
def test_missing_packets_of_the_handshake(version: ssl.TLSVersion) -> None:
    made = long_talk(version)
    packets = packets_of(made.flights, sizes=100)
    data = [place for place, packet in enumerate(packets) if packet.payload]
    read = 0
    missing = data[:30] if DEEP else data[: 30 : fewer(4, 2)]
    for place in missing:
        found = decrypted(without(packets, {place}), made.key_log, ports=[9093])
        count = check_nothing_invented(found, made)
        reported = [kind for kind in kinds(found) if kind.startswith("tls")]
        # Without its first bytes, the client's stream is not recognised as TLS.
        assert count > EXCHANGES or reported == ["tls-not-decrypted"] or (place == data[0] and count == 0), place
        read += count > EXCHANGES
    assert read > len(missing) / 2


@pytest.mark.parametrize("version", [V12, V13])
def test_damaged_records(version: ssl.TLSVersion) -> None:
    made = long_talk(version)
    packets = packets_of(made.flights, sizes=16_384)
    data = [place for place, packet in enumerate(packets) if packet.payload]
    place = data[len(data) // 2]
    payload = bytearray(packets[place].payload)
    payload[40] ^= 1
    changed = [*packets[:place], packets[place].but(payload=bytes(payload)), *packets[place + 1 :]]
    found = decrypted(changed, made.key_log)
    assert check_nothing_invented(found, made) > EXCHANGES
    assert kinds(found).count("tls-record-damaged") == 1
    assert "tcp-gap" not in kinds(found)


@pytest.mark.parametrize(("version", "ciphers", "options"), SUITES)
def test_garbage_anywhere(version: ssl.TLSVersion, ciphers: str | None, options: int) -> None:
    made = long_talk(version, ciphers, options)
    packets = packets_of(made.flights[:30], sizes=300)
    data = [place for place, packet in enumerate(packets) if packet.payload]
    for seed in range(fewer(4, 12)):
        rng = random.Random(seed)
        changed = list(packets)
        for place in rng.sample(data, 3):
            payload = bytearray(changed[place].payload)
            for _ in range(rng.choice((1, 4, 40))):
                payload[rng.randrange(len(payload))] = rng.randrange(256)
            changed[place] = changed[place].but(payload=bytes(payload))
        check_nothing_invented(decrypted(changed, made.key_log), made)


def test_trials_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "TRIAL_BYTES", 20_000)
    monkeypatch.setattr(half, "TRIAL_FACTOR", 0)
    made = long_talk(V13)
    packets = packets_of(made.flights, sizes=300)
    data = [place for place, packet in enumerate(packets) if packet.payload]
    # Far more records are missing than may be tried.
    found = decrypted(without(packets, set(data[20 : len(data) - 20])), made.key_log)
    check_nothing_invented(found, made)
    assert "tls-lost" in kinds(found)


def test_endless_damage() -> None:
    made = long_talk(V13)
    packets = packets_of(made.flights, sizes=16_384)
    data = [place for place, packet in enumerate(packets) if packet.payload and packet.dport == 9093]
    changed = list(packets)
    for place in data[len(data) // 2 :]:
        payload = bytearray(packets[place].payload)
        at = 0
        while at < len(payload):
            payload[at + 5] ^= 1
            at += 5 + int.from_bytes(payload[at + 3 : at + 5])
        changed[place] = packets[place].but(payload=bytes(payload))
    found = decrypted(changed, made.key_log)
    check_nothing_invented(found, made)
    reported = kinds(found)
    assert reported.count("tls-record-damaged") == session.MAX_DAMAGED
    assert reported.count("tls-lost") == 1
