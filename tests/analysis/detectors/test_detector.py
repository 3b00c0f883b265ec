"""Names, summaries and evidence of detectors; their state keeps everything that a merge needs."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from kafkasniff.analysis.detectors import detector_names, find_detector, run
from kafkasniff.analysis.detectors.detector import evidence_shape
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE
from kafkasniff.analysis.parameters import parameters_of
from kafkasniff.analysis.partials import Partials
from kafkasniff.errors import UsageError
from kafkasniff.tables.rows.schemas import TABLES
from tests.analysis.detectors import scenes
from tests.analysis.detectors.talks import checked
from tests.conftest import ROOT
from tests.golden import golden_file


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


def test_the_earliest_of_each_subject_are_kept() -> None:
    """Given 3 subjects with 40 exchanges each, in any order, those with the lowest times are kept."""
    rows = [(subject, time) for subject in "abc" for time in range(40)]
    for seed in range(3):
        Random(seed).shuffle(rows)
        part = Partials(evidence_shape((("subject", pa.string()),)))
        for start in range(0, len(rows), 17):
            some = rows[start : start + 17]
            times = [time for _, time in some]
            columns = {
                "time_ns": times,
                "connection_id": [1] * len(some),
                "exchange_id": times,
                "note": [""] * len(some),
            }
            part.add({"subject": [subject for subject, _ in some], **columns})
        kept = sorted((row["subject"], row["time_ns"]) for row in part.table().to_pylist())
        assert kept == [(subject, time) for subject in "abc" for time in range(MAX_EVIDENCE)]


def test_evidence_has_the_numbers_of_decode() -> None:
    """Each number refers to the line of the golden file that has the error."""
    capture = ROOT / "captures" / "java-errors.pcap"
    lines = [json.loads(line) for line in golden_file(capture).read_text().splitlines()]
    errors = {line["exchange"]: line for line in lines if line.get("errors")}
    found = run([str(capture)], only=["hidden-errors", "oversized-messages"]).findings
    assert [one.severity for one in found].count("error") == 3
    for finding in found:
        for one in finding.evidence:
            assert one.exchange is not None
            line = errors[one.exchange]
            assert line["connection"] == one.connection
            assert finding.subject["error_code"] in [error["code"] for error in line["errors"]]
            assert finding.subject.get("api") in (None, line["api"])


def test_more_exchanges_than_numbers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound, evidence carries the key used in the tables."""
    monkeypatch.setattr("kafkasniff.analysis.detectors.numbers.MAX_NUMBERED", 3)
    (found,) = checked(tmp_path / "many.pcap", scenes.late(), "late-answers").findings
    numbers = [one.exchange for one in found.evidence]
    assert len(numbers) == 6
    assert numbers[:2] == [1, 2]
    assert numbers[3:] == [None] * 3
    assert [one.exchange_id for one in found.evidence] == sorted(one.exchange_id or 0 for one in found.evidence)
    monkeypatch.setattr("kafkasniff.analysis.detectors.numbers.MAX_CONNECTIONS", 0)
    (found,) = checked(tmp_path / "many.pcap", scenes.late(), "late-answers").findings
    assert {(one.connection, one.exchange) for one in found.evidence} == {(None, None)}
