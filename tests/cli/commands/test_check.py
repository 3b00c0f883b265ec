"""`kafkasniff check`: exit codes and options; `screens/check.txt` has what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis.detectors import detector_names
from kafkasniff.cli.environment import Exit
from tests.analysis.detectors import scenes
from tests.analysis.detectors.talks import capture_of
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

ONLY = ("--only", "oversized-messages,acks-zero")


@pytest.fixture(scope="module")
def too_large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two Produce requests refused for their size: an error."""
    scene = scenes.produced(2, scenes.records(1, 3000), error=10)
    return capture_of(tmp_path_factory.mktemp("check") / "large.pcap", scene)


@pytest.fixture(scope="module")
def without_acks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A producer that wants no answers: a note."""
    scene = scenes.produced(2, scenes.records(), acks=0, address="10.0.0.6")
    return capture_of(tmp_path_factory.mktemp("check") / "acks.pcap", scene)


def answered(*arguments: object, **options: Any) -> dict[str, Any]:
    (found,) = kafkasniff("check", "--format", "json", *arguments, **options).objects
    return found


@pytest.mark.parametrize(
    ("fail_on", "codes"),
    [
        ("never", (Exit.OK, Exit.OK)),
        ("error", (Exit.OK, Exit.FINDINGS)),
        ("warning", (Exit.OK, Exit.FINDINGS)),
        ("note", (Exit.FINDINGS, Exit.FINDINGS)),
        (None, (Exit.OK, Exit.FINDINGS)),
    ],
)
def test_exit_codes(
    fail_on: str | None, codes: tuple[Exit, Exit], too_large: Path, without_acks: Path, tmp_path: Path
) -> None:
    """For a note, and for an error. Findings take precedence over a capture that is cut."""
    options = (*ONLY, *(["--fail-on", fail_on] if fail_on else []))
    cut = tmp_path / "cut.pcap"
    for path, code in zip((without_acks, too_large), codes, strict=True):
        assert kafkasniff("check", path, *options).code == code
        cut.write_bytes(path.read_bytes()[:-7])
        assert kafkasniff("check", cut, *options).code == (code or Exit.BROKEN)


def test_selections(too_large: Path, without_acks: Path) -> None:
    both = answered(too_large, without_acks, *ONLY)
    assert both["counts"] == {"error": 1, "warning": 0, "note": 1}
    assert both["findings"][1]["subject"] == {"client_id": "crafted", "client_ip": "10.0.0.6"}
    assert answered(too_large, *ONLY, "--topic", "orders")["counts"]["error"] == 1
    assert answered(too_large, *ONLY, "--exchange", "2")["findings"][0]["count"] == 1
    assert answered(too_large, *ONLY, "--api", "Fetch")["findings"] == []
    assert answered(too_large, *ONLY, "--port", "9093")["findings"] == []
    limited = answered(too_large, "--only", "oversized-messages", "--set", "oversized-messages.limit=3000")
    assert [one["severity"] for one in limited["findings"]] == ["error"]
    assert answered(too_large, "--skip", ",".join(detector_names()))["findings"] == []


@pytest.mark.parametrize(("lasting", "severity"), [("2s", "error"), ("1m", "note")])
def test_a_topic_that_is_missed_only_at_the_end(lasting: str, severity: str) -> None:
    """It may be created soon: clients were refused for 9 s of the capture."""
    capture = ROOT / "captures" / "faults" / "topic-missing.pcap"
    found = answered(capture, "--only", "missing-topics", "--set", f"missing-topics.lasting={lasting}")
    assert [one["severity"] for one in found["findings"]] == [severity]


def test_an_export(too_large: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    kafkasniff("export", too_large, "-o", folder)
    result = kafkasniff("check", folder, *ONLY)
    assert result.code == Exit.FINDINGS
    # Rows have no numbers, only the key of the tables, which leads to the exchange in its capture.
    (finding,) = answered(folder, *ONLY)["findings"]
    place = finding["evidence"][0]
    assert f"connection_id {place['connection_id']} exchange_id {place['exchange_id']}" in " ".join(result.text.split())
    assert (place["exchange"], place["connection"]) == (None, None)
    assert "decode --exchange CONNECTION_ID/EXCHANGE_ID CAPTURE" in result.text
    together = answered(folder, too_large, *ONLY)
    assert together["findings"][0]["count"] == 4


def test_missing_parts_of_an_export_are_reported(too_large: Path, tmp_path: Path) -> None:
    """The text of bodies is not needed; without any columns from bodies little is left."""
    for option, found in (("--no-json", 1), ("--no-bodies", 0)):
        folder = tmp_path / option
        assert kafkasniff("export", too_large, "-o", folder, option).code == Exit.OK
        result = kafkasniff("check", folder, "--only", "late-answers,oversized-messages", "--format", "json")
        (reported,) = result.objects
        assert len(reported["findings"]) == found
        assert ("only headers (--no-bodies)" in " ".join(reported["notes"])) == (found == 0)
        assert ("--no-bodies" in result.err.replace(str(folder), "")) == (found == 0)
