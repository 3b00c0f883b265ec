from __future__ import annotations

from typing import Any

from tests.analysis.tables import answers, exchange, moment, pick

TOLD = ("generation", "members", "joined", "left", "lost", "cause")


def join(at: float, member: str, generation: int, everybody: list[str] | None = None, **values: Any) -> dict[str, Any]:
    request = {
        "member_id": member,
        "reason": values.pop("reason", ""),
        "group_instance_id": values.pop("instance", None),
    }
    response = {"generation_id": generation, "members": [{"member_id": one} for one in everybody or ()]}
    return group("JoinGroup", at, member, request, response, **values)


def sync(at: float, member: str, generation: int, **values: Any) -> dict[str, Any]:
    return group("SyncGroup", at, member, {"generation_id": generation}, {}, **values)


def leave(at: float, member: str, **values: Any) -> dict[str, Any]:
    return group("LeaveGroup", at, member, {"members": [{"member_id": member, **values}]}, {})


def beat(at: float, member: str, asked: int, reported: int, error: int = 0) -> dict[str, Any]:
    request, response = {"member_epoch": asked}, {"member_epoch": reported}
    return group("ConsumerGroupHeartbeat", at, member, request, response, error_code=error)


def group(api: str, at: float, member: str, request: Any, response: Any, **values: Any) -> dict[str, Any]:
    values = {"client_id": f"id-{member}", "duration_us": 1000, **values}
    return exchange(
        api,
        at,
        exchange_id=int(at * 100),
        group_id="g",
        member_id=member,
        request_body=request,
        response_body=response,
        **values,
    )


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


def test_invalid_bodies_are_ignored() -> None:
    for body in (None, "", "{", "[]", '{"generation_id":"x"}', '{"members":{}}'):
        rows = [
            row | {"request_body": body, "response_body": body}
            for row in (join(1, "a", 1), leave(2, "a"), beat(3, "a", 0, 1))
        ]
        found = answers("rebalances", rows)
        assert all(row["generation"] is None for row in found)
