"""Messages of whole exchanges as entries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine.in_step_messages import EVENTS, HEADER, Messages
from kafkasniff.engine.paired import PairedRun, until
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.native.feed import ARENA, MESSAGE, NONE, REQUEST, VERSIONS

HEARTBEAT = 12 * VERSIONS
OWNERS: list[Any] = [SimpleNamespace(place=place) for place in (5, 9)]


def _rows(exchanges: list[tuple[int, int]]) -> Any:
    """A request and its response for each of them, given their connection and the order of the request's packet."""
    rows = np.zeros(2 * len(exchanges), MESSAGE)
    for index, (connection, order) in enumerate(exchanges):
        for row, other in ((2 * index, 2 * index + 1), (2 * index + 1, 2 * index)):
            rows["connection"][row], rows["pair"][row], rows["ordinal"][row] = connection, other, index
        rows["order"][2 * index : 2 * index + 2] = order, order + 1
        rows["flags"][2 * index] = REQUEST
    rows["code"], rows["start"], rows["size"] = HEARTBEAT, np.arange(len(rows)) * 100, 40
    return rows


def test_entries_are_the_messages_of_whole_exchanges() -> None:
    rows = _rows([(0, 10), (1, 20)])
    rows["flags"][3] |= ARENA
    alone = np.zeros(1, MESSAGE)
    alone["pair"], alone["order"] = NONE, 40
    run = PairedRun(Messages(np.concatenate((rows, alone)), b"buffer", b"arena", OWNERS), DecodeOptions())
    assert len(run) == 4
    assert run.places == {5, 9}
    entries = list(run.entries())
    assert [entry[:3] for entry in entries] == [(10, 5, 0), (11, 5, 0), (20, 9, 0), (21, 9, 0)]
    assert [entry[4].buffer for entry in entries] == [b"buffer"] * 3 + [b"arena"]
    # A response has the place of its request, where that leaves what it needs.
    assert [entry[5] for entry in entries] == [0, 0, 2, 2]
    assert entries[0][4].open is entries[3][4].open
    assert [entry[7] for entry in entries] == [0, 100, 200, 300]
    versions = [entry[13] for entry in entries]
    assert [None if version is None else (version.key, version.version) for version in versions] == [
        (12, 0),
        None,
        (12, 0),
        None,
    ]
    assert HEADER == 10


def test_chosen_messages_and_those_of_earlier_batches() -> None:
    rows = _rows([(0, 20), (0, 10), (1, 30)])
    chosen = np.array([True, True, True, True, False, False])
    run = PairedRun(Messages(rows, b"", b"", OWNERS), DecodeOptions(), chosen=chosen)
    assert [(entry[0], entry[18]) for entry in run.entries()] == [(10, 2), (11, 3), (20, 0), (21, 1)]


def test_entries_among_events() -> None:
    run = PairedRun(Messages(_rows([(0, 10), (1, 20)]), b"", b"", OWNERS), DecodeOptions())
    events = [(9, 0, 0, "first"), (11, 5, 1, "behind"), (20, 8, 0, "of a lower connection"), (99, 0, 0, "last")]
    found = [one[3] if isinstance(one[3], str) else one[0] for one in run.among(events)]
    assert found == ["first", 10, 11, "behind", "of a lower connection", 20, 21, "last"]


@given(
    steps=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=8),
    event=st.tuples(st.integers(0, 5), st.sampled_from([4, 5, 7, 9, 10]), st.integers(0, 20)),
    first=st.integers(0, 8),
)
def test_until_is_the_first_that_does_not_precede(
    steps: list[tuple[int, int]], event: tuple[int, int, int], first: int
) -> None:
    by_order = dict(steps)
    rows = np.zeros(len(steps), MESSAGE)
    rows["order"] = sorted(order for order, _ in steps)
    # All messages of a packet belong to one connection.
    rows["connection"] = [by_order[order] for order in rows["order"].tolist()]
    for order in by_order:
        mine = rows["order"] == order
        rows["step"][mine] = np.arange(np.count_nonzero(mine))
    keys = [(int(row["order"]), OWNERS[row["connection"]].place, int(row["step"]) * EVENTS) for row in rows]
    first = min(first, len(rows))
    expected = next((index for index in range(first, len(keys)) if keys[index] >= event), len(keys))
    assert until(rows, rows["order"].tolist(), OWNERS, event, first) == expected
