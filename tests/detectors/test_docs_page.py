"""docs/check.md has every detector with its thresholds as they are, and every key of the JSON."""

from __future__ import annotations

import re

import msgspec
import pytest

from kafkasniff.analysis.parameters import parameters_of
from kafkasniff.analysis.visibility import REASONS, OtherProtocols, Undecoded, VisibleTraffic
from kafkasniff.detectors import SEVERITIES, Evidence, Finding, detector_names, find_detector
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "check.md").read_text()
SECTIONS = {section.partition("\n")[0]: section for section in re.split(r"^##+ ", PAGE, flags=re.M)[1:]}


def test_every_detector_is_there_and_no_other() -> None:
    listed = re.findall(r"^\| \[`([a-z-]+)`\]\(#([a-z-]+)\) \| (.*) \|$", SECTIONS["Detectors"], re.M)
    assert listed == [(name, name, find_detector(name).summary) for name in detector_names()]
    assert [name for name in SECTIONS if "-" in name] == list(detector_names())


@pytest.mark.parametrize("name", detector_names())
def test_thresholds(name: str) -> None:
    written = re.findall(r"^\| `(\w+)` \| (\S+) \| (.*) \|$", SECTIONS[name], re.M)
    expected = [
        (one.name, one.default_text if one.default_text is not None else str(one.default), one.help)
        for one in parameters_of(find_detector(name))
    ]
    assert written == expected


def keys(section: str) -> list[str]:
    rows = re.findall(r"^\| (`.*?`) \| ", SECTIONS[section], re.M)
    return [key for row in rows for key in re.findall(r"`(\w+)`", row)]


def test_keys() -> None:
    """That these are the keys of the JSON, `tests.cli.test_check` says."""
    assert keys("JSON") == ["sources", "broken", "counts", "findings", "notes", "visibility"]
    parts = {"visibility": VisibleTraffic, "undecoded": Undecoded, "not_kafka": OtherProtocols}
    for section, kind in parts.items():
        assert keys(section) == [field.name for field in msgspec.structs.fields(kind)]
    assert re.findall(r"^\| `([a-z-]+)` \| ", SECTIONS["Reasons"], re.M) == list(REASONS)
    assert set(keys("findings")) == {field.name for field in msgspec.structs.fields(Finding)}
    own = {field.name for field in msgspec.structs.fields(Evidence)}
    assert set(keys("evidence")) == own - {"time_ns"} | {"time"}
    assert all(f"`{severity}`" in PAGE for severity in SEVERITIES)
