"""Turns of exchanges that are columns: as if they were emitted one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkasniff.engine.column_turns import AccountTurns, ColumnTurns
from kafkasniff.engine.connection_stats import Account
from kafkasniff.engine.in_step_messages import EVENTS
from kafkasniff.engine.paired import PairColumns
from kafkasniff.kafka.connection.waits import Turns
from kafkasniff.native.feed import MESSAGE

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


@settings(max_examples=200)
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
