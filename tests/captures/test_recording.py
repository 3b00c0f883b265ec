"""What the recorder reads from the logs of brokers, as brokers of these releases wrote them.

Its processes are tested by recording: tests/captures/test_manifest.py and tests/evidence/ check what it recorded.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from captures.record.distribution import SetupError
from captures.record.journal_brokers import broker_log
from captures.record.kraft_clusters import answered_log, cluster, controllers, last_leader, nodes_log

TIMES = "totalTime:44,requestQueueTime:12,localTime:31,remoteTime:0,responseQueueTime:1,sendTime:1"
WHO = "securityProtocol:PLAINTEXT,principal:User:ANONYMOUS"
LINES = {
    "0.8.2, no client in the header": (
        "2026-11-21 DEBUG kafka.request.logger Completed request:Name: ControlledShutdownRequest; Version: 0; "
        f"CorrelationId: 0; BrokerId: 1 from client /127.0.0.1:43426;{TIMES}",
        ("ControlledShutdown", 7, 0, 0, None, 43426),
    ),
    "0.9, a client that may be missing": (
        "2026-11-21 DEBUG kafka.request.logger Completed request:Name: ControlledShutdownRequest; Version: 1; "
        f"CorrelationId: 0;ClientId:Some(1); BrokerId: 1 from connection 127.0.0.1:42092-127.0.0.1:47578;{TIMES},{WHO}",
        ("ControlledShutdown", 7, 1, 0, "1", 47578),
    ),
    "0.10": (
        "2026-11-21 19:25:40,909 TRACE kafka.request.logger Completed request:"
        "{api_key=12,api_version=0,correlation_id=5,client_id=member-1} -- {group_id=g,generation_id=1,member_id=m} "
        f"from connection 127.0.0.1:42092-127.0.0.1:47578;{TIMES},{WHO},listener:INTERNAL",
        ("Heartbeat", 12, 0, 5, "member-1", 47578),
    ),
    "0.11 to 2.6": (
        "[network-thread-1] DEBUG kafka.request.logger - Completed request:RequestHeader("
        "apiKey=UPDATE_METADATA, apiVersion=6, clientId=1, correlationId=2) -- {controller=1},response:{error_code=0}"
        f" from connection 127.0.0.1:42092-127.0.0.1:48562-0;{TIMES},{WHO},listener:INTERNAL",
        ("UpdateMetadata", 6, 6, 2, "1", 48562),
    ),
    "2.7 and later": (
        '[network-thread-1] DEBUG kafka.request.logger - Completed request:{"isForwarded":false,'
        '"requestHeader":{"requestApiKey":56,"requestApiVersion":0,"correlationId":4,"clientId":"2",'
        '"requestApiKeyName":"ALTER_ISR"},"request":{"brokerId":1},"response":{"errorCode":0},'
        '"connection":"127.0.0.1:42092-127.0.0.1:42992-0","totalTimeMs":16.297,"listener":"INTERNAL"}',
        ("AlterPartition", 56, 0, 4, "2", 42992),
    ),
}


@pytest.mark.parametrize(("line", "expected"), LINES.values(), ids=LINES)
def test_each_way_of_naming_a_request(line: str, expected: tuple[object, ...]) -> None:
    names = ("api", "api_key", "api_version", "correlation_id", "client_id", "client_port")
    (entry,) = broker_log(["something else", line, line[: len(line) // 3], "Completed request: nothing known"])
    assert entry == {"kind": "request", **dict(zip(names, expected, strict=True))}


HEADER = "header RequestHeader(apiKey=FETCH, apiVersion=18, clientId=fetcher, correlationId={}, headerVersion=2)"


def sent(correlation: int) -> str:
    header = HEADER.format(correlation)
    return f"9 [t] DEBUG x - Sending FETCH request with {header} and timeout 30 to node 2: body {correlation}"


def received(correlation: int) -> str:
    return f"9 [t] DEBUG x - Received FETCH response from node 2 for request with {HEADER.format(correlation)}: answer"


def test_logs_of_nodes() -> None:
    """Only the first body of a kind is kept, and no unanswered request."""
    lines = [sent(1), "something else", received(1), sent(2), sent(3), received(3), sent(3)]
    reported = [(one["kind"], one["correlation_id"], one.get("text")) for one in nodes_log(lines)]
    assert reported[:3] == [("request", 1, "body 1"), ("response", 1, "answer"), ("request", 2, None)]
    answered = [("request", 1), ("response", 1), ("request", 3), ("response", 3)]
    assert [(one["kind"], one["correlation_id"]) for one in answered_log(lines)] == answered


def test_nodes_of_a_cluster(tmp_path: Path) -> None:
    """They know the same controllers; the leader is the node whose last transition says so."""
    nodes = cluster(tmp_path, {1: ("broker", "controller"), 2: ("controller",), 3: ("broker",)})
    assert [sorted(node.choose_ports()) for node in nodes] == [
        ["CLIENT", "CONTROLLER", "INTERNAL"],
        ["CONTROLLER"],
        ["CLIENT", "INTERNAL"],
    ]
    assert controllers(nodes[:2]) == ",".join(f"127.0.0.1:{node.port('CONTROLLER')}" for node in nodes[:2])
    was, is_now = ("Leader", "ResignedState"), ("CandidateState", "Leader", "Leader")
    for node, states in zip(nodes, (was, is_now, ()), strict=True):
        node.directory.mkdir()
        node.log_file.write_text("".join(f"INFO Completed transition to {state}(epoch=1)\n" for state in states))
    assert last_leader(nodes) is nodes[1]
    with pytest.raises(SetupError):
        last_leader([nodes[0], nodes[2]])
