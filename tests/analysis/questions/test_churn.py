from __future__ import annotations

from tests.analysis.tables import SECOND, START_NS, answers, connection, moment, pick


def test_connections_by_client_and_minute() -> None:
    begin = (60 - START_NS // SECOND % 60) % 60
    rows = [connection(begin + number, lived=0.5, ended="rst", requests=0) for number in range(3)]
    rows += [
        connection(begin + 61, lived=3.5),
        connection(begin + 1, client_ids=["job", "x"]),
        connection(verdict="not_kafka"),
    ]
    rows.append(connection(begin + 2, client_ids=[], client_ip="10.0.0.6", requests=0))
    found = answers("churn", connections=rows)
    names = ("time", "client_ip", "client_id", "opened", "short", "reset", "without_requests", "requests")
    assert pick(found, *names) == [
        (moment(begin), "10.0.0.5", "app", 3, 3, 3, 3, 0),
        (moment(begin), "10.0.0.5", "job", 1, 0, 0, 0, 3),
        (moment(begin), "10.0.0.6", None, 1, 0, 0, 1, 0),
        (moment(begin + 60), "10.0.0.5", "app", 1, 0, 0, 0, 3),
    ]
    assert found[0]["mean_life_us"] == 500_000
    assert len(answers("churn", connections=rows, at_least=2)) == 1
    assert answers("churn", connections=rows, short="4s")[-1]["short"] == 1
