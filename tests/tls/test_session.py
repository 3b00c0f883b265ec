"""Real TLS, decrypted: the same messages as from the dialogue without TLS, however packets arrive."""

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
from kafkasniff.packets import PacketBatch
from kafkasniff.tables.checkpoint import dump, load
from kafkasniff.tls.keylog import KeyLog
from tests.choice import examples, one_in
from tests.craft.batches import batch
from tests.craft.outcome import outcome, output, packets_outcome
from tests.craft.packet import Packet
from tests.tls.endpoints import NO_ENCRYPT_THEN_MAC, Pair, Talk, kafka_talk, new_folder, packets_of
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


@pytest.mark.parametrize("name", ["ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA384", "AES128-SHA256"])
def test_cbc_that_is_authenticated_before_encryption(name: str) -> None:
    made = talk(V12, name, NO_ENCRYPT_THEN_MAC)
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


@pytest.mark.parametrize("version", [V12, V13])
def test_an_alert_after_the_dialogue(version: ssl.TLSVersion) -> None:
    made = Pair(version=version).talk(kafka_talk(), refuses=True)
    found = decrypted(packets_of(made.flights), made.key_log)
    assert contents(found) == clear_contents(made.clear)
    (problem,) = found.problems
    assert problem["kind"] == "tls-alert"
    assert problem["detail"] == "the client ended TLS with the alert bad_record_mac (20)"


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


def test_a_key_log_with_the_secrets_of_the_data_only() -> None:
    made = talk(V13)
    log = b"".join(line for line in made.key_log.splitlines(keepends=True) if b"TRAFFIC_SECRET_0" in line)
    for grows in (False, True):
        check(made, log, grows=grows)
