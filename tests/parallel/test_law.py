"""The law for several processes: not a byte of the output depends on how many there are."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.filters import Compare, Predicate, all_of, any_of, api_filter, topic_filter
from kafkasniff.filters.expression import parse_filter
from kafkasniff.packets import PacketBatch
from tests.choice import DEEP, examples, in_turn, one_in
from tests.conftest import shipped_captures
from tests.craft.batches import batch, uneven
from tests.craft.write import write_rotated
from tests.parallel.together import Written, alone, together
from tests.test_boundaries import UNREST, cut, scene

SHIPPED = {path.name: path for path in shipped_captures()}
JOBS = (2, 3, 5)
FORMS: dict[str, dict[str, Any]] = {
    "json": {"text": None},
    "text": {"text": 0, "records": "metadata"},
    "bodies": {"text": 1, "records": "metadata"},
    "records": {"text": 2},
}


def same(found: Written, expected: Written) -> None:
    """Equal to the byte; the first line that differs is easier to read than all of them."""
    for one, other in itertools.zip_longest(found.lines.splitlines(), expected.lines.splitlines()):
        assert one == other
    assert found == expected


def pieces(whole: PacketBatch, parts: int) -> list[PacketBatch]:
    """A batch in about so many parts."""
    return cut(whole, range(1, len(whole), max(len(whole) // parts, 1)))


@functools.cache
def batches_of(name: str) -> list[PacketBatch]:
    """A shipped capture in windows, with what its blocks tell."""
    with open_captures([SHIPPED[name]]) as source:
        return [part for one in source for part in pieces(one, 12)]


@pytest.mark.parametrize(("name", "form"), one_in(3, in_turn(list(SHIPPED), FORMS, 4)))
def test_a_real_capture(name: str, form: str) -> None:
    number = list(SHIPPED).index(name)
    expected = alone(batches_of(name), **FORMS[form])
    same(together(batches_of(name), JOBS[number % len(JOBS)], seed=number, **FORMS[form]), expected)
    assert expected.summary.requests


@given(name=st.sampled_from([*sorted(UNREST), "names"]), seed=st.integers(0, 3), data=st.data())
@examples(20)
def test_disturbed(name: str, seed: int, data: st.DataObject) -> None:
    whole = batch(scene(name, seed))
    rows = data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12))
    options = FORMS[data.draw(st.sampled_from(sorted(FORMS)))]
    found = together(cut(whole, rows), data.draw(st.sampled_from(JOBS)), seed=seed, **options)
    same(found, alone([whole], **options))


@pytest.mark.parametrize("name", [*UNREST, "names"])
def test_a_window_for_each_packet_or_a_few(name: str) -> None:
    whole = batch(scene(name, 0))
    few = range(1, len(whole)) if DEEP or name == "names" else uneven(len(whole))
    same(together(cut(whole, few), 3), alone([whole]))


FILTERS: dict[str, Predicate | None] = {
    "api": api_filter(["Fetch,Produce,Metadata"]),
    "topic": topic_filter(["*"]),
    "another topic": topic_filter(["orders*", "t*", "__*"]),
    "errors": Compare("error", "!=", 0),
    "latency": Compare("latency_ms", ">", 1_000_000),
    "connection": any_of(Compare("connection", "==", number) for number in (2, 3, 5)),
    "exchange": any_of(Compare("exchange", "==", number) for number in range(3, 40, 3)),
    "ends": parse_filter('software_name =~ "." and status == "answered" and retransmits >= 0 or problems'),
    "bodies": parse_filter("not response.throttle_time_ms > 0 and partition != 1 and request._session == null"),
    "some time": all_of([Compare("exchange", ">", 10), Compare("exchange", "<", 60)]),
}


@pytest.mark.parametrize("name", one_in(24, list(SHIPPED)))
def test_filters(name: str) -> None:
    number = list(SHIPPED).index(name)
    shown = 0
    for place, predicate in enumerate(FILTERS.values()):
        options = list(FORMS.values())[(number + place) % 2]
        expected = alone(batches_of(name), predicate=predicate, **options)
        found = together(batches_of(name), JOBS[place % len(JOBS)], predicate=predicate, seed=place, **options)
        same(found, expected)
        shown += bool(expected.lines)
    assert shown > 2


@pytest.mark.parametrize("files", [2, 3])
def test_rotated_captures(files: int, tmp_path: Path) -> None:
    paths = write_rotated(tmp_path, scene("skewed", 1), files)
    with open_captures(paths, chunk_size=4096) as source:
        batches = list(source)
    for options in FORMS.values():
        same(together(batches, 3, **options), alone(batches, **options))


@pytest.mark.parametrize("jobs", JOBS)
def test_many_connections_of_one_broker(jobs: int) -> None:
    """Numbers are given in the order of packets, whoever has the connections."""
    random = Random(jobs)
    whole = batch(scene("reused", 2))
    rows = sorted(random.sample(range(1, len(whole)), 9))
    expected = alone([whole], text=1)
    assert expected.summary.connections > jobs
    same(together(cut(whole, rows), jobs, text=1, seed=jobs), expected)


@pytest.mark.parametrize(("name", "form"), one_in(4, in_turn(list(SHIPPED), ["json", "bodies", "records"], 3)))
def test_bodies_in_pieces(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all bodies were large: rendered in many pieces, in one process and in several."""
    expected = alone(batches_of(name), **FORMS[form])
    monkeypatch.setattr("kafkasniff.kafka.message_body.LARGE_BODY", -1)
    for place, size in (("PIECE_BYTES", 100), ("LONG_VALUE", 20), ("PART_BYTES", 30), ("FEW", 2)):
        monkeypatch.setattr(f"kafkasniff.sinks.json_pieces.{place}", size)
    for module in ("kafkasniff.sinks.text", "kafkasniff.parallel.forms"):
        monkeypatch.setattr(f"{module}.PIECE_CHARACTERS", 80)
    same(alone(batches_of(name), **FORMS[form]), expected)
    same(together(batches_of(name), 2, seed=len(name), **FORMS[form]), expected)
