"""Common properties of all detectors: thresholds, numbers, and results that depend on the rows alone."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.detectors import SEVERITIES, Detectors, Finding, detector_names, run
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE
from kafkasniff.analysis.export import Export
from kafkasniff.errors import UsageError
from kafkasniff.tables.rows.schemas import TABLES
from tests.analysis.detectors import scenes
from tests.analysis.detectors.pooled import LOW, fresh
from tests.analysis.detectors.talks import Talk, capture_of, checked
from tests.analysis.exports import write_export
from tests.analysis.tables import exchange, partition
from tests.analysis.test_accumulator import pool, pool_batch
from tests.choice import examples
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.enrich.talks import ORDERS


def test_selection_of_detectors() -> None:
    assert [one.name for one in Detectors().detectors] == list(detector_names())
    assert [one.name for one in Detectors(only=["not-leader", "late-answers"]).detectors] == [
        "late-answers",
        "not-leader",
    ]
    assert [one.name for one in Detectors(["late-answers", "not-leader"], ["late-answers"]).detectors] == ["not-leader"]
    (made,) = Detectors(["late-answers"], settings=["late-answers.late=2.5s", "late_answers.at-least=9"]).detectors
    assert (made.thresholds.late, made.thresholds.at_least) == (2_500_000_000, 9)


@pytest.mark.parametrize(
    "settings",
    [
        "late-answers.late",
        "late=1s",
        "nobody.late=1s",
        "late-answers.nothing=1",
        "late-answers.late=soon",
        "late-answers.at_least=0",
        "late-answers.at_least=x",
        "late-answers.late=99999999999999999999s",
        "late-answers.at_least=nan",
        "not-leader.at_least=1",
    ],
)
def test_invalid_thresholds(settings: str) -> None:
    with pytest.raises(UsageError):
        Detectors(only=["late-answers"], settings=[settings])


def test_values_that_are_not_numbers() -> None:
    for value in ("nan", "inf", "-inf", "1e300"):
        with pytest.raises(UsageError):
            Detectors(settings=[f"small-batches.per_second={value}"])


def said(detectors: Detectors) -> list[Finding]:
    return detectors.findings()


@functools.cache
def in_one() -> list[Finding]:
    whole = fresh()
    for table in tables():
        whole.update(pool_batch(table), table)
    return said(whole)


def tables() -> Sequence[str]:
    return [table for table in fresh().reads() if table in ("exchanges", "records", "connections")]


def test_the_pool_shows_something() -> None:
    found = {finding.detector for finding in in_one()}
    assert len(found) >= 12, found
    assert all(len(finding.evidence) <= MAX_EVIDENCE for finding in in_one())
    order = [SEVERITIES.index(finding.severity) for finding in in_one()]
    assert order == sorted(order)
    for finding in in_one():
        json.loads(msgspec.json.encode(finding))
        times = [one.time_ns for one in finding.evidence if one.time_ns is not None]
        assert times == sorted(times)


@examples(2)
@given(data=st.data())
def test_any_split_order_and_merge_tree(data: st.DataObject) -> None:
    pieces: list[tuple[str, list[int]]] = []
    for table in tables():
        order = list(range(len(pool(table))))
        Random(data.draw(st.integers(0, 2**32))).shuffle(order)
        cuts = sorted(data.draw(st.sets(st.integers(0, len(order)), max_size=2)))
        pieces += [(table, order[low:high]) for low, high in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    parts = [fresh() for _ in range(data.draw(st.integers(1, 2)))]
    for table, rows in data.draw(st.permutations(pieces)):
        parts[data.draw(st.integers(0, len(parts) - 1))].update(
            pool_batch(table).take(pa.array(rows, pa.int64())), table
        )
    while len(parts) > 1:
        other = parts.pop()
        if data.draw(st.booleans()):
            other.detectors = tuple(type(one).from_state(one.state()) for one in other.detectors)
        parts[data.draw(st.integers(0, len(parts) - 1))].merge(other)
    assert said(parts[0]) == in_one()
    assert said(parts[0]) == in_one()  # taking the findings changes nothing


def test_other_states_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="same detectors"):
        Detectors(["acks-zero"]).merge(Detectors(["all-topics"]))
    with pytest.raises(ValueError, match="merged"):
        Detectors(["acks-zero"]).merge(Detectors(["acks-zero"], settings=["acks-zero.at_least=2"]))


def test_findings_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.analysis.detectors.together.MAX_FINDINGS", 3)
    rows = [exchange("Produce", place, acks=0, client_id=f"p{place}", exchange_id=place) for place in range(5)]
    detectors = Detectors(["acks-zero"])
    detectors.update(pa.RecordBatch.from_pylist(rows, schema=TABLES["exchanges"]))
    assert [one.subject["client_id"] for one in detectors.findings()] == ["p0", "p1", "p2"]
    assert detectors.notes() == ["acks-zero: 2 more findings are not shown"]


def without_numbers(findings: list[Finding]) -> list[Finding]:
    replace = msgspec.structs.replace
    return [
        replace(one, evidence=tuple(replace(each, connection=None, exchange=None) for each in one.evidence))
        for one in findings
    ]


def everything() -> list[Talk]:
    """Many faults at once; each client has an address of its own."""
    made = [
        scenes.unanswered,
        scenes.late,
        scenes.hidden,
        scenes.stale,
        scenes.all_topics,
        scenes.storm,
        scenes.lost,
        scenes.commits(120, 0.01, error=22),
        scenes.produced(3, scenes.records(2), acks=0),
        scenes.repeated(45),
        scenes.hanging,
        scenes.fenced(3),
        scenes.produced(2, scenes.records(), throttle=600),
        scenes.fetches(210, 0.01),
    ]
    talks = []
    for number, scene in enumerate(made):
        for talk in scene():
            for packet_number, packet in enumerate(talk.packets):
                src, dst = (f"10.0.1.{number}" if end == "10.0.0.5" else end for end in (packet.src, packet.dst))
                talk.packets[packet_number] = packet._replace(src=src, dst=dst)
            talks.append(talk)
    return talks


def test_a_capture_and_its_export_agree(tmp_path: Path) -> None:
    capture = capture_of(tmp_path / "all.pcap", everything())
    assert kafkasniff("export", capture, "-o", tmp_path / "out").code == 0
    one, other = run([str(capture)]), run([str(tmp_path / "out")])
    assert {finding.detector for finding in one.findings} >= {
        "unanswered-requests", "late-answers", "hidden-errors", "not-leader", "all-topics", "rebalance-storms",
        "lost-members", "frequent-commits", "refused-commits", "acks-zero", "repeated-sequences",
        "hanging-transactions", "fenced-producers", "throttled-clients", "empty-fetches",
    }  # fmt: skip
    assert without_numbers(one.findings) == other.findings
    assert one.notes == []
    (note,) = other.notes
    assert note.startswith("broker-gone: exports do not contain failed connects and who closed first")


def test_a_topic_by_name_and_by_id_is_the_same(tmp_path: Path) -> None:
    """Refused by id before any message maps it to the name, and by name."""
    talk = Talk()
    data = [{"topic_id": ORDERS[0], "partition_data": [{"index": 0, "records": scenes.records()}]}]
    refused = [{"topic_id": ORDERS[0], "partition_responses": [{"index": 0, "error_code": 10}]}]
    talk.ask("Produce", 13, {"acks": 1, "topic_data": data}, {"responses": refused})
    scenes.produce(talk, scenes.records(), error=10)
    talk.exchange(
        kafka.metadata_request_by_id(9, [(kafka.NO_ID, "orders")]),
        kafka.metadata_response_with_ids(9, [(ORDERS[0], "orders")], [(1, "10.0.0.9", 9092)]),
    )
    (found,) = checked(tmp_path / "ids.pcap", [talk.ended()], "oversized-messages").findings
    assert (found.subject["topic"], found.count) == ("orders", 2)
    assert [one.exchange for one in found.evidence] == [1, 2]


def test_an_export_without_needed_columns(tmp_path: Path) -> None:
    folder = write_export(tmp_path / "some", connections=[])
    detectors = Detectors(["acks-zero", "late-answers"])
    detectors.read(Export.open(str(folder)))
    assert detectors.findings() == []
    (note,) = detectors.notes()
    assert note == f"skipped: late-answers, acks-zero: {folder} has no table exchanges"


def test_an_export_without_times_and_bodies() -> None:
    rows = [
        {
            **exchange("Produce", 0, status=status, acks=0, error_count=1, partitions=[partition(error_code=code)]),
            **gone,
        }
        for gone in ({"time": None, "time_ns": None}, {"client_id": None, "client_ip": None})
        for status, code in (("answered", 6), ("unanswered", 10), ("open", 45), ("answered", None), ("lost", 2))
    ]
    rows += [{**exchange(None, 0, status="orphan"), "error_count": None, "latency_us": None, "time_ns": None}]
    detectors = fresh()
    detectors.update(pa.RecordBatch.from_pylist(rows, schema=TABLES["exchanges"]))
    found = detectors.findings()
    assert {"not-leader", "oversized-messages", "acks-zero", "hidden-errors"} <= {one.detector for one in found}
    assert all(one.title and one.meaning and one.advice for one in found)


@pytest.mark.parametrize(
    "name",
    ["java-connect", "java-group-classic", "librdkafka-acks0", "old-groups", "sarama"],
)  # fmt: skip
def test_healthy_captures_yield_at_most_notes(name: str) -> None:
    answer = run([str(ROOT / "captures" / f"{name}.pcap")])
    assert [one for one in answer.findings if one.severity != "note"] == []
    assert answer.notes == []


def test_damaged_captures(tmp_path: Path) -> None:
    """Corrupt bytes yield findings, and never an exception."""
    whole, random = capture_of(tmp_path / "all.pcap", [*scenes.storm(), *scenes.hanging()]).read_bytes(), Random(5)
    path = tmp_path / "damaged.pcap"
    for turn in range(4):
        data = bytearray(whole[: random.randrange(24, len(whole))] if turn % 2 else whole)
        for _ in range(60):
            data[random.randrange(24, len(data))] = random.randrange(256)
        path.write_bytes(data)
        for finding in run([str(path)], settings=LOW).findings:
            assert finding.title.isprintable()


def test_no_rows() -> None:
    assert fresh().findings() == []
    assert fresh().notes() == []


def values_of(value: Any) -> list[Any]:
    return [one for each in value for one in values_of(each)] if isinstance(value, list | tuple) else [value]


def test_values_are_plain() -> None:
    for finding in in_one():
        for value in [*finding.values.values(), *finding.subject.values()]:
            assert all(type(one) in (str, int, float, bool, type(None)) for one in values_of(value)), finding
