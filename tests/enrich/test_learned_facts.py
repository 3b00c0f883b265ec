"""Name facts: the earliest wins, regardless of who collected it and of the order of merges."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.enrich import learned_facts as module
from kafkasniff.enrich.learned_facts import BEFORE, LearnedFacts
from kafkasniff.model import Endpoint

TIMES = st.none() | st.integers(0, 5)
FACTS = st.lists(
    st.one_of(
        st.tuples(st.just("topic"), st.sampled_from(["id-1", "id-2"]), st.sampled_from(["a", "b"]), TIMES),
        st.tuples(st.just("broker"), st.sampled_from([("h", 1), ("localhost", 2)]), st.integers(0, 2), TIMES),
        st.tuples(st.just("spoke_kafka"), st.sampled_from([Endpoint("10.0.0.1", 9)]), TIMES),
    ),
    max_size=12,
)


def gathered(facts: list[tuple[object, ...]]) -> LearnedFacts:
    found = LearnedFacts()
    for name, *arguments in facts:
        getattr(found, str(name))(*arguments)
    return found


@given(FACTS, st.data())
def test_the_collector_does_not_matter(facts: list[tuple[object, ...]], draw: st.DataObject) -> None:
    parts: list[list[tuple[object, ...]]] = [[], [], []]
    for fact in draw.draw(st.permutations(facts)):
        parts[draw.draw(st.integers(0, 2))].append(fact)
    merged = LearnedFacts()
    for part in draw.draw(st.permutations(parts)):
        merged.merge(gathered(part))
    assert merged == gathered(facts)
    again = copy.deepcopy(merged)
    again.merge(merged)
    assert again == merged
    # The order of calls within a part does not matter either.
    assert gathered(draw.draw(st.permutations(facts))) == merged


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FACTS", 2)
    found = LearnedFacts()
    for number in range(5):
        found.topic(f"id-{number}", "t", number)
        found.broker(("h", number), 1, number)
        found.broker(("h", 0), number, number)
        found.spoke_kafka(Endpoint("10.0.0.1", number), number)
        found.late_software(number, "s", None)
    other = LearnedFacts(hosts={f"10.0.0.{number}": "h" for number in range(5)})
    found.merge(other)
    assert [len(found.topics), len(found.brokers), len(found.kafka), len(found.software), len(found.hosts)] == [2] * 5
    assert len(found.brokers["h", 0]) == 2


def test_which_broker_listens() -> None:
    found = LearnedFacts(hosts={"10.0.0.7": "KAFKA-7.example."})
    ends = ("10.0.0.9", 9092), ("10.0.0.9", 9092), ("10.0.0.9", 9092), ("localhost", 9093), ("kafka-7.example", 9092)
    for end, number, time in zip(ends, (3, 4, 3, 5, 7), (50, 70, None, 1, 2), strict=True):
        found.broker(end, number, time)
    asked = ("10.0.0.9", 9092), ("10.0.0.9", 9093), ("::1", 9093), ("10.0.0.7", 9092)
    assert [found.broker_at(*end) for end in asked] == [[(BEFORE, 3), (70, 4)], [], [(1, 5)], [(2, 7)]]
