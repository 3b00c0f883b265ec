"""The selection of pairs, and which tests stay together."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests import choice
from tests.choice import examples, fewer, in_turn, one_in
from tests.conftest import ROOT, SPREAD, shipped_captures
from tests.test_disturbed import DAMAGE, HARMLESS, INTRUSIONS, PCAP_VARIANTS, SOURCES

NAMES = [path.name for path in shipped_captures()]


@pytest.mark.parametrize(("variants", "every"), [(HARMLESS, 10), (INTRUSIONS, 6), (DAMAGE, 10), (PCAP_VARIANTS, 6)])
def test_each_capture_and_each_variant_has_its_turn(
    variants: dict[str, object], every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "ALL", False)
    pairs = in_turn(SOURCES, variants, every, all_of=SOURCES[:1])
    # With all of the first source.
    assert len(set(pairs)) == len(pairs) < 1.3 * len(SOURCES) * len(variants) / every
    sources, names = Counter(source for source, _ in pairs), Counter(name for _, name in pairs)
    assert sources.keys() == set(SOURCES)
    assert sources[SOURCES[0]] == len(variants)
    assert names.keys() == variants.keys()
    assert min(names.values()) >= 5
    monkeypatch.setattr(choice, "ALL", True)
    assert in_turn(SOURCES, variants, every) == [(source, name) for source in SOURCES for name in variants]


def test_a_variant_without_a_turn_is_refused() -> None:
    with pytest.raises(ValueError, match="never have its turn"):
        in_turn(NAMES, ["one", "two"], 3)


def test_some_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ALL", False)
    parts = [one_in(3, NAMES, start) for start in range(3)]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    assert parts[0][:2] == [NAMES[0], NAMES[3]]
    monkeypatch.setattr(choice, "ALL", True)
    assert one_in(3, NAMES, 1) == NAMES


def test_fewer_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ALL", False)
    assert fewer(3, 8) == 3
    monkeypatch.setattr(choice, "ALL", True)
    assert fewer(3, 8) == 8


def test_ci_runs_what_the_default_run_skips() -> None:
    """Every module with tests that run, or cover everything, only with KAFKASNIFF_ALL."""
    command = re.search(r'KAFKASNIFF_ALL=1 make test ARGS="([^"]+)"', (ROOT / ".ci" / "run").read_text())
    assert command
    listed = [ROOT / word for word in command[1].replace("\\\n", " ").split()]
    assert [path for path in listed if not path.exists()] == []
    thinned = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.name != "test_choice.py" and re.search(r"@only_with_all|\bfewer\(", path.read_text())
    ]
    assert thinned
    assert [path for path in thinned if not any(path.is_relative_to(one) for one in listed)] == []


def test_fewer_examples_unless_many_are_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "DEEP", False)
    monkeypatch.setattr(choice, "ALL", True)
    assert examples(7).max_examples == 7
    monkeypatch.setattr(choice, "ALL", False)
    assert (examples(7).max_examples, examples(1).max_examples) == (2, 1)
    monkeypatch.setattr(choice, "DEEP", True)
    assert examples(7).max_examples != 7


@pytest.mark.parametrize("name", NAMES[:2])
def test_tests_about_one_capture_have_one_worker(name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith(f"@test_choice-{name}")
    else:
        assert "@" not in request.node.nodeid


def test_the_others_of_a_module_have_one_worker(request: pytest.FixtureRequest) -> None:
    """Another worker would have to make the module's fixtures and cached values again."""
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@test_choice.py")
    else:
        assert "@" not in request.node.nodeid


def test_modules_that_are_spread_exist() -> None:
    for module in SPREAD:
        assert (ROOT / "tests" / module).is_file()
