"""`export --format otlp`: captures as spans, sent to a receiver on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation
from tests.craft.write import write_pcap
from tests.kafka.records_craft import Record, batch_of
from tests.otlp.receiver import Receiver, attributes, receiving
from tests.secret_traffic import capture, found_in
from tests.test_docs import blocks, commands

CAPTURES = ROOT / "captures"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def export(receiver: Receiver, *arguments: object) -> tuple[int, str]:
    done = kafkasniff("export", "--format", "otlp", "-o", receiver.url, *arguments)
    assert done.out == b""
    return done.code, done.err


@pytest.mark.parametrize("name", one_in(2, ["java-errors.pcap", "librdkafka-codecs.pcap"]))
def test_every_exchange_is_a_span(name: str) -> None:
    lines = kafkasniff("decode", "-q", "--format", "json", CAPTURES / name).objects
    requests = [line for line in lines if line["type"] == "request"]
    with receiving() as receiver:
        code, said = export(receiver, CAPTURES / name)
    assert (code, len(receiver.spans)) == (0, len(requests))
    assert said.startswith(f"kafkasniff: {len(requests)} spans sent: ")
    sent = sorted(
        (one["kafkasniff.correlation_id"], one["messaging.operation.name"]) for one in map(attributes, receiver.spans)
    )
    assert sent == sorted((line["correlation_id"], line["api"]) for line in requests)
    errors = {line["errors"][0]["name"] for line in lines if line.get("errors")}
    assert {one["error.type"] for one in map(attributes, receiver.spans) if "error.type" in one} >= errors
    counts = receiver.metrics["kafkasniff.requests"].sum.data_points
    assert sum(point.as_int for point in counts) == len(requests)


def test_the_transcript_of_the_documentation() -> None:
    (block,) = [one for one in blocks(ROOT / "docs" / "otlp.md") if "--format otlp" in one.text]
    ((command, shown),) = commands(block)
    with receiving() as receiver:
        words = command.replace("http://localhost:4318", receiver.url).split()
        done = kafkasniff(*words[1:-1], ROOT / words[-1])
    assert done.code == 0
    assert done.err.splitlines() == shown
    assert len(receiver.spans) == int(done.err.split()[1])


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    talk = Conversation()
    talk.handshake()
    record = Record(0, 0, b"hidden key", b"hidden value", (("traceparent", f"00-{TRACE}-{SPAN}-01".encode()),))
    talk.exchange(kafka.produce_request(2, "orders", batch_of([record])), kafka.produce_response(2, "orders", 0))
    talk.close()
    return write_pcap(tmp_path / "traced.pcap", talk.packets)


@pytest.mark.parametrize("option", one_in(2, ["--hash-payload", "--no-payload"]))
def test_hidden_payload_has_no_links(option: str, traced: Path) -> None:
    with receiving() as receiver:
        assert export(receiver, "-q", option, traced) == (0, "")
    (span,) = receiver.spans
    assert not span.links
    assert bytes.fromhex(TRACE) not in receiver.requests[0].SerializeToString()


@pytest.mark.parametrize("options", one_in(2, [["--show-secrets"], []]))
def test_secrets_are_not_sent(options: list[str], tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "secrets.pcap", capture(), nanoseconds=True)
    with receiving() as receiver:
        code, _ = export(receiver, "-q", *options, path)
    assert code == 0
    assert len(receiver.spans) > 30
    assert found_in(b"".join(one.SerializeToString() for one in (*receiver.requests, *receiver.reports))) == set()


def test_a_receiver_that_refuses() -> None:
    with receiving() as receiver:
        receiver.status = 400
        code, said = export(receiver, CAPTURES / "librdkafka-codecs.pcap")
    assert code == Exit.UNAVAILABLE
    assert "warning: the OTLP receiver did not accept spans: " in said
    assert "0 spans sent, 55 not delivered" in said
