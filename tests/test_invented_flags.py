"""Flags of an API in its definition besides payload and secrets: floats, names, weight, traffic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from kafkasniff.analysis.between_brokers import is_between_brokers
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.inspector_state import message_bytes
from kafkasniff.enrich import Enricher
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import RECORD_BYTES, body_bytes, likely_bytes, may_have_floats, request_plan
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.live.traffic import PRODUCED, topic_traffic
from kafkasniff.model import Connection, Direction, Exchange, Message
from tests.cli.console import kafkasniff
from tests.craft.batches import batch
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.write import write_pcap
from tests.invented import KEY, PAYLOAD, REPORT, SOFTWARE, known, packets
from tests.kafka.records_craft import GZIP, Record, batch_of

FLOATS = ["NaN", "Infinity", "-Infinity", 0.5]
TOPICS = ["orders", "payments", "__cluster_metadata", "shipments", "returns"]
DIRECTIONS: list[Direction] = ["request", "response"]


@pytest.fixture(scope="module", autouse=True)
def _known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with known(tmp_path_factory.mktemp("definitions")):
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pcap(tmp_path_factory.mktemp("invented") / "invented.pcap", packets(), nanoseconds=True)


@pytest.fixture(scope="module")
def events() -> list[Any]:
    inspector, enricher = Inspector(exchanges=True, connections=True), Enricher()
    return [*enricher.feed(inspector.feed(batch(packets()))), *enricher.feed(inspector.close())]


# -- floats ------------------------------------------------------------------------------------------------------------


def test_floats_in_lines(path: Path) -> None:
    assert may_have_floats(KEY)
    assert not may_have_floats(REPORT)
    for hiding in ([], ["--no-payload"], ["--hash-payload"]):
        lines = kafkasniff("decode", "-q", "--format", "json", *hiding, path).objects
        bodies = [line["body"] for line in lines if line["api"] == "Invented"]
        assert len(bodies) == 6
        for body in bodies:
            assert (body["rate"], body["rates"]) == ("NaN", FLOATS)
        inside = [line["body"][f"_{line['type']}"]["body"] for line in lines if line["api"] == "Envelope"]
        assert [body["rates"] for body in inside] == [FLOATS] * 2


# -- names -------------------------------------------------------------------------------------------------------------


def test_names_of_exchanges(events: list[Any]) -> None:
    exchanges = [one for one in events if isinstance(one, Exchange) and one.request is not None]
    for exchange in exchanges:
        if exchange.request.api_key in {KEY, 58}:
            named = mentions(exchange.request, exchange.response)
            assert list(named.topics) == TOPICS
            assert (list(named.groups), list(named.transactions)) == (["billing"], ["transfer-7"])
            assert {facts.record_count for facts in named.partitions.values() if facts.topic == "payments"} == {2}


def test_filters_by_topic(path: Path) -> None:
    for topic in ("orders", "payments", "shipments", "returns"):
        lines = kafkasniff("decode", "-q", "--format", "json", "--topic", topic, path).objects
        assert sum(line["api"] == "Invented" for line in lines) == 6, topic
    assert kafkasniff("decode", "-q", "--format", "json", "--topic", "nothing", path).objects == []
    lines = kafkasniff("decode", "-q", "--format", "json", "--filter", 'group_id == "billing"', path).objects
    assert {line["api"] for line in lines} == {"Invented", "Envelope"}


def test_filters_by_trace_ids_of_records(path: Path) -> None:
    for place, count in (("request second", 6), ("response slice 1", 6), ("response late part", 4)):
        trace = PAYLOAD[f"{place} trace id"].decode()
        lines = kafkasniff("decode", "-q", "--format", "json", "--filter", f'trace_id == "{trace}"', path).objects
        assert [line["api"] for line in lines] == ["Invented"] * count, place


def test_names_of_topic_ids(path: Path) -> None:
    """A request that reports names one of them, and its responses the other; its own requests only ask."""
    lines = kafkasniff("decode", "-q", "--format", "json", path).objects
    bodies = [line["body"] for line in lines if line["api"] == "Invented"]
    found = [[one.get("_topic_name") for one in body["ids"]] for body in bodies]
    assert found == [[None, "returns"], *[["shipments", "returns"]] * 5]


def test_roles_of_endpoints(events: list[Any], path: Path, tmp_path: Path) -> None:
    assert is_between_brokers(REPORT)
    assert not is_between_brokers(KEY)
    assert request_plan(REPORT, 0).needed
    assert request_plan(KEY, 2).has_records
    (connection,) = [one for one in events if isinstance(one, Connection)]
    assert (connection.software_name, connection.software_version) == SOFTWARE
    exchanges = [one for one in events if isinstance(one, Exchange) and one.request.api_key == KEY]
    assert {(one.broker_id, one.software_name, one.software_version) for one in exchanges} == {(4, *SOFTWARE)}
    kafkasniff("export", path, "--output", tmp_path / "out", "--no-bodies")
    rows = ds.dataset(tmp_path / "out" / "exchanges").to_table().to_pylist()
    assert {row["software_name"] for row in rows if row["api"] == "Report"} == {SOFTWARE[0]}


# -- weight ------------------------------------------------------------------------------------------------------------

MANY = 6_000


def _decoded(direction: Direction, **values: Any) -> Message:
    if direction == "request":
        data = request_bytes(KEY, 2, 1, **values)[4:]
        decoded = decode_request(data, 0, len(data), DecodeOptions())
    else:
        data = response_bytes(KEY, 2, 1, **values)[4:]
        decoded = decode_response(data, 0, len(data), KEY, 2, DecodeOptions())
    assert decoded.problems == ()
    return Message(direction, len(data), api_key=KEY, api_version=2, body=decoded.body)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_weight_of_records_wherever_they_are(direction: Direction) -> None:
    many = batch_of([Record(number, 0, None, b"") for number in range(MANY)], GZIP)
    for values in (
        *({"first": many}, {"slices": [many]}, {"optional": {"records": many}}, {"ids": [{"records": many}]}),
        *({"parts": [{"partitions": [{"records": many}]}]}, {"deep": {"deeper": {"several": [{"records": many}]}}}),
        *({"late_records": many}, {"late_parts": [{"records": many}]}),
    ):
        message = _decoded(direction, **values)
        assert message.size * 20 < MANY * RECORD_BYTES, "its bytes alone would say too little"
        found = likely_bytes(KEY, direction, message.size, message.body)
        real = body_bytes(message.body)
        assert MANY * RECORD_BYTES <= found <= 2 * real, values.keys()
        assert min(found, message_bytes(message)) >= 0.5 * real


# -- views of a live run -----------------------------------------------------------------------------------------------


def test_traffic_of_topics(events: list[Any]) -> None:
    first, *others = [topic_traffic(one) for one in events if isinstance(one, Message) and one.api_key == KEY]
    assert [one.topic for one in first[-2:]] == ["AAECAwQFBgcICQoLDA0ODw", "returns"]
    assert len(others) == 5
    for found in others:
        assert [one.topic for one in found] == TOPICS
        assert {one.flow for one in found} == {PRODUCED}
        records = {one.topic: one.records for one in found}
        assert (records["payments"], records["shipments"], records["returns"]) == (4, 2, 2)
        assert records["orders"] >= 14
        assert all(one.bytes > 60 * one.records / 2 for one in found)
    report = [one for one in events if isinstance(one, Message) and one.api_key == REPORT]
    assert [topic_traffic(one) for one in report] == [[], []]
