"""Names of topics (`--two-pass`, `--topic-ids`) and trace ids of records, in filters, text, JSON and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import kafkasniff
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation
from tests.craft.write import pcap_bytes, write_pcap
from tests.enrich.talks import OFFSETS, ORDERS, both
from tests.kafka.records_craft import GZIP, Record, batch_of


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fetch names topics by id; a little later Metadata on another connection maps the ids to names."""
    path = tmp_path_factory.mktemp("names") / "names.pcap"
    path.write_bytes(pcap_bytes(both(), nanoseconds=True))
    return path


def fetches(*arguments: object) -> list[Any]:
    result = kafkasniff("decode", "-q", "--format", "json", "--api", "Fetch", *arguments)
    assert (result.code, result.err) == (0, "")
    return [line["body"] for line in result.objects]


def test_names_apply_from_where_they_are_known(capture: Path) -> None:
    found = fetches(capture)
    assert "_topic_name" not in found[0]["topics"][0]
    assert found[4]["topics"] == [
        {"topic_id": OFFSETS[1], "_topic_name": "__consumer_offsets", "partitions": found[4]["topics"][0]["partitions"]}
    ]
    assert found[2]["_session"] == {"partitions": 2}
    assert list(found[2])[5:8] == ["session_id", "session_epoch", "_session"]


def test_two_passes(capture: Path) -> None:
    found = fetches(capture, "--two-pass")
    assert found[0]["topics"][0]["_topic_name"] == found[1]["responses"][0]["_topic_name"] == "orders"
    # Everything else is the same: a second pass adds only the names that become known late.
    forward = fetches(capture)
    for body in (found[0], found[1]):
        for topic in body.get("topics", body.get("responses")):
            del topic["_topic_name"]
    assert found == forward


def test_names_that_only_the_kraft_log_contains(tmp_path: Path) -> None:
    """The log's records are read where ids are unresolved, although lines of text need no records."""
    # A TopicRecord: frame version 1, type 2, version 0, then its fields.
    value = b"\1\2\0" + kafka.compact_string("orders") + ORDERS[0] + kafka.NO_TAGS
    log = bytes(15) + b"\1"
    talk = Conversation()
    talk.handshake()
    talk.exchange(
        kafka.fetch_request_by_id(1, [(ORDERS[0], [0])]), kafka.fetch_response_by_id(1, [(ORDERS[0], 0, b"")])
    )
    records = kafka.record_batch([kafka.record(0, None, value)])
    talk.exchange(kafka.fetch_request_by_id(2, [(log, [0])]), kafka.fetch_response_by_id(2, [(log, 0, records)]))
    path = tmp_path / "kraft.pcap"
    path.write_bytes(pcap_bytes(talk.packets, nanoseconds=True))
    forward, twice = kafkasniff("decode", path).text, kafkasniff("decode", "--two-pass", path).text
    assert forward.count(f"{ORDERS[1]}-0") == 2
    assert twice == forward.replace(ORDERS[1], "orders")


@pytest.mark.parametrize("form", ["{%s: %s}", "%s %s"])
def test_names_from_a_file(capture: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / "ids"
    quote = json.dumps if form.startswith("{") else str
    path.write_text(form % (quote(ORDERS[1]), quote("of-the-file")), encoding="utf-8-sig")
    assert fetches(capture, "--topic-ids", path)[0]["topics"][0]["_topic_name"] == "of-the-file"


def test_filters_find_topics_by_names_known_by_then(capture: Path) -> None:
    def found(*arguments: object) -> list[tuple[str, int]]:
        lines = kafkasniff("decode", "-q", "--format", "json", *arguments, capture).objects
        return [(line["api"], line["correlation_id"]) for line in lines if line["type"] == "request"]

    # The session's empty request refers to both topics by then, the first Fetch only where the name is known.
    assert found("--topic", "orders") == [("Metadata", 1), ("Metadata", 2), ("Fetch", 3), ("Fetch", 4)]
    assert ("Fetch", 2) in found("--topic", "orders", "--two-pass")
    assert found("--topic", "__consumer*") == [("Metadata", 1), ("Fetch", 4)]


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
