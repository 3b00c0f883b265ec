"""SECURITY.md lists the main bounds with the values of the code; the reference lists all of them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from kafkasniff.text.problem_kinds import PROBLEM_KINDS
from tests.reference import bounds

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "SECURITY.md").read_text()
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LISTED = dict(re.findall(r"^\| `([\w.]+\.[A-Z_]+)` \| (.*?) \|", PAGE, re.M))


@pytest.mark.parametrize("name", LISTED)
def test_bounds_match_the_code(name: str) -> None:
    module, _, constant = name.rpartition(".")
    value = getattr(importlib.import_module(f"kafkasniff.{module}"), constant)
    found = re.match(r"([\d,]+)(?: (KiB|MiB|GiB))?\b", LISTED[name])
    assert found is not None
    assert int(found[1].replace(",", "")) * UNITS.get(found[2], 1) == value


def test_the_others_are_in_the_reference() -> None:
    assert len(LISTED) > 20
    named = {name for name in LISTED if name.rpartition(".")[2].startswith("MAX_")}
    assert named <= {bound.name for bound in bounds()}


def test_kinds_of_problems_exist() -> None:
    kinds = [kind for about in PROBLEM_KINDS.values() for kind in about]
    rows = re.findall(r"^\| `[\w.]+\.[A-Z_]+` \|.*?\|(.*)\|$", PAGE, re.M)
    named = {kind for row in rows for kind in re.findall(r"`([a-z0-9-]+)`", row)}
    assert named - {"unanswered"} - set(kinds) == set()
    assert "memory-bound" in named


def test_it_is_linked_and_shipped() -> None:
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text()
    assert "(SECURITY.md)" in (ROOT / "CONTRIBUTING.md").read_text()
    assert '"/SECURITY.md",' in (ROOT / "pyproject.toml").read_text()
    for target in re.findall(r"\]\(((?:docs|tests)/[^)#]+)", PAGE):
        assert (ROOT / target).is_file(), target
