"""Turns of exchanges that are columns: as if they were emitted one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine.column_turns import AccountTurns, ColumnTurns
from kafkasniff.engine.connection_stats import Account
from kafkasniff.engine.in_step_messages import EVENTS
from kafkasniff.engine.paired import PairColumns
from kafkasniff.kafka.connection.waits import Turns
from kafkasniff.native.feed import MESSAGE, NONE
from tests.choice import examples

CONNECTIONS = 3
CLIENT_IDS = ["a", "b"]

Row = tuple[int, int, int, int, bool, int]
"""Connection, time of the request, latency, throttle time, whether it is sent at once, index of the client id."""
STEP = 6
"""Time between two exchanges, so that most responses are in order."""
TIMES = st.integers(0, 20)
ROWS = st.lists(
    st.tuples(
        st.integers(0, CONNECTIONS - 1),
        TIMES,
        TIMES,
        st.sampled_from([0, 0, 0, 30]),
        st.booleans(),
        st.sampled_from([0, 1, 2]),
    ),
    max_size=12,
)


def columns(rows: dict[int, Row], owners: list[Any]) -> PairColumns:
    """Exchanges in columns, by the numbers of their responses; two responses are in each packet."""
    asked, answered = np.zeros(len(rows), MESSAGE), np.zeros(len(rows), MESSAGE)
    for place, (number, (connection, time, latency, *_)) in enumerate(rows.items()):
        for column in (asked, answered):
            column[place]["connection"] = connection
            column[place]["order"], column[place]["step"] = divmod(number, 2)
        asked[place]["time"], answered[place]["time"] = time, time + latency
        answered[place]["latency"] = latency
    return PairColumns(
        owners,
        asked,
        answered,
        None,
        CLIENT_IDS,
        np.array([row[5] for row in rows.values()], np.int64),
        facts=object(),
        throttle_ns=np.array([row[3] for row in rows.values()], np.int64),
        at_once=np.array([row[4] for row in rows.values()], bool),
        behind_ns=np.zeros(len(rows), np.int64),
        muted_ns=np.zeros(len(rows), np.int64),
    )


def owners_of(client_ids: list[str]) -> list[Any]:
    owners = [SimpleNamespace(place=number, turns=Turns(), account=Account()) for number in range(CONNECTIONS)]
    for owner in owners:
        for client_id in client_ids:
            owner.account.name(client_id)
    return owners


def state(owner: Any) -> tuple[Any, ...]:
    turns, account = owner.turns, owner.account
    counts = account.requests, account.responses, list(account.client_ids), account.before_software
    return turns.answered, turns.muted_until, *counts


def emit(owner: Any, row: Row, *, names_software: bool) -> tuple[int, int]:
    """An exchange that is emitted alone."""
    _, time, latency, throttle, at_once, client_id = row
    account: Account = owner.account
    if client_id < len(CLIENT_IDS):
        account.name(CLIENT_IDS[client_id])
    if names_software:
        account.software = ("client", "1")
    account.over()
    account.requests += 1
    account.responses += 1
    found: tuple[int, int] = owner.turns.answer(time, time + latency, latency, throttle, at_once=at_once)
    return found


@examples(200)
@given(st.data(), ROWS, ROWS, st.lists(st.sampled_from(["b", "z"]), unique=True), st.booleans())
def test_columns_are_as_exchanges_one_by_one(
    data: st.DataObject, first: list[Row], second: list[Row], known: list[str], names_software: bool
) -> None:
    rows = [(row[0], STEP * number + row[1], *row[2:]) for number, row in enumerate(first + second)]
    alone = {number for number in range(len(rows)) if data.draw(st.booleans(), label=f"{number} is emitted alone")}
    expected, found = owners_of(known), owners_of(known)
    turns_of = {
        number: emit(expected[row[0]], row, names_software=names_software and number in alone)
        for number, row in enumerate(rows)
    }
    for numbers in (range(len(first)), range(len(first), len(rows))):
        shuffled = data.draw(st.permutations([number for number in numbers if number not in alone]))
        batch = [columns({number: rows[number] for number in shuffled}, found)] if shuffled else []
        places = {rows[number][0] for number in numbers if number in alone}
        turns = ColumnTurns(batch, places, AccountTurns(batch, places))
        for number in numbers:
            if number in alone:
                order, step = divmod(number, 2)
                turns.until(rows[number][0], order, step * EVENTS)
                emit(found[rows[number][0]], rows[number], names_software=names_software)
        turns.finish()
        for one in batch:
            pairs = zip(one.behind_ns.tolist(), one.muted_ns.tolist(), strict=True)
            assert list(pairs) == [turns_of[number] for number in shuffled]
    assert [state(owner) for owner in found] == [state(owner) for owner in expected]


TIMED = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 300), st.integers(1, 300), st.sampled_from([0, 0, 0, 100, 500]), st.booleans()
    ),
    min_size=1,
    max_size=12,
)


@given(exchanges=TIMED, parts=st.integers(1, 3), emitted=st.sampled_from([(), (5,), (5, 9)]))
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
