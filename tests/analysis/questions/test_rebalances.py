"""Rebalances of groups: events in rows of exchanges, and the generations that they make up."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.group_history import EVENT, GROUP_APIS, Event, event_of, history, without_repetitions
from tests.analysis.tables import answers, exchange, moment, pick

TOLD = ("generation", "members", "joined", "left", "lost", "cause")


def join(at: float, member: str, generation: int, everybody: list[str] | None = None, **values: Any) -> dict[str, Any]:
    request = {"member_id": member, "reason": values.pop("reason", "")}
    request["group_instance_id"] = values.pop("instance", None)
    response = {"generation_id": generation, "members": [{"member_id": one} for one in everybody or ()]}
    return group("JoinGroup", at, member, request, response, **values)


def sync(at: float, member: str, generation: int, **values: Any) -> dict[str, Any]:
    return group("SyncGroup", at, member, {"generation_id": generation}, {}, **values)


def leave(at: float, member: str, **values: Any) -> dict[str, Any]:
    return group("LeaveGroup", at, member, {"members": [{"member_id": member, **values}]}, {})


def group(api: str, at: float, member: str, request: Any, response: Any, **values: Any) -> dict[str, Any]:
    values = {"client_id": f"id-{member}", "duration_us": 1000, **values}
    named = {"exchange_id": int(at * 100), "group_id": "g", "member_id": member}
    return exchange(api, at, request_body=request, response_body=response, **named, **values)


def test_a_leave_that_ends_another_members_wait() -> None:
    """Because of the leave, the coordinator answers the join, and only then the leave."""
    rows = [
        join(1, "b", 1),
        join(1, "a", 1, ["a", "b"]),
        join(5, "a", 2, ["a"], duration_us=1_010_000),
        leave(6, "b") | {"duration_us": 50_000},
    ]
    assert pick(answers("rebalances", rows), "generation", "left", "lost") == [(1, [], []), (2, ["b"], [])]


def test_joins_leaves_and_losses() -> None:
    rows = [
        join(1, "a", 1, ["a"]),
        sync(1.1, "a", 1),
        join(2, "b", 2),
        group("Heartbeat", 2.1, "a", {}, {}, error_code=27),
        join(2.2, "a", 2, ["a", "b"]),
        sync(2.3, "b", 2),
        sync(2.4, "a", 2),
        group("Heartbeat", 3, "a", {}, {}),
        leave(4, "b", reason="the consumer is being closed"),
        join(4.5, "a", 3, ["a"]),
        join(5, "c", 4, duration_us=500_000),
        join(5.4, "a", 4, ["a", "c"]),
        join(9, "c", 5, ["c"], duration_us=2_000_000),
    ]
    found = answers("rebalances", rows)
    assert pick(found, *TOLD) == [
        (1, 1, ["a"], [], [], "id-a joined"),
        (2, 2, ["b"], [], [], "id-b joined"),
        (3, 1, [], ["b"], [], "id-b left; id-b: the consumer is being closed"),
        (4, 2, ["c"], [], [], "id-c joined"),
        (5, 1, [], [], ["a"], "id-a gone without leaving"),
    ]
    assert pick(found, "time", "duration_us")[1:4] == [(moment(2), 401_000), (moment(4), 501_000), (moment(5), 500_000)]


def test_a_static_member_stays_the_same() -> None:
    rows = [
        join(1, "a-1", 1, ["a-1"], instance="a"),
        join(1.5, "a-2", 1, instance="a"),
        join(2, "b-1", 2, instance="b"),
        join(2.1, "a-2", 2, ["a-2", "b-1"], instance="a"),
        join(3, "b-2", 3, instance="b"),
        join(3.1, "a-2", 3, ["a-2", "b-2"], instance="a"),
        group("LeaveGroup", 4, "", {"members": [{"member_id": "", "group_instance_id": "b"}]}, {}, client_id="admin"),
        join(4.1, "a-2", 4, ["a-2"], instance="a"),
    ]
    assert pick(answers("rebalances", rows), "generation", "members", "joined", "left", "lost") == [
        (1, 1, ["a-2"], [], []),
        (2, 2, ["b-1"], [], []),
        (3, 2, [], [], []),
        (4, 1, [], ["b-2"], []),
    ]


def event(api: str, request: Any = None, response: Any = None, **values: Any) -> Event | None:
    row = exchange(api, group_id="g", member_id="m", duration_us=1000, request_body=request, response_body=response)
    return event_of({**row, "broker": "10.0.0.9:9092", **values})


VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.lists(st.none(), max_size=2)
MEMBERS = st.lists(st.fixed_dictionaries({}, optional={"member_id": VALUES, "reason": VALUES}), max_size=3)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("generation_id", "member_epoch", "reason", "group_instance_id"), VALUES),
        "members": MEMBERS | VALUES,
    },
)


@given(st.sampled_from(GROUP_APIS), BODIES, BODIES)
def test_damaged_bodies(api: str, request_: Any, response: Any) -> None:
    """Fields of other types are unknown."""
    found = event(api, request_, response)
    if found is None:
        return
    for number in (found.generation, found.asked):
        assert number is None or isinstance(number, int)
    for text in (found.reason, found.instance):
        assert text is None or isinstance(text, str)
    for names in (found.everybody, found.leaving):
        assert names is None or all(isinstance(name, str) for name in names)


EVENTS = st.tuples(
    st.sampled_from(("JoinGroup", "SyncGroup", "LeaveGroup", *["Heartbeat"] * 4)),
    st.sampled_from((None, "m", "n", "o")),
    st.sampled_from((None, "id", "id-2")),
    st.sampled_from((0, 16, 22, 25, 27, 82, None)),
    st.none() | st.integers(-3, 9),
)


@given(st.lists(EVENTS, max_size=25))
def test_the_history_needs_no_repeated_refusals(given_events: list[tuple[Any, ...]]) -> None:
    events = []
    for place, (api, member, client_id, code, time_ns) in enumerate(given_events):
        found = event(api, {"generation_id": 1}, {"generation_id": place // 5}, member_id=member, client_id=client_id,
                      error_code=code, time_ns=time_ns, exchange_id=place)  # fmt: skip
        events.append(found)
    columns = {name: pa.array([getattr(one, name) for one in events], kind) for name, kind in EVENT}
    kept = [Event(**row) for row in without_repetitions(pa.table(columns)).to_pylist()]
    assert history("classic", kept) == history("classic", events)
    repeated = [one.member_id for one in kept if one.api == "Heartbeat" and one.error_code not in (25, 82)]
    assert len(repeated) == len(set(repeated))
