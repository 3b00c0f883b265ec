"""`kafkasniff audit`: crafted captures with known answers, and shipped ones compared with their clients' logs.

`screens/audit.txt` has what it shows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.kafka.apis.releases import releases
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import START_NS, Conversation, interleaved
from tests.craft.write import pcap_bytes

OLDEST = {
    "Produce": 3,
    "Fetch": 4,
    "ListOffsets": 1,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
    "JoinGroup": 2,
    "CreateTopics": 2,
    "DeleteTopics": 1,
    "OffsetForLeaderEpoch": 2,
    "DescribeAcls": 1,
    "CreateAcls": 1,
    "DeleteAcls": 1,
    "DescribeConfigs": 1,
    "AlterReplicaLogDirs": 1,
    "DescribeLogDirs": 1,
    "CreateDelegationToken": 1,
    "RenewDelegationToken": 1,
    "ExpireDelegationToken": 1,
    "DescribeDelegationToken": 1,
}
"""Versions that 4.0 supports, by KIP-896; all other APIs from version 0 on."""


def produce_v2(correlation_id: int, client_id: str | None) -> tuple[bytes, bytes]:
    """A Produce request without records, and its response."""
    body = kafka.int16(-1) + kafka.int32(1000)
    body += kafka.array([kafka.string("orders") + kafka.array([kafka.int32(0) + kafka.int32(0)])])
    answer = kafka.int32(0) + kafka.int16(0) + kafka.int64(7) + kafka.int64(-1)
    response = kafka.array([kafka.string("orders") + kafka.array([answer])]) + kafka.int32(0)
    return kafka.request(0, 2, correlation_id, body, client_id=client_id), kafka.response(correlation_id, response)


def metadata(correlation_id: int, client_id: str | None) -> tuple[bytes, bytes]:
    """Version 1."""
    body = kafka.array([kafka.string("orders")])
    return (
        kafka.request(3, 1, correlation_id, body, client_id=client_id),
        kafka.metadata_response(correlation_id, "broker", 9092, ["orders"]),
    )


def asking(correlation_id: int, client_id: str | None, highest: int) -> tuple[bytes, bytes]:
    """ApiVersions v0, answered with Produce up to `highest`."""
    ranges = ((0, 0, highest), (1, 0, 11), (3, 0, 9), (18, 0, 3))
    return (
        kafka.request(18, 0, correlation_id, b"", client_id=client_id),
        kafka.api_versions_response(correlation_id, 0, ranges),
    )


def talk(address: str, *exchanges: tuple[bytes, bytes], start: int = 0, close: bool = True) -> Conversation:
    conversation = Conversation((address, 50_000), ("10.0.0.9", 9092), start_ns=START_NS + start)
    conversation.handshake()
    for request, response in exchanges:
        conversation.exchange(request, response)
    if close:
        conversation.close()
    return conversation


def crafted() -> list[Conversation]:
    """Clients with fixed versions, limited by a broker, limited themselves, and new enough.

    One asks two brokers, of which the lower offer counts; one request has no response, and one response no request.
    """
    late = kafka.api_versions_request(3, 3, ("craft", "1.0")), kafka.api_versions_response(3, 3)
    alone = talk("10.0.1.5", metadata(1, "alone"), close=False, start=40)
    alone.send("broker", kafka.metadata_response(77, "broker", 9092, ["orders"]))
    alone.send("client", kafka.api_versions_request(5, 0))
    return [
        talk("10.0.1.1", metadata(1, "fixed"), produce_v2(2, "fixed"), produce_v2(3, "fixed")),
        talk(
            "10.0.1.2",
            asking(1, "limited", 9),
            asking(4, "limited", 2),
            metadata(2, "limited"),
            produce_v2(3, "limited"),
            start=10,
        ),
        talk("10.0.1.3", asking(1, "old", 9), metadata(2, "old"), produce_v2(3, "old"), start=20),
        # It names its software after its first request, as clients that authenticate do, and stays connected.
        talk("10.0.1.4", metadata(1, "crafted"), metadata(2, "crafted"), late, start=30, close=False),
        alone,
    ]


def written(path: Path, conversations: list[Conversation]) -> Path:
    path.write_bytes(pcap_bytes(interleaved(conversations), nanoseconds=True))
    return path


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("audit") / "crafted.pcap", crafted())


def audited(*arguments: object, **options: Any) -> dict[str, Any]:
    result = kafkasniff("audit", *arguments, "--format", "json", **options)
    assert result.code in (Exit.OK, Exit.FINDINGS), result.err
    [answer] = result.objects
    assert (result.code == Exit.FINDINGS) == bool(answer["counts"]["refused"] + answer["counts"]["at_risk"])
    return answer


def test_known_answers(capture: Path) -> None:
    answer = audited(capture, "--target", "4.0")
    assert (answer["target"], answer["from"], answer["new"]) == ("4.0", None, None)
    assert answer["counts"] == {"refused": 2, "at_risk": 1, "served": 3}
    assert [(one["client_ip"], one["client_id"], one["outcome"], one["asks"]) for one in answer["clients"]] == [
        ("10.0.1.1", "fixed", "refused", False),
        ("10.0.1.3", "old", "refused", True),
        ("10.0.1.2", "limited", "at-risk", True),
        ("10.0.1.4", "crafted", "served", True),
        ("10.0.1.5", "alone", "served", False),
        ("10.0.1.5", "crafted", "served", True),
    ]
    findings = [
        [(one["api"], one["api_versions"], one["kind"], one["requests"]) for one in client["findings"]]
        for client in answer["clients"]
    ]
    assert findings == [
        [("Produce", [2], "too-old", 2)],
        [("Produce", [2], "too-old", 1)],
        [("Produce", [2], "too-old", 1)],
        *[[]] * 3,
    ]
    served = answer["clients"][3]
    assert (served["software_name"], served["software_version"], served["requests"]) == ("craft", "1.0", 3)
    assert "2.1" in answer["rule"]


def exported(capture: Path, folder: Path, *options: str) -> Path:
    result = kafkasniff("export", capture, "-q", "-o", folder, *options)
    assert result.code == Exit.OK, result.err
    return folder


def test_a_capture_and_its_export_agree_on_crafted_clients(capture: Path, tmp_path: Path) -> None:
    whole = audited(capture, "--target", "4.0", "--from", "3.0")
    assert audited(exported(capture, tmp_path / "whole"), "--target", "4.0", "--from", "3.0") == whole
    # Without bodies it is unknown what was offered: a certain refusal becomes a possible one.
    bare = audited(exported(capture, tmp_path / "bare", "--no-bodies"), "--target", "4.0")
    assert bare["counts"] == {"refused": 1, "at_risk": 2, "served": 3}


def sent(capture: str) -> set[tuple[str, str, int]]:
    """Client id, API and version of each request, according to the clients' logs."""
    lines = (ROOT / "captures" / f"{capture}.log.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return {(one["client_id"], one["api"], one["api_version"]) for one in entries if one["kind"] == "request"}


@pytest.mark.parametrize(
    "name", one_in(2, ["java-0.9", "java-0.10.2", "java-1.1", "java-0.11", "java-2.0", "java-2.4"])
)
def test_clients_too_old_for_4_0(name: str) -> None:
    """According to the clients' logs and the table of KIP-896; "1" is the controller."""
    answer = audited(ROOT / "captures" / f"{name}.pcap", "--target", "4.0")
    found = {
        (client["client_id"], finding["api"], version)
        for client in answer["clients"]
        for finding in client["findings"]
        for version in finding["api_versions"]
        if finding["kind"] == "too-old"
    }
    assert found == {one for one in sent(name) if one[2] < OLDEST.get(one[1], 0) and one[0] != "1"}
    assert bool(found) == (name not in ("java-2.0", "java-2.4"))
    assert all(one["kind"] == "too-old" for client in answer["clients"] for one in client["findings"])


def test_without_a_target_it_is_the_latest_release(capture: Path) -> None:
    assert audited(capture) == audited(capture, "--target", releases()[-1])


def test_too_many_clients_at_once(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients beyond the bound are reported as omitted; the most frequent ones are kept."""
    from kafkasniff.cli.running import capture_usage

    monkeypatch.setattr(capture_usage, "_SENT", msgspec.structs.replace(capture_usage._SENT, bound=4))
    result = kafkasniff("audit", capture, "--target", "4.0", "--format", "json")
    assert "requests are not counted" in result.err
    kept = {one["client_id"]: one["requests"] for one in result.objects[0]["clients"]}
    assert kept["fixed"] == 2
    assert sum(kept.values()) < 12
