from __future__ import annotations

import pytest

from tests.analysis.tables import answers, exchange, partition, pick

BROKERS = {"brokers": [{"node_id": 1, "host": "b1", "rack": "east"}, {"node_id": 2, "host": "b2", "rack": "west"}]}


def test_fetches_across_zones() -> None:
    rows = [
        exchange("Metadata", 5, response_body=BROKERS),
        exchange("Metadata", 1, exchange_id=2, response_body={"brokers": [{"node_id": 1, "rack": "north"}]}),
        exchange(
            "Fetch", 2, request_body={"topics": [], "rack_id": "east"}, partitions=[partition(bytes=10, record_count=1)]
        ),
        exchange("Fetch", 3, broker_id=2, request_body={"rack_id": "east"}, response_size=500),
        exchange("Fetch", 4, broker_id=3, request_body={"rack_id": "east"}),
        exchange("Fetch", 6, broker_id=2, request_body={"rack_id": ""}, client_id="anywhere"),
    ]
    found = answers("racks", rows)
    names = ("client_id", "client_rack", "broker_id", "broker_rack", "cross_zone", "fetches", "bytes", "response_bytes")
    assert pick(found, *names) == [
        ("app", "east", 2, "west", True, 1, 0, 500),
        ("app", "east", 1, "east", False, 1, 10, 200),
        ("anywhere", None, 2, "west", None, 1, 0, 200),
        ("app", "east", 3, None, None, 1, 0, 200),
    ]


def test_describe_cluster_reports_racks_too() -> None:
    reported = exchange("DescribeCluster", response_body={"brokers": [{"broker_id": 1, "rack": "east"}]})
    (found,) = answers("racks", [reported, exchange("Fetch", request_body={"rack_id": "west"})])
    assert (found["broker_rack"], found["cross_zone"]) == ("east", True)


@pytest.mark.parametrize("body", [None, "{", "[1]", '{"rack_id":{"base64":"//8="}}', '{"brokers":[7]}'])
def test_invalid_bodies_name_no_rack(body: str | None) -> None:
    rows = [exchange("Metadata", response_body=body), exchange("Fetch", request_body=body)]
    assert pick(answers("racks", rows), "client_rack", "broker_rack", "cross_zone") == [(None, None, None)]
