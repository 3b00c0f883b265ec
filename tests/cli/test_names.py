"""`--two-pass`, `--topic-ids`, and topic names in filters and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import kafkasniff
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation
from tests.craft.write import pcap_bytes
from tests.enrich.talks import OFFSETS, ORDERS, both


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
