"""Events of groups from rows of exchanges, and rows that show no change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.group_events import EVENT, GROUP_APIS, HEARTBEATS, Event, event_of
from tests.analysis.tables import START_NS, exchange


def event(api: str, request: Any = None, response: Any = None, **values: Any) -> Event | None:
    row = exchange(api, group_id="g", member_id="m", duration_us=1000, request_body=request, response_body=response)
    return event_of({**row, "broker": "10.0.0.9:9092", **values})


def seen(api: str, request: Any = None, response: Any = None, **values: Any) -> Event:
    found = event(api, request, response, **values)
    assert found is not None
    return found


def test_columns_are_the_fields() -> None:
    assert [name for name, _ in EVENT] == list(Event.__struct_fields__)


def test_who_and_when() -> None:
    found = seen("JoinGroup", client_id="app")
    assert (found.group_id, found.member_id, found.client_id, found.cluster) == ("g", "m", "app", "10.0.0.9:9092")
    assert (found.time_ns, found.done_ns) == (START_NS, START_NS + 1_000_000)
    assert seen("JoinGroup", duration_us=None).done_ns == START_NS
    assert seen("JoinGroup", time_ns=None).done_ns is None


def test_a_join() -> None:
    """The generation and the members are the coordinator's, who sends them to the leader only."""
    request = {"member_id": "m", "reason": "why", "group_instance_id": "static"}
    response = {"generation_id": 7, "members": [{"member_id": "m"}, {"member_id": "n"}]}
    found = seen("JoinGroup", request, response)
    assert (found.generation, found.everybody) == (7, ["m", "n"])
    assert (found.reason, found.instance) == ("why", "static")
    assert seen("JoinGroup", request, response, error_code=25).everybody is None
    assert seen("JoinGroup", request, {"generation_id": 7, "members": []}).everybody is None


def test_a_sync_and_a_heartbeat_name_their_generation() -> None:
    for api in ("SyncGroup", "Heartbeat"):
        assert seen(api, {"generation_id": 4}, {"generation_id": 9}).generation == 4


@pytest.mark.parametrize(
    ("request_", "leaving", "reason"),
    [
        ({"members": [{"member_id": "a", "reason": "closed"}, {"member_id": "b"}]}, ["a", "b"], "closed"),
        # An administrator removes a static member by its name.
        ({"members": [{"member_id": "", "group_instance_id": "static"}]}, ["static"], None),
        # Versions before 3 have one member.
        ({"member_id": "m"}, ["m"], None),
        (None, ["m"], None),
    ],
)
def test_a_leave(request_: Any, leaving: list[str], reason: str | None) -> None:
    found = seen("LeaveGroup", request_)
    assert (found.leaving, found.reason) == (leaving, reason)


@pytest.mark.parametrize("api", HEARTBEATS)
def test_heartbeats_of_the_newer_protocols(api: str) -> None:
    assert event(api, {"member_epoch": 5}, {"member_epoch": 5}) is None
    for asked, given_ in ((0, 1), (5, 6), (-1, -1), (0, 0)):
        found = seen(api, {"member_epoch": asked}, {"member_epoch": given_})
        assert (found.asked, found.generation) == (asked, given_)
    # An error is a change, and so is what nobody saw.
    assert seen(api, {"member_epoch": 5}, {"member_epoch": 5}, error_code=110).error_code == 110
    assert seen(api, None, None).asked is None


values = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.lists(st.none(), max_size=2)
members = st.lists(st.fixed_dictionaries({}, optional={"member_id": values, "reason": values}), max_size=3)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "generation_id": values,
        "member_epoch": values,
        "members": members | values,
        "reason": values,
        "group_instance_id": values,
    },
)


@given(st.sampled_from(GROUP_APIS), bodies, bodies)
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
