"""Messages of whole exchanges as entries, and what exchanges that are columns do to their connection in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine.column_turns import AccountTurns, ColumnTurns
from kafkasniff.engine.connection_stats import Account
from kafkasniff.engine.in_step_messages import EVENTS, HEADER, Messages
from kafkasniff.engine.paired import PairColumns, PairedRun, until
from kafkasniff.kafka.connection.waits import Turns
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


_TIMES = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 300), st.integers(1, 300), st.sampled_from([0, 0, 0, 100, 500]), st.booleans()
    ),
    min_size=1,
    max_size=12,
)


@given(exchanges=_TIMES, parts=st.integers(1, 3), emitted=st.sampled_from([(), (5,), (5, 9)]))
def test_waits_of_columns_are_those_of_exchanges_one_by_one(
    exchanges: list[tuple[int, int, int, int, bool]], parts: int, emitted: tuple[int, ...]
) -> None:
    owners: list[Any] = [SimpleNamespace(place=place, turns=Turns()) for place in (5, 9)]
    expected = [Turns(), Turns()]
    asked, answered = np.zeros(len(exchanges), MESSAGE), np.zeros(len(exchanges), MESSAGE)
    waits: list[tuple[int, int]] = []
    clock = [0, 0]
    for index, (connection, begin, latency, throttle, at_once) in enumerate(exchanges):
        # Requests of a connection are answered in turn.
        clock[connection] = done = max(clock[connection] + 1, begin + latency)
        asked["connection"][index] = answered["connection"][index] = connection
        asked["time"][index], answered["time"][index] = begin, done
        answered["latency"][index], answered["order"][index] = done - begin, index
        waits.append(expected[connection].answer(begin, done, done - begin, throttle, at_once=at_once))
    facts = {
        "throttle_ns": np.array([one[3] for one in exchanges], np.int64),
        "at_once": np.array([one[4] for one in exchanges]),
    }
    columns = []
    for part in np.array_split(np.arange(len(exchanges)), parts):
        empty = np.zeros(len(part), np.int64)
        own = {name: column[part] for name, column in facts.items()}
        columns.append(
            PairColumns(
                *(owners, asked[part], answered[part], [], [], empty, ()),
                **own,
                behind_ns=empty.copy(),
                muted_ns=empty.copy(),
            )
        )
    turns = ColumnTurns(columns, emitted)
    turns.until(5, len(exchanges) // 2, 0)
    turns.finish()
    found = [pair for one in columns for pair in zip(one.behind_ns.tolist(), one.muted_ns.tolist(), strict=True)]
    assert found == [(behind or 0, muted or 0) for behind, muted in waits]
    used = {one[0] for one in exchanges}
    assert [owners[index].turns.answered for index in used] == [expected[index].answered for index in used]


@pytest.mark.parametrize("emitted", [(), (5,)])
def test_accounts_count_columns_in_their_turn(emitted: tuple[int, ...]) -> None:
    account = Account()
    owners: list[Any] = [SimpleNamespace(place=5, account=account)]
    asked, answered = np.zeros(3, MESSAGE), np.zeros(3, MESSAGE)
    asked["order"], answered["order"] = [10, 30, 50], [20, 40, 60]
    names = ["first", "second"]
    client_id = np.array([1, NONE, 0], np.int64)
    turns = AccountTurns([PairColumns(owners, asked, answered, [], names, client_id)], emitted)
    assert (account.requests, account.responses) == (3, 3)
    if emitted:
        assert not account.client_ids
        turns.until(5, 10, 0)
        assert not account.client_ids
        turns.until(5, 15, 0)
        assert list(account.client_ids) == ["second"]
        assert not account.before_software
        turns.until(5, 21, 0)
        turns.until(9, 99, 0)
        assert list(account.client_ids) == ["second"]
    turns.finish()
    assert list(account.client_ids) == ["second", "first"]
    assert account.before_software
