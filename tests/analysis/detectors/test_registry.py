"""Common properties of all detectors: thresholds, numbers, and results that depend on the rows alone."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.detectors import SEVERITIES, Detectors, Finding, detector_names, find_detector, run
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.parameters import parameters_of
from kafkasniff.errors import UsageError
from kafkasniff.tables.rows.schemas import TABLES
from tests.analysis.detectors import scenes
from tests.analysis.detectors.talks import checked
from tests.analysis.exports import write_export
from tests.analysis.tables import exchange, partition
from tests.analysis.test_accumulator import merged_in_parts, pool_batch
from tests.choice import examples, one_in
from tests.conftest import ROOT
from tests.golden import golden_file
from tests.steps import steps

# Low enough that the rows of the pool yield findings.
LOW = (
    *("unanswered-requests.after=0", "late-answers.late=1ms", "metadata-storms.at_least=1", "all-topics.at_least=1"),
    *("rebalance-storms.at_least=1", "frequent-commits.at_least=1", "oversized-messages.limit=4000"),
    *(
        "small-batches.at_least=1",
        "small-batches.records=20",
        "small-batches.per_second=0",
        "throttled-clients.total=0",
    ),
    *("uncompressed-batches.size=1", "uncompressed-batches.batch=0", "empty-fetches.at_least=1"),
    *("empty-fetches.share=0", "empty-fetches.wait=1m"),
)


def fresh() -> Detectors:
    return Detectors(settings=LOW)


def test_each_detector_matches_its_name() -> None:
    names = detector_names()
    assert len(set(names)) == len(names)
    for name in names:
        found = find_detector(name)
        assert (found.name, found.name.replace("-", "").isalnum()) == (name, True)
        assert found.summary.endswith(".")
        for table, reading in found().reads().items():
            # Inputs that exports do not have are optional: only captures provide them.
            assert set(reading.columns) <= set(TABLES[table].names) if table in TABLES else reading.optional, name
        for one in parameters_of(found):
            assert one.help.endswith((".", "…")), (name, one.name)
    assert find_detector("Late_Answers").name == "late-answers"
    with pytest.raises(UsageError, match="late-answers"):
        find_detector("late-answer")


@pytest.mark.parametrize(
    "settings",
    [
        *("late-answers.late", "late=1s", "nobody.late=1s", "late-answers.nothing=1", "not-leader.at_least=1"),
        *(f"late-answers.late={value}" for value in ("soon", "99999999999999999999s")),
        *(f"late-answers.at_least={value}" for value in ("0", "x", "nan")),
    ],
)
def test_invalid_thresholds(settings: str) -> None:
    with pytest.raises(UsageError):
        Detectors(only=["late-answers"], settings=[settings])


@functools.cache
def in_one() -> list[Finding]:
    whole = fresh()
    for table in tables():
        whole.update(pool_batch(table), table)
    return whole.findings()


def tables() -> Sequence[str]:
    return [table for table in fresh().reads() if table in ("exchanges", "records", "connections")]


def values_of(value: Any) -> list[Any]:
    return [one for each in value for one in values_of(each)] if isinstance(value, list | tuple) else [value]


def test_findings_of_the_pool() -> None:
    """Worst first, with bounded evidence in order of time, and plain values."""
    found = in_one()
    assert len({finding.detector for finding in found}) >= 12
    order = [SEVERITIES.index(finding.severity) for finding in found]
    assert order == sorted(order)
    for finding in found:
        json.loads(msgspec.json.encode(finding))
        assert len(finding.evidence) <= MAX_EVIDENCE
        times = [one.time_ns for one in finding.evidence if one.time_ns is not None]
        assert times == sorted(times)
        for value in [*finding.values.values(), *finding.subject.values()]:
            assert all(type(one) in (str, int, float, bool, type(None)) for one in values_of(value)), finding


@examples(2)
@given(data=st.data())
def test_any_split_order_and_merge_tree(data: st.DataObject) -> None:
    def sent(other: Detectors) -> Detectors:
        other.detectors = tuple(type(one).from_state(one.state()) for one in other.detectors)
        return other

    merged = merged_in_parts(data, tables(), fresh, sent)
    assert merged.findings() == in_one()
    assert merged.findings() == in_one(), "taking the findings changes something"


def test_other_states_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="same detectors"):
        Detectors(["acks-zero"]).merge(Detectors(["all-topics"]))
    with pytest.raises(ValueError, match="merged"):
        Detectors(["acks-zero"]).merge(Detectors(["acks-zero"], settings=["acks-zero.at_least=2"]))


def test_findings_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.analysis.detectors.registry.MAX_FINDINGS", 2)
    detectors = Detectors(["acks-zero"])
    detectors.update(pa.RecordBatch.from_pylist(silent_producers(3), schema=TABLES["exchanges"]))
    assert [one.subject["client_id"] for one in detectors.findings()] == ["p0", "p1"]
    assert detectors.notes() == ["acks-zero: 1 more findings are not shown"]


def silent_producers(count: int) -> list[dict[str, Any]]:
    return [exchange("Produce", place, acks=0, client_id=f"p{place}", exchange_id=place) for place in range(count)]


def test_clients_with_the_same_trouble_share_a_finding() -> None:
    """Up to three stay apart."""
    detectors = Detectors(["acks-zero"])
    detectors.update(pa.RecordBatch.from_pylist(silent_producers(400), schema=TABLES["exchanges"]))
    (found,) = detectors.findings()
    assert found.title.endswith("acks=0; similar for 399 other clients")
    assert (found.count, found.subject["client_id"], found.values["clients"]) == (400, None, 400)
    assert len(found.values["worst_clients"]) == 20
    assert len(found.evidence) == MAX_EVIDENCE
    assert detectors.notes() == []


def refused(topics: int, code: int) -> list[dict[str, Any]]:
    """A Produce request for many topics, refused for each."""
    parts = [partition(f"t{place}", error_code=code, record_count=1, bytes=80) for place in range(topics)]
    return [exchange("Produce", 0, acks=-1, client_id="p", error_count=topics, partitions=parts)]


@pytest.mark.parametrize("code", one_in(3, [3, 10, 87]))
def test_work_is_linear_in_refused_topics(code: int) -> None:
    def work(topics: int) -> int:
        batch = pa.RecordBatch.from_pylist(refused(topics, code), schema=TABLES["exchanges"])
        detectors = Detectors(["hidden-errors", "oversized-messages", "lost-records"])
        detectors.update(batch)
        return steps(detectors.findings)

    little, much = work(200), work(800)
    assert little > 800
    assert much < 5 * little, f"{much} steps for 4 times of what takes {little}"


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


def test_evidence_has_the_numbers_of_decode() -> None:
    """Each number refers to the line of the golden file that has the error."""
    capture = ROOT / "captures" / "java-errors.pcap"
    lines = [json.loads(line) for line in golden_file(capture).read_text().splitlines()]
    errors = {line["exchange"]: line for line in lines if line.get("errors")}
    found = run([str(capture)], only=["hidden-errors", "oversized-messages"]).findings
    assert [one.severity for one in found].count("error") == 3
    for finding in found:
        for one in finding.evidence:
            line = errors[one.exchange]
            assert line["connection"] == one.connection
            assert finding.subject["error_code"] in [error["code"] for error in line["errors"]]
            assert finding.subject.get("api") in (None, line["api"])


def test_more_exchanges_than_numbers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound, evidence carries the key used in the tables."""
    monkeypatch.setattr("kafkasniff.analysis.detectors.finding.MAX_NUMBERED", 3)
    (found,) = checked(tmp_path / "many.pcap", scenes.late(), "late-answers").findings
    assert [one.exchange for one in found.evidence] == [1, 2, 3, None, None, None]
    assert [one.exchange_id for one in found.evidence] == sorted(one.exchange_id or 0 for one in found.evidence)
    monkeypatch.setattr("kafkasniff.analysis.detectors.finding.MAX_CONNECTIONS", 0)
    (found,) = checked(tmp_path / "many.pcap", scenes.late(), "late-answers").findings
    assert {(one.connection, one.exchange) for one in found.evidence} == {(None, None)}
