"""docs/detectors.md explains every detector, docs/json-check.md every key of the JSON.

`tests.test_reference` checks that lists and thresholds match the code.
"""

from __future__ import annotations

import re

import msgspec
import pytest

from kafkasniff.analysis.detectors import SEVERITIES, Evidence, Finding, detector_names
from kafkasniff.analysis.visibility import REASONS, OtherProtocols, Undecoded, VisibleTraffic
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "json-check.md").read_text()
HOW_TO = (ROOT / "docs" / "check.md").read_text()
DETECTORS = (ROOT / "docs" / "detectors.md").read_text()


def sections_of(page: str) -> dict[str, str]:
    return {section.partition("\n")[0]: section for section in re.split(r"^##+ ", page, flags=re.M)[1:]}


SECTIONS = sections_of(PAGE)


@pytest.mark.parametrize("name", detector_names())
def test_every_detector_is_explained(name: str) -> None:
    text = sections_of(DETECTORS)[name].partition("\n- `")[0]
    assert text.removeprefix(name).strip().startswith("Reports "), name


def keys(section: str) -> list[str]:
    rows = re.findall(r"^\| (`.*?`) \| ", SECTIONS[section], re.M)
    return [key for row in rows for key in re.findall(r"`(\w+)`", row)]


def test_keys() -> None:
    """`tests.cli.commands.test_check` checks that these are the keys of the JSON."""
    assert keys("Keys") == ["sources", "broken", "counts", "findings", "notes", "visibility"]
    parts = {"visibility": VisibleTraffic, "undecoded": Undecoded, "not_kafka": OtherProtocols}
    for section, kind in parts.items():
        assert keys(section) == [field.name for field in msgspec.structs.fields(kind)]
    assert re.findall(r"^\| `([a-z-]+)` \| ", sections_of(HOW_TO)["Reasons"], re.M) == list(REASONS)
    assert set(keys("findings")) == {field.name for field in msgspec.structs.fields(Finding)}
    own = {field.name for field in msgspec.structs.fields(Evidence)}
    assert set(keys("evidence")) == own - {"time_ns"} | {"time"}
    assert all(f"`{severity}`" in PAGE for severity in SEVERITIES)
