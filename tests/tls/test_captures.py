"""Captures of real brokers with TLS (`captures/tls`), compared with the clients' own logs and tshark."""

from __future__ import annotations

import functools
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.tcp.packets import PacketBatch
from kafkasniff.tls.wording import CLIENT_LEFT, LEFT_AT_ONCE
from tests.cli.console import kafkasniff
from tests.craft.outcome import Line, output, packets_outcome
from tests.craft.write import pcap_bytes
from tests.tls import captured
from tests.tls.captured import (
    ENTRIES,
    WITH_SECRETS,
    by_connection,
    by_tshark,
    frames,
    in_clear,
    key_log,
    packets,
    sidecar,
)
from tests.tls.reading import CONTENT, contents, decrypted

every_decrypted = pytest.mark.parametrize("name", WITH_SECRETS)

TOLD = ("api_key", "api_version", "correlation_id", "client_id", "client_port", "size")


def messages(name: str, kind: str) -> list[Line]:
    """kafkasniff's messages with the field names of sidecars."""
    found = [line for line in captured.outcome(name).lines if line["type"] == kind]
    return [line | {"client_port": int(line["client"].rpartition(":")[2])} for line in found]


def differing(name: str, kind: str) -> tuple[Counter[Any], Counter[Any]]:
    """Messages that only kafkasniff has, and that only the client's log has, by the fields of its lines."""
    said = [line for line in sidecar(name) if line["kind"] == kind]
    reported = [field for field in TOLD if all(field in line for line in said)]
    assert len(reported) > 2
    seen = Counter(tuple(line[field] for field in reported) for line in messages(name, kind))
    logged = Counter(tuple(line[field] for field in reported) for line in said)
    return seen - logged, logged - seen


@every_decrypted
def test_the_requests_are_those_of_the_clients_log(name: str) -> None:
    assert ENTRIES[name]["requests_complete"]
    assert differing(name, "request") == (Counter(), Counter())


@every_decrypted
def test_the_responses_of_the_clients_log_are_there(name: str) -> None:
    # Responses that arrived while the client closed are not in its log.
    assert differing(name, "response")[1] == Counter()


@every_decrypted
def test_records_are_those_that_the_client_wrote(name: str) -> None:
    wrote = Counter(record_of(line["topic"], line) for line in sidecar(name) if line["kind"] == "produced")
    sent = Counter(
        record_of(topic_of(name, topic), record)
        for line in captured.outcome(name).lines
        if line["type"] == "request" and line["api"] == "Produce"
        for topic in line["body"]["topic_data"]
        for partition in topic["partition_data"]
        for each in partition["records"]["batches"]
        for record in each["records"]
    )
    assert wrote
    assert sent == wrote


def record_of(topic: str, record: Line) -> tuple[str, str, str]:
    return topic, repr(record["key"]), repr(record["value"])


def topic_of(name: str, topic: Line) -> str:
    """Newer versions of Produce name topics by their ids."""
    return topic["name"] if "name" in topic else topic_names(name)[topic["topic_id"]]


@functools.cache
def topic_names(name: str) -> dict[str, str]:
    return {
        topic["topic_id"]: topic["name"]
        for line in captured.outcome(name).lines
        if line["type"] == "response" and line["api"] == "Metadata"
        for topic in line["body"]["topics"]
    }


@every_decrypted
def test_every_connection_is_decrypted(name: str) -> None:
    found = captured.outcome(name)
    # A client that closes while it waits for records.
    assert {line["kind"] for line in found.problems} <= {"request-unanswered"}
    summary = found.summary
    assert (summary.bytes_lost, summary.not_kafka, summary.undecided) == (0, 0, 0)
    assert summary.bytes_decoded + summary.bytes_skipped == summary.bytes_stream


# -- tshark ----------------------------------------------------------------------------------------------------------

RequireTool = Callable[[str], str]


@pytest.mark.tshark
@every_decrypted
def test_tshark_decrypts_the_same_bytes(require_tool: RequireTool, name: str) -> None:
    """Each connection, byte by byte: kafkasniff decodes the same from TLS as from tshark's clear bytes."""
    theirs = by_tshark(require_tool("tshark"), name)
    ours = by_connection(captured.outcome(name).lines)
    assert theirs.streams.keys() == ours.keys()
    for connection, clear in theirs.streams.items():
        lines = ours[connection]
        expected = contents(in_clear(clear))
        found = [{field: line.get(field) for field in CONTENT} for line in lines]
        for kind in ("request", "response"):
            assert of_kind(found, kind) == of_kind(expected, kind)
        for kind, data in (("request", clear.client), ("response", clear.broker)):
            walked = [(len(frame), frame[4:8] if kind == "request" else frame[:4]) for frame in frames(data)]
            assert walked == [
                (line["size"], line["correlation_id"].to_bytes(4, signed=True)) for line in of_kind(found, kind)
            ]
    total = sum(len(data) for clear in theirs.streams.values() for data in clear)
    assert captured.outcome(name).summary.bytes_decoded == total


def of_kind(lines: list[Line], kind: str) -> list[Line]:
    return [line for line in lines if line["type"] == kind]


@pytest.mark.tshark
@every_decrypted
def test_tshark_sees_the_same_messages_in_the_same_packets(require_tool: RequireTool, name: str) -> None:
    theirs = by_tshark(require_tool("tshark"), name)
    ours = by_connection(captured.outcome(name).lines)
    count = 0
    for connection, seen in theirs.messages.items():
        lines = ours[connection]
        count += len(seen)
        for is_request, kind in ((True, "request"), (False, "response")):
            names = ("api_key", "api_version", "client_id") if is_request else ()
            assert [
                (line["last_packet"], *(line[field] for field in names), line["correlation_id"], line["size"])
                for line in of_kind(lines, kind)
            ] == [
                (
                    message.packet,
                    *((message.api_key, message.api_version, message.client_id) if is_request else ()),
                    message.correlation_id,
                    message.size,
                )
                for message in seen
                if message.is_request is is_request
            ]
    assert count == sum(line["type"] in ("request", "response") for line in captured.outcome(name).lines)


# -- without secrets -------------------------------------------------------------------------------------------------


@every_decrypted
def test_without_secrets_each_connection_is_one_problem(name: str) -> None:
    """It has the version and the cipher that the handshake agreed on, and for TLS 1.2 the certificate's subject."""
    found = packets_outcome(packets(name))
    talks = {line["connection"] for line in captured.outcome(name).lines}
    assert sorted(line["connection"] for line in found.lines) == sorted(talks)
    for line in found.lines:
        assert (line["type"], line["kind"]) == ("problem", "tls-not-decrypted")
        reported = re.search(r": this is TLS (1\.[23]) with (TLS_\w+), (.*?), (.*?), (.*); (.*)$", line["detail"])
        assert reported, line["detail"]
        version, cipher, server_name, alpn, certificate, reason = reported.groups()
        assert cipher in CIPHERS[version]
        assert server_name in {"server name localhost", "no server name"}
        assert alpn == "no ALPN"
        assert certificate in CERTIFICATES[version]
        assert reason == "there are no keys for it (--keylog FILE)"


CIPHERS = {
    "1.2": {
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
    },
    "1.3": {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"},
}
CERTIFICATES = {
    # A resumed session shows none.
    "1.2": {"certificate of CN=broker.example,O=Captures", "no certificate captured"},
    "1.3": {"certificate not visible (TLS 1.3)"},
}


def test_the_captures_show_all_intended_cases() -> None:
    ciphers = set()
    for name in WITH_SECRETS:
        found = " ".join(line["detail"] for line in packets_outcome(packets(name)).lines)
        ciphers |= set(re.findall(r"TLS_\w+", found))
        assert ("server name localhost" in found) != name.startswith("tls-terminator"), name
        if name.startswith("tls12"):
            assert set(re.findall(r"TLS_\w+", found)) == CIPHERS["1.2"] - {"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
    assert ciphers == CIPHERS["1.2"] | CIPHERS["1.3"]


# -- mistakes --------------------------------------------------------------------------------------------------------


def reasons(name: str) -> dict[int, list[str]]:
    """The reports about connections that cannot be read as Kafka, by the place of their listener."""
    ports = ENTRIES[name]["broker_ports"]
    found: dict[int, list[str]] = {}
    for line in captured.outcome(name).lines:
        if line["type"] == "problem" and line["kind"] in ("tls-not-decrypted", "answer-not-kafka"):
            packet = packets(name)[line["packet"] - 1]
            port = packet.dport if packet.dport in ports else packet.sport
            found.setdefault(ports.index(port), []).append(line["detail"])
    return found


def test_a_client_without_tls_at_a_listener_with_it() -> None:
    found = reasons("tls-plaintext-client")
    assert sorted(found) == [0, 1]
    for details in found.values():
        assert set(details) == {
            "a client that speaks Kafka without TLS is answered with an alert of TLS (the client takes it for a "
            "response of 352,518,912 bytes): the listener expects TLS (security.protocol SSL or SASL_SSL)"
        }
    requests = [line for line in captured.outcome("tls-plaintext-client").lines if line["type"] == "request"]
    assert {line["api"] for line in requests} == {"ApiVersions"}
    assert len(requests) == sum(map(len, found.values()))


def test_a_client_with_tls_at_a_listener_without_it() -> None:
    (details,) = reasons("tls-plaintext-listener").values()
    for detail in details:
        assert detail.endswith(
            ": this is TLS 1.3 offered by the client, server name localhost, no ALPN, no certificate captured; no "
            "answer of the other side is in the capture: a listener without TLS just closes the connection"
        )
    assert len(details) == len({line["connection"] for line in captured.outcome("tls-plaintext-listener").lines})


REFUSED = (
    ("1.2", "the client ended the handshake with the alert unknown_ca (48)"),
    ("1.3", "the client ended the handshake with the alert unknown_ca (48)"),
    (
        "1.2",
        "the other side ended the handshake with the alert bad_certificate (42): the server asked for a certificate, "
        "and the client has none",
    ),
    # Alerts of a server are encrypted in TLS 1.3.
    (
        "1.3",
        "the server answered the client's part of the handshake with a record as short as an alert: it refused the "
        "client; the server asked for a certificate, and the client has none",
    ),
    ("1.3 offered by the client", "the other side ended the handshake with the alert handshake_failure (40)"),
)
"""For each listener of the scenario: what was negotiated, and why it ended. librdkafka logged the same."""


def test_failed_handshakes() -> None:
    found = reasons("tls-refused")
    assert sorted(found) == list(range(len(REFUSED)))
    for place, (version, reason) in enumerate(REFUSED):
        # When the client program finished, it dropped its last attempt in the middle of the handshake.
        *whole, last = found[place]
        assert whole
        for detail in whole:
            assert f"this is TLS {version}" in detail
            assert detail.endswith(f"; {reason}")
        dropped = ("it ended before its handshake was complete", CLIENT_LEFT, LEFT_AT_ONCE)
        assert last.endswith(tuple(f"; {why}" for why in (reason, *dropped)))
    said = [" ".join(line["told"]) for line in sidecar("tls-refused") if line["kind"] == "failed"]
    for text, words in zip(
        said, ("verify failed", "verify failed", "bad certificate", "bad certificate", "handshake failure"), strict=True
    ):
        assert words in text


@pytest.mark.tshark
def test_a_resumed_session_whose_secret_was_not_logged(require_tool: RequireTool) -> None:
    """Go logs no secret for later connections of a TLS 1.2 session; tshark cannot decrypt them either."""
    found = captured.outcome(captured.RESUMED)
    ours = by_connection(found.lines)
    refused = {line["connection"]: line["detail"] for line in found.problems}
    assert len(ours) == 2  # one by name and one by address, as the client caches sessions
    assert len(refused) == 5
    for detail in refused.values():
        assert detail.endswith("whose secret some clients log only with the first connection")
    assert by_tshark(require_tool("tshark"), captured.RESUMED).streams.keys() == ours.keys()


@pytest.mark.tshark
def test_sessions_are_resumed_and_keys_renewed_as_intended(require_tool: RequireTool) -> None:
    def count(name: str, display_filter: str) -> int:
        command = [require_tool("tshark"), "-n", "-r", str(captured.path(name)), "-Y", display_filter]
        return len(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())

    # A ServerHello with pre_shared_key (RFC 8446, 4.2.11); KeyUpdate (4.6.3), which only decryption shows.
    assert count("tls-go", "tls.handshake.type==2 && tls.handshake.extension.type==41") == 5
    assert count("tls13-key-update", "tls.handshake.type==24") >= 5
    assert count("tls-terminator-java", "tls.handshake.type==24") >= 3


# -- disturbances ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tls13-key-update", "tls-go"])
def test_batches_change_nothing(name: str) -> None:
    with open_captures([str(captured.path(name))]) as source:
        whole = output(source)
    with open_captures([str(captured.path(name))]) as source:
        single = output(part for part in _packets(source))
    assert single == whole


def _packets(source: Iterable[PacketBatch]) -> Iterator[PacketBatch]:
    for batch in source:
        rest = batch
        while len(rest) > 1:
            part, rest = rest.split(1)
            yield part
        yield rest


def test_a_separate_key_log_gives_the_same(tmp_path: Path) -> None:
    capture, keys = tmp_path / "without.pcap", tmp_path / "keys.log"
    capture.write_bytes(pcap_bytes(packets("tls-go")))
    keys.write_bytes(key_log("tls-go"))
    expected = kafkasniff("decode", "--format", "json", captured.path("tls-go"))
    assert expected.code == 0
    assert kafkasniff("decode", "--format", "json", "--keylog", keys, capture).out == expected.out


@pytest.mark.parametrize("name", ["tls12-kafka-python", "tls13-key-update"])
@pytest.mark.parametrize("every", [11, 17])
def test_lost_packets_lose_only_their_messages(name: str, every: int) -> None:
    """Every complete message left was sent like that; the rest is reported as problems, and bytes add up."""
    left = [packet for number, packet in enumerate(packets(name), 1) if number % every or not packet.payload]
    found = decrypted(left, key_log(name))
    whole = Counter(map(repr, contents(captured.outcome(name))))
    seen = Counter(repr(line) for line in contents(found) if not line["problems"])
    assert seen
    assert seen - whole == Counter()
    summary = found.summary
    assert summary.bytes_decoded + summary.bytes_skipped + summary.bytes_lost == summary.bytes_stream


@pytest.mark.parametrize("name", ["tls12-kafka-python", "tls13-key-update"])
def test_damaged_records_are_reported_and_never_read(name: str) -> None:
    dice = random.Random(name)
    damaged = [
        packet._replace(payload=_damaged(packet.payload, dice)) if not number % 13 else packet
        for number, packet in enumerate(packets(name))
    ]
    found = decrypted(damaged, key_log(name))
    whole = Counter(map(repr, contents(captured.outcome(name))))
    assert Counter(repr(line) for line in contents(found) if not line["problems"]) - whole == Counter()
    assert found.problems


def _damaged(payload: bytes, dice: random.Random) -> bytes:
    if not payload:
        return payload
    at = dice.randrange(len(payload))
    return payload[:at] + bytes((payload[at] ^ 1 << dice.randrange(8),)) + payload[at + 1 :]
