"""What is left out of all pairs, and which tests stay together."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import choice
from tests.choice import examples, in_turn
from tests.conftest import shipped_captures
from tests.test_disturbed import DAMAGE, HARMLESS, INTRUSIONS, PCAP_VARIANTS, SOURCES

NAMES = [path.name for path in shipped_captures()]


@pytest.mark.parametrize(("variants", "every"), [(HARMLESS, 5), (INTRUSIONS, 6), (DAMAGE, 6), (PCAP_VARIANTS, 6)])
def test_each_capture_and_each_variant_has_its_turn(
    variants: dict[str, object], every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "DEEP", False)
    pairs = in_turn(SOURCES, variants, every, all_of=SOURCES[:1])
    assert len(set(pairs)) == len(pairs) < len(SOURCES) * len(variants) // (every - 1)
    sources, names = Counter(source for source, _ in pairs), Counter(name for _, name in pairs)
    assert sources.keys() == set(SOURCES)
    assert sources[SOURCES[0]] == len(variants)
    assert names.keys() == variants.keys()
    assert min(names.values()) >= 5
    monkeypatch.setattr(choice, "DEEP", True)
    assert in_turn(SOURCES, variants, every) == [(source, name) for source in SOURCES for name in variants]


def test_what_would_never_have_its_turn_is_refused() -> None:
    with pytest.raises(ValueError, match="never have its turn"):
        in_turn(NAMES, ["one", "two"], 3)


def test_fewer_examples_but_where_many_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "DEEP", False)
    assert examples(7).max_examples == 7
    monkeypatch.setattr(choice, "DEEP", True)
    assert examples(7).max_examples != 7


@pytest.mark.parametrize("name", NAMES[:2])
def test_tests_about_one_capture_have_one_worker(name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith(f"@test_choice-{name}")
    else:
        assert "@" not in request.node.nodeid
