"""The request logs of old brokers, as brokers of these releases wrote them."""

import pytest

from captures.record.journal_brokers import broker_log

TIMES = "totalTime:44,requestQueueTime:12,localTime:31,remoteTime:0,responseQueueTime:1,sendTime:1"
WHO = "securityProtocol:PLAINTEXT,principal:User:ANONYMOUS"
LINES = {
    "0.8.2, no client in the header": (
        "2026-11-21 DEBUG kafka.request.logger Completed request:Name: ControlledShutdownRequest; Version: 0; "
        f"CorrelationId: 0; BrokerId: 1 from client /127.0.0.1:43426;{TIMES}",
        ("ControlledShutdown", 7, 0, 0, None, 43426),
    ),
    "0.8.2": (
        "2026-11-21 19:24:19,165 TRACE kafka.request.logger Completed request:Name: TopicMetadataRequest; Version: 0; "
        f"CorrelationId: 3; ClientId: scala-writer; Topics: letters from client /127.0.0.1:43427;{TIMES}",
        ("Metadata", 3, 0, 3, "scala-writer", 43427),
    ),
    "0.9, Scala's": (
        "2026-11-21 DEBUG kafka.request.logger Completed request:Name:UpdateMetadataRequest;Version:1;"
        "Controller:1;ControllerEpoch:1;CorrelationId:0;ClientId:1;AliveBrokers:1 : (EndPoint(127.0.0.1,92,PLAINTEXT))"
        f" from connection 127.0.0.1:42092-127.0.0.1:33886;{TIMES},{WHO}",
        ("UpdateMetadata", 6, 1, 0, "1", 33886),
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
def test_each_way_of_naming_a_request(line, expected):
    names = ("api", "api_key", "api_version", "correlation_id", "client_id", "client_port")
    (entry,) = broker_log(["something else", line])
    assert entry == {"kind": "request", **dict(zip(names, expected, strict=True))}


def test_other_lines_are_passed_over():
    cut = [line[: len(line) // 3] for line, _ in LINES.values()]
    assert list(broker_log(["", "Completed request:", "Completed request: nothing known", *cut])) == []
