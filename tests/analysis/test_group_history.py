"""Generations of a group from its events: what began each, and who joined, left or was lost."""

from __future__ import annotations

from tests.analysis.questions.test_rebalances import TOLD, beat, group, join, leave, sync
from tests.analysis.tables import answers, pick


def test_a_member_that_requests_a_rebalance() -> None:
    rows = [
        join(1, "a", 1, ["a"]),
        join(2, "a", 2, ["a"], reason="cached metadata has changed"),
        join(3, "a", 3, ["a"]),
        join(4, "a", 4, ["a"], reason="group is already rebalancing"),
    ]
    causes = [row["cause"] for row in answers("rebalances", rows)]
    assert causes == [
        "id-a joined",
        "id-a: cached metadata has changed",
        "members joined again",
        "members joined again",
    ]


def test_a_capture_that_begins_in_the_middle() -> None:
    found = answers("rebalances", [join(1, "a", 7, ["a", "b"]), leave(2, "b")])
    assert pick(found, *TOLD) == [
        (7, 2, [], [], [], "the previous generation was not captured"),
        (None, 1, [], ["b"], [], "id-b left"),
    ]


def test_without_the_leaders_list_no_member_counts_as_lost() -> None:
    found = answers("rebalances", [join(1, "a", 1), join(1, "b", 1), join(2, "a", 2)])
    assert pick(found, "generation", "members", "lost") == [(1, None, []), (2, None, [])]


def test_a_member_that_is_unknown_to_the_group() -> None:
    rows = [join(1, "a", 1, ["a"]), group("Heartbeat", 2, "a", {}, {}, error_code=25)]
    assert pick(answers("rebalances", rows), "generation", "lost", "cause")[1] == (
        None,
        ["a"],
        "id-a gone without leaving",
    )


def test_a_leave_that_ends_another_members_wait() -> None:
    """Because of the leave, the coordinator answers the join, and only then the leave."""
    rows = [
        join(1, "b", 1),
        join(1, "a", 1, ["a", "b"]),
        join(5, "a", 2, ["a"], duration_us=1_010_000),
        leave(6, "b") | {"duration_us": 50_000},
    ]
    assert pick(answers("rebalances", rows), "generation", "left", "lost") == [(1, [], []), (2, ["b"], [])]


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


def test_without_bodies_syncs_separate_the_joins() -> None:
    rows = [join(1, "a", 1), sync(1.1, "a", 1), join(2, "b", 2), join(2.1, "a", 2), sync(2.2, "a", 2)]
    bare = [row | {"request_body": None, "response_body": None} for row in rows]
    assert pick(answers("rebalances", bare), "generation", "joined") == [(None, []), (None, ["b"])]


def test_the_newer_protocol() -> None:
    rows = [
        beat(1, "a", 0, 1),
        beat(1.5, "a", 1, 1),
        beat(2, "b", 0, 1),
        beat(2.5, "a", 1, 2),
        beat(2.6, "b", 1, 2),
        beat(3, "b", -1, -1),
        beat(3.5, "a", 2, 3),
        beat(4, "a", 3, 4),
        beat(5, "a", 4, 0, error=110),
    ]
    found = answers("rebalances", rows)
    assert pick(found, *TOLD) == [
        (1, 1, ["a"], [], [], "id-a joined"),
        (2, 2, ["b"], [], [], "id-b joined"),
        (3, 1, [], ["b"], [], "id-b left"),
        (4, 1, [], [], [], "assignment, subscription or topics changed"),
        (None, 0, [], [], ["a"], "id-a gone without leaving"),
    ]
    assert {row["protocol"] for row in found} == {"consumer"}
    assert found[1]["duration_us"] == 501_000
