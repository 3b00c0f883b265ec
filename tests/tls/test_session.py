"""Real TLS, decrypted: the same messages as from the dialogue without TLS, however packets arrive; and its turns."""

from __future__ import annotations

import base64
import functools
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Connection, Exchange
from kafkasniff.packets import PacketBatch
from kafkasniff.tables.checkpoint import dump, load
from kafkasniff.tls.items import Segment
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.session import LARGEST_ALERT, Turns
from tests.choice import examples, one_in
from tests.craft.batches import batch
from tests.craft.outcome import outcome, output, packets_outcome
from tests.craft.packet import Packet
from tests.tls.captured import RESUMED, WITH_SECRETS, key_log, packets
from tests.tls.endpoints import Pair, Talk, kafka_talk, new_folder, packets_of
from tests.tls.reading import clear_contents, contents, decrypted, keys, kinds

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@functools.cache
def talk(version: ssl.TLSVersion, ciphers: str | None = None, options: int = 0, kind: str = "rsa") -> Talk:
    return Pair(version=version, ciphers=ciphers, options=options, kind=kind).talk(kafka_talk())


def check(made: Talk, log: bytes, *, sizes: int = 1448, grows: bool = False) -> None:
    """The messages are those of the dialogue without TLS."""
    found = packets_outcome(packets_of(made.flights, sizes=sizes), keys=keys(log, grows=grows))
    assert contents(found) == clear_contents(made.clear)
    assert kinds(found) == []


def suites_12() -> list[tuple[str, str]]:
    """Names of OpenSSL's TLS 1.2 suites that work with a certificate, and the certificate's kind."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")
    found = []
    for cipher in context.get_ciphers():
        if cipher["protocol"] == "TLSv1.3" or not any(kind in cipher["symmetric"] for kind in ("aes", "chacha20")):
            continue
        if cipher["auth"] in ("auth-rsa", "auth-ecdsa") and "psk" not in cipher["kea"] and "srp" not in cipher["kea"]:
            found.append((cipher["name"], str(cipher["auth"]).removeprefix("auth-")))
    return found


@functools.cache
def dh_parameters() -> Path:
    """The group ffdhe2048 of RFC 7919, A.1, whose prime is derived from the digits of e."""
    term = euler = 1 << 2000
    for number in range(1, 400):
        term //= number
        euler += term
    prime = (1 << 2048) - (1 << 1984) + ((euler >> 2000 - 1918) + 560316 << 64) - 1
    der = b"\x30\x82\x01\x08\x02\x82\x01\x01\0" + prime.to_bytes(256) + b"\x02\x01\x02"
    path = new_folder() / "dh.pem"
    path.write_bytes(b"-----BEGIN DH PARAMETERS-----\n" + base64.encodebytes(der) + b"-----END DH PARAMETERS-----\n")
    return path


@pytest.mark.parametrize(("name", "kind"), one_in(2, suites_12()), ids=lambda value: value)
def test_suites_of_tls_12(name: str, kind: str) -> None:
    pair = Pair(version=V12, ciphers=name, kind=kind)
    if name.startswith("DHE"):
        pair.server.load_dh_params(str(dh_parameters()))
    made = pair.talk(kafka_talk())
    assert made.suite == name
    check(made, made.key_log)


@pytest.mark.parametrize("version", [V12, V13])
@pytest.mark.parametrize("sizes", [100_000, 1448, 97, 1])
def test_segments_of_any_size(version: ssl.TLSVersion, sizes: int) -> None:
    made = talk(version)
    check(made, made.key_log, sizes=sizes)


@pytest.mark.parametrize("version", [V12, V13])
def test_messages_over_many_records_and_records_with_many_messages(version: ssl.TLSVersion) -> None:
    value = bytes(range(256)) * 300
    said = kafka_talk(4, value)
    joined = [*said[:4], ("client", b"".join(data for side, data in said[4:] if side == "client"))]
    joined += [(side, data) for side, data in said[4:] if side == "broker"]
    for dialogue, pieces in ((said, 1000), (joined, 16_384)):
        made = Pair(version=version).talk(dialogue, pieces=pieces)
        check(made, made.key_log)


@pytest.mark.parametrize("version", [V12, V13])
def test_a_resumed_session(version: ssl.TLSVersion) -> None:
    pair = Pair(version=version)
    first = pair.talk(kafka_talk())
    second = pair.talk(kafka_talk(), session=first.session)
    assert second.resumed
    # Nothing of the first connection is needed.
    check(second, second.key_log)


# -- places and times ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V12, V13])
def test_a_message_is_complete_with_the_packet_that_completes_its_record(version: ssl.TLSVersion) -> None:
    made = talk(version)
    packets = packets_of(made.flights, sizes=50)
    lines = [line for line in decrypted(packets, made.key_log).lines if line["type"] in ("request", "response")]
    assert lines
    for line in lines:
        completing = packets[line["last_packet"] - 1]
        sent = completing.sport == 9093
        assert sent == (line["type"] == "response")
        # The flight that contains it ends there: each is one record.
        following = [packet for packet in packets[line["last_packet"] :] if packet.payload]
        assert not following or (following[0].sport == 9093) != sent or line is lines[-1]
        assert line["first_packet"] < line["last_packet"]
        assert line["time"].endswith(f"{completing.time_ns % 1_000_000_000:09d}Z")


# -- the law -------------------------------------------------------------------------------------------------------


def parts_of(whole: PacketBatch, cuts: Sequence[int]) -> Iterator[PacketBatch]:
    for cut in cuts:
        if len(whole) > cut:
            part, whole = whole.split(cut)
            yield part
    yield whole


def two_connections() -> tuple[list[Packet], bytes]:
    first, second = talk(V13), talk(V12, "ECDHE-RSA-AES256-SHA384")
    packets = [*packets_of(first.flights, sizes=333), *packets_of(second.flights, sizes=121, client_port=40_000)]
    packets.sort(key=lambda packet: packet.time_ns)
    return packets, first.key_log + second.key_log


@examples(20)
@given(st.lists(st.integers(1, 20), max_size=40))
def test_batches_change_nothing(cuts: list[int]) -> None:
    packets, log = two_connections()
    whole = output([batch(packets)], keys=keys(log))
    assert output(parts_of(batch(packets), cuts), keys=keys(log)) == whole


def test_a_run_resumes_from_its_state_at_any_packet() -> None:
    packets, log = two_connections()
    whole = Inspector(keys=keys(log))
    expected = [*whole.feed(batch(packets)), *whole.close()]
    inspector = Inspector(keys=keys(log))
    found = []
    for part in parts_of(batch(packets), [1] * len(packets)):
        found += inspector.feed(part)
        state = dump(inspector)
        for line in log.splitlines():
            assert bytes.fromhex(line.split()[2].decode()) not in state
        inspector = load(state, Inspector)
        inspector.follow_key_log(keys(log))
    assert [*found, *inspector.close()] == expected


# -- late secrets --------- ------------------------------------------------------------------------------------------


def test_a_key_log_that_lags_the_packets() -> None:
    made = talk(V13)
    packets = packets_of(made.flights)
    expected = clear_contents(made.clear)
    for late in range(0, len(packets), 3):
        held: list[bytes] = []
        log = KeyLog(lambda held=held: held.pop() if held else b"", grows=True)

        def fed(held: list[bytes] = held, late: int = late) -> Iterator[PacketBatch]:
            for number, part in enumerate(parts_of(batch(packets), [1] * len(packets))):
                if number == late:
                    held.append(made.key_log)
                yield part

        found = outcome(fed(), keys=log)
        assert contents(found) == expected, late
        assert kinds(found) == []


@pytest.mark.parametrize("empty", [False, True])
def test_bytes_and_records_waiting_for_secrets_are_bounded(empty: bool) -> None:
    made = Pair().talk(kafka_talk(1, bytes(0 if empty else 3 << 20)))
    flights = [*made.flights[:2], ("client", b"\x17\3\3\0\0" * 17_000)] if empty else made.flights
    inspector = Inspector(keys=keys(b"", grows=True))
    packets = packets_of(flights, sizes=16_000)
    events = []
    for part in parts_of(batch(packets), [20] * len(packets)):
        events += inspector.feed(part)
    assert [event.kind for event in events] == ["tls-not-decrypted"]
    assert len(dump(inspector)) < 100_000
    assert inspector.close() == []


def test_master_keys_by_session_id() -> None:
    """Lines in the format of Java agents, for a connection and one that resumes its session."""
    pair = Pair(version=V12, ciphers="ECDHE-RSA-AES128-GCM-SHA256", options=ssl.OP_NO_TICKET)
    first = pair.talk(kafka_talk(4))
    assert first.session is not None
    second = pair.talk(kafka_talk(2), session=first.session)
    assert second.resumed
    master = first.key_log.split()[2]
    log = b"RSA Session-ID:" + first.session.id.hex().upper().encode() + b" Master-Key:" + master + b"\n"
    for made in (first, second):
        check(made, log)


# What TLS shows of requests and answers without keys, compared with what the keys show.

MS = 1_000_000
C, B = 0, 1


@functools.cache
def ends(name: str, *, decrypted: bool) -> tuple[list[Connection], dict[int, list[int]]]:
    """The connections of a capture, and the latencies of exchanges on each."""
    inspector = Inspector(keys=keys(key_log(name)) if decrypted else KeyLog(), connections=True)
    found = [*inspector.feed(batch(packets(name))), *inspector.close()]
    latencies: dict[int, list[int]] = {}
    for one in found:
        if isinstance(one, Exchange) and one.latency_ns is not None:
            latencies.setdefault(one.connection_id, []).append(one.latency_ns)
    return [one for one in found if isinstance(one, Connection)], latencies


@pytest.mark.parametrize("name", WITH_SECRETS)
def test_estimates_are_near_the_latencies(name: str) -> None:
    """Nearly always the longest time is a latency to the nanosecond; otherwise requests were pipelined or refused."""
    connections, latencies = ends(name, decrypted=True)
    exact = 0
    for one in connections:
        assert one.tls is not None
        turns, known = one.tls.turns, latencies[one.connection_id]
        assert 0 < turns.answers <= len(known) + 1
        exact += turns.longest_ns in known
    assert exact >= 0.6 * len(connections)


@pytest.mark.parametrize("name", [*WITH_SECRETS, RESUMED])
def test_keys_change_no_estimate(name: str) -> None:
    hidden, shown = (ends(name, decrypted=decrypted)[0] for decrypted in (False, True))
    for one, other in zip(hidden, shown, strict=True):
        assert one.tls is not None
        assert other.tls is not None
        assert one.tls.handshake_ns is not None
        assert (one.tls.handshake_ns, one.tls.turns) == (other.tls.handshake_ns, other.tls.turns)


Spoken = tuple[int, int, int]
"""Direction, milliseconds, bytes."""


def heard(spoken: list[Spoken]) -> Turns:
    turns = Turns()
    for direction, ms, size in spoken:
        turns.take(Segment(0, direction, bytes(size), 0, ms * MS, 0))
    return turns


ASK, ANSWER = 200, 50


@pytest.mark.parametrize(
    ("spoken", "answers", "longest", "unanswered"),
    [
        ([(C, 0, ASK), (B, 5, ANSWER), (C, 6, ASK), (B, 8, ANSWER)], 2, 5, None),
        # Pipelined requests: from the last one on.
        ([(C, 0, ASK), (C, 3, ASK), (B, 5, ANSWER), (B, 6, ANSWER)], 1, 2, None),
        # A client that gave up, and said so.
        ([(C, 0, ASK), (B, 5, ANSWER), (C, 6, ASK), (C, 90, LARGEST_ALERT)], 1, 5, 94),
        # A client that leaves.
        ([(C, 0, ASK), (B, 5, ANSWER), (C, 90, LARGEST_ALERT), (B, 95, LARGEST_ALERT)], 1, 5, None),
        ([(B, 0, ANSWER), (C, 1, ASK)], 0, None, 99),
    ],
)
def test_turns(spoken: list[Spoken], answers: int, longest: int | None, unanswered: int | None) -> None:
    found = heard(spoken).summary(C, 100 * MS, midway=True)
    times = [None if one is None else one * MS for one in (longest, unanswered)]
    assert (found.answers, found.longest_ns, found.unanswered_ns) == (answers, *times)
