"""Trace ids of records in text, JSON lines, the table and filters; they are removed together with the payload."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.console import kafkasniff
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation
from tests.craft.write import write_pcap
from tests.kafka.records_craft import GZIP, Record, batch_of

ONE, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "80f198ee56343ba864fe8b2a57d3eff7"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Correlation id 2 produces a record with one id, 3 with none; 4 fetches one with another id, compressed."""
    with_one = batch_of([Record(0, 0, None, b"a"), Record(1, 0, b"k", b"b", (("traceparent", _w3c(ONE)),))])
    with_other = batch_of([Record(0, 0, b"k", b"c", (("b3", f"{OTHER}-e457b5a2e4d86bd1".encode()),))], GZIP)
    talk = Conversation()
    talk.handshake()
    talk.exchange(kafka.api_versions_request(1), kafka.api_versions_response(1))
    for number, batch in ((2, with_one), (3, batch_of([Record(0, 0, None, b"d", (("h", b"x"),))]))):
        talk.exchange(kafka.produce_request(number, "orders", batch), kafka.produce_response(number, "orders", 0))
    talk.exchange(kafka.fetch_request(4, "orders", 0), kafka.fetch_response(4, "orders", with_other, 5))
    talk.close()
    return write_pcap(tmp_path_factory.mktemp("traced") / "traced.pcap", talk.packets)


def _w3c(number: str) -> bytes:
    return f"00-{number}-00f067aa0ba902b7-01".encode()


def test_text_and_json(traced: Path) -> None:
    text = kafkasniff("decode", "-q", "-vv", "--filter", "has trace_id", traced).text
    assert "_trace_ids: [1]" in text
    assert f'"{ONE}"' in text
    (request, _) = kafkasniff("decode", "-q", "--format", "json", "--correlation-id", 2, traced).objects
    first, second = request["body"]["topic_data"][0]["partition_data"][0]["records"]["batches"][0]["records"]
    assert "_trace_ids" not in first
    assert second["_trace_ids"] == [ONE]
    for option in ("--no-payload", "--hash-payload"):
        hidden = kafkasniff("decode", "-q", "--format", "json", option, traced).text
        assert "_trace_ids" not in hidden
        assert ONE not in hidden
