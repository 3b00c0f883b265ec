"""Advertised addresses: cases that the captures of real brokers do not have."""

from __future__ import annotations

import pytest

from kafkasniff.analysis.detectors.finding import Finding
from tests.analysis.detectors.talks import findings_of
from tests.analysis.tables import SECOND, START_NS, Row, connection, exchange


def metadata(*brokers: tuple[int, str, int]) -> Row:
    found = [{"node_id": node, "host": host, "port": port, "rack": None} for node, host, port in brokers]
    return exchange("Metadata", response_body={"brokers": found, "topics": []})


def silent(port: int, *, lasting: int, responses: int = 0, client_ip: str = "10.0.0.5") -> Row:
    """A connection with a request."""
    times = {"time_ns": START_NS, "end_time_ns": START_NS + lasting * SECOND}
    counts = {"requests": 1, "responses": responses, "broker_bytes": 50 * responses, "captured": "both"}
    ends = {"broker_ip": "10.0.0.9", "broker_port": port, "client_ip": client_ip}
    return {**connection(), **ends, **times, **counts}


def found(asked: Row, *connections: Row) -> list[Finding]:
    rows = [{**row, "connection_id": place} for place, row in enumerate(connections)]
    return findings_of("unreached-listeners", [asked], connections=rows)


def test_brokers_with_one_address() -> None:
    (one,) = found(metadata((1, "10.0.0.9", 9092), (2, "10.0.0.9", 9092), (3, "10.0.0.9", 9093)))
    assert (one.severity, one.values["brokers"]) == ("error", [1, 2])
    assert found(metadata((1, "10.0.0.9", 9092), (2, "10.0.0.9", 9093), (3, "10.0.0.8", 9092))) == []
    assert found(metadata((1, "10.0.0.9", 9092), (1, "10.0.0.9", 9092))) == [], "a broker that is listed twice"


def test_an_address_that_never_answers() -> None:
    """Unless the capture ends soon after, or it answers others: then the broker is slow."""
    asked = metadata((1, "10.0.0.9", 9999))
    (one,) = found(asked, silent(9999, lasting=5))
    assert (one.severity, one.values["opening"]) == ("error", "silent")
    assert found(asked, silent(9999, lasting=1)) == []
    assert found(asked, silent(9999, lasting=5), silent(9999, lasting=5, responses=1, client_ip="10.0.0.6")) == []
    assert found(asked, silent(9998, lasting=5)) == [], "it is not advertised"


@pytest.mark.parametrize(("api", "who"), [("BrokerRegistration", "brokers"), ("ControllerRegistration", "controllers")])
def test_an_address_that_a_node_registers(api: str, who: str) -> None:
    """Others learn it from the cluster's metadata log, which is not read."""
    listeners = [{"name": "INTERNAL", "host": "10.0.0.9", "port": 9999, "security_protocol": 0}]
    (one,) = found(exchange(api, request_body={"listeners": listeners}), silent(9999, lasting=5))
    assert (one.severity, one.subject["broker"]) == ("error", "10.0.0.9:9999")
    assert f"as advertised by {who}" in one.title
    assert found(exchange(api, request_body={"listeners": []}), silent(9999, lasting=5)) == []


def test_a_leader_that_is_named_beside_an_error() -> None:
    """As of the quorum's leader, which nodes ask in Fetch requests."""
    leader = {"node_id": 1, "host": "10.0.0.9", "port": 9999, "rack": None}
    asked = exchange("Fetch", client_id="raft-client-2", response_body={"node_endpoints": [leader]})
    (one,) = found(asked, silent(9999, lasting=5))
    assert "as advertised by controllers" in one.title
    asked["client_id"] = "shop"
    assert "as advertised by brokers" in found(asked, silent(9999, lasting=5))[0].title
