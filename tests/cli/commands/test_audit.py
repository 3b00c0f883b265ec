"""`kafkasniff audit`: crafted captures with known answers, and shipped ones compared with their clients' logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import Result, kafkasniff
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
    """Four clients: one with fixed versions, one limited by its broker, one limited itself, one that is new enough."""
    late = kafka.api_versions_request(3, 3, ("craft", "1.0")), kafka.api_versions_response(3, 3)
    return [
        talk("10.0.1.1", metadata(1, "fixed"), produce_v2(2, "fixed"), produce_v2(3, "fixed")),
        talk("10.0.1.2", asking(1, "limited", 2), metadata(2, "limited"), produce_v2(3, "limited"), start=10),
        talk("10.0.1.3", asking(1, "old", 9), metadata(2, "old"), produce_v2(3, "old"), start=20),
        # It names its software after its first request, as clients that authenticate do, and stays connected.
        talk("10.0.1.4", metadata(1, "crafted"), metadata(2, "crafted"), late, start=30, close=False),
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
    assert answer["counts"] == {"refused": 2, "at_risk": 1, "served": 1}
    assert [(one["client_ip"], one["client_id"], one["outcome"], one["asks"]) for one in answer["clients"]] == [
        ("10.0.1.1", "fixed", "refused", False),
        ("10.0.1.3", "old", "refused", True),
        ("10.0.1.2", "limited", "at-risk", True),
        ("10.0.1.4", "crafted", "served", True),
    ]
    findings = [
        [(one["api"], one["api_versions"], one["kind"], one["requests"]) for one in client["findings"]]
        for client in answer["clients"]
    ]
    assert findings == [
        [("Produce", [2], "too-old", 2)],
        [("Produce", [2], "too-old", 1)],
        [("Produce", [2], "too-old", 1)],
        [],
    ]
    served = answer["clients"][3]
    assert (served["software_name"], served["software_version"], served["requests"]) == ("craft", "1.0", 3)
    assert "2.1" in answer["rule"]


def test_text(capture: Path) -> None:
    result = kafkasniff("audit", capture, "--target", "v4.0.1")
    assert result.code == Exit.FINDINGS
    assert result.lines[:6] == [
        "Kafka 4.0, 4 clients: 2 would be refused, 1 may be refused, 1 would be served.",
        "",
        "10.0.1.1  fixed  software unknown  would be refused  [1]",
        "  Produce v2  too old  4.0 has v3-v12  2 requests  [2]",
        "  needs an upgrade to a client that supports Produce v3 or newer",
        "",
    ]
    assert "  10.0.1.4  crafted  craft 1.0  3 requests" in result.lines
    assert "  Produce v2  too old  4.0 has v3-v12  1 request  [4]" in result.lines
    assert "[4] it sends ApiVersions, and its brokers offer at most v2: it may support newer versions" in result.lines
    assert result.lines[-1].endswith("(KIP-896).")
    assert "4 connections" in result.err
    assert b"\x1b" not in result.out
    assert b"\x1b" in kafkasniff("audit", capture, "--target", "4.0", "--color", "always").out


def test_no_findings(capture: Path) -> None:
    result = kafkasniff("audit", capture, "--target", "3.9", "-q")
    assert (result.code, result.err) == (Exit.OK, "")
    assert result.lines[0] == "Kafka 3.9, 4 clients: 4 would be served."


def exported(capture: Path, folder: Path, *options: str) -> Path:
    result = kafkasniff("export", capture, "-q", "-o", folder, *options)
    assert result.code == Exit.OK, result.err
    return folder


@pytest.mark.parametrize(
    "name", ["java-0.10.2", "java-0.9", "librdkafka-sasl", "old-raw-sasl", "zookeeper-3.9-cluster", "sarama"]
)
@pytest.mark.parametrize("target", ["4.0", "2.0"])
def test_a_capture_and_its_export_agree(
    name: str, target: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    path = ROOT / "captures" / f"{name}.pcap"
    folder = tmp_path_factory.getbasetemp() / f"audit-{name}"
    if not folder.exists():
        exported(path, folder)
    assert audited(folder, "--target", target) == audited(path, "--target", target)


def test_a_capture_and_its_export_agree_on_crafted_clients(capture: Path, tmp_path: Path) -> None:
    whole = audited(capture, "--target", "4.0", "--from", "3.0")
    assert audited(exported(capture, tmp_path / "whole"), "--target", "4.0", "--from", "3.0") == whole
    # Without bodies it is unknown what was offered: a certain refusal becomes a possible one.
    bare = audited(exported(capture, tmp_path / "bare", "--no-bodies"), "--target", "4.0")
    assert bare["counts"] == {"refused": 1, "at_risk": 2, "served": 1}


def test_several_inputs_are_combined(capture: Path, tmp_path: Path) -> None:
    """A folder and standard input: the counts of both."""
    folder = exported(capture, tmp_path / "tables")
    both = kafkasniff("audit", folder, "-", "--target", "4.0", "--format", "json", stdin=capture.read_bytes())
    once, twice = audited(capture, "--target", "4.0"), json.loads(both.out)
    assert [one["requests"] * 2 for one in once["clients"]] == [one["requests"] for one in twice["clients"]]


def sent(capture: str) -> set[tuple[str, str, int]]:
    """Client id, API and version of each request, according to the clients' logs."""
    lines = (ROOT / "captures" / f"{capture}.log.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return {(one["client_id"], one["api"], one["api_version"]) for one in entries if one["kind"] == "request"}


@pytest.mark.parametrize("name", ["java-0.9", "java-0.10.2", "java-0.11", "java-1.1", "java-2.0", "java-2.4"])
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


def test_brokers_of_a_cluster_are_distinguished() -> None:
    answer = audited(ROOT / "captures" / "zookeeper-3.9-cluster.pcap", "--target", "4.0")
    assert {one["client_id"] for one in answer["clients"]} == {"cluster-admin", "cluster-producer", "lone-producer"}
    assert answer["counts"]["refused"] == answer["counts"]["at_risk"] == 0
    removed = {one["api"] for one in answer["between_brokers"] if one["verdict"] == "removed"}
    assert removed == {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}


def test_new_versions(capture: Path) -> None:
    new = {one["api"]: one for one in audited(capture, "--target", "4.0", "--from", "3.9.1")["new"]}
    assert (new["Metadata"]["from_max"], new["Metadata"]["unused"], new["Metadata"]["used_max"]) == (12, [13], 1)
    text = kafkasniff("audit", capture, "--target", "4.0", "--from", "3.9").text
    assert "New in 4.0 since 3.9" in text
    captures = [ROOT / "captures" / f"{name}.pcap" for name in ("java-codecs", "java-admin")]
    newest = {one["api"] for one in audited(*captures, "--target", "4.0", "--from", "3.9")["new"]}
    assert not newest & {"Produce", "Metadata", "ListOffsets", "DescribeCluster", "UpdateFeatures"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "--target"),
        (("--target", "5.9"), "'5.9' is unknown"),
        (("--target", "3.0", "--from", "0.7"), "unknown release '0.7'"),
        (("--target", "3.0", "--from", "3.0"), "--from 3.0 is not older"),
        (("--target", "3.0", "--from", "4.0"), "--from 4.0 is not older"),
        (("--target", "3.0", "--format", "xml"), "xml"),
    ],
)
def test_usage_errors(capture: Path, arguments: tuple[str, ...], expected: str) -> None:
    result = kafkasniff("audit", capture, *arguments)
    assert (result.code, result.out) == (Exit.USAGE, b"")
    assert expected in result.err
    assert result.err.count("\n") == 1


def test_unreadable_inputs(capture: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.pcap", tmp_path):
        result = kafkasniff("audit", capture, path, "--target", "4.0")
        assert (result.code, result.out) == (Exit.CAPTURE, b"")
    garbage = tmp_path / "garbage.pcap"
    garbage.write_bytes(bytes(range(256)) * 8)
    assert kafkasniff("audit", garbage, "--target", "4.0").code == Exit.CAPTURE


def test_a_capture_that_is_cut(capture: Path, tmp_path: Path) -> None:
    """Everything read counts; the exit code for findings takes precedence."""
    whole = capture.read_bytes()
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(whole[:-5])
    assert kafkasniff("audit", cut, "--target", "4.0").code == Exit.FINDINGS
    assert kafkasniff("audit", cut, "--target", "3.9").code == Exit.BROKEN
    # Cut anywhere, or with bytes changed: either an answer, or the report that there is no answer.
    for place in range(24, len(whole), 97):
        cut.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 : -3])
        assert kafkasniff("audit", cut, "--target", "4.0").code in (
            Exit.OK,
            Exit.FINDINGS,
            Exit.BROKEN,
            Exit.CAPTURE,
        )


def test_a_capture_without_kafka(tmp_path: Path) -> None:
    web = talk("10.0.1.1", (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"))
    result = kafkasniff("audit", written(tmp_path / "web.pcap", [web]), "--target", "4.0")
    assert (result.code, result.lines) == (Exit.OK, ["No client was seen."])
    assert "no client was seen" in result.err


def test_names_from_the_wire_cannot_control_a_terminal(tmp_path: Path) -> None:
    name = "\x1b[2Jred\u202e\u009b31m"
    capture = written(tmp_path / "escape.pcap", [talk("10.0.1.1", metadata(1, name), produce_v2(2, name))])

    def shown(*options: str) -> Result:
        return kafkasniff("audit", capture, "--target", "4.0", *options, stdout_tty=True, environ={"NO_COLOR": "1"})

    assert "\\x1b[2Jred\\u202e\\x9b31m" in shown().text
    for result in (shown(), shown("--format", "json")):
        assert not {"\x1b", "\u202e", "\u009b"} & set(result.text + result.err)
    assert shown("--format", "json").objects[0]["clients"][0]["client_id"] == name


def test_a_client_without_an_id_and_ipv6(tmp_path: Path) -> None:
    conversation = Conversation(("2001:db8::5", 50_000), ("2001:db8::9", 9092))
    conversation.handshake()
    conversation.exchange(*metadata(1, None))
    conversation.exchange(*produce_v2(2, None))
    result = kafkasniff("audit", written(tmp_path / "v6.pcap", [conversation]), "--target", "4.0")
    assert "2001:db8::5  no client id  software unknown  would be refused  [1]" in result.lines


def test_into_a_file(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    result = kafkasniff("audit", capture, "--target", "4.0", "--format", "json", "-o", path)
    assert (result.code, result.out) == (Exit.FINDINGS, b"")
    assert json.loads(path.read_text()) == audited(capture, "--target", "4.0")
    assert path.stat().st_mode & 0o777 == 0o600
    assert kafkasniff("audit", capture, "--target", "4.0", "-o", capture).code == Exit.USAGE
    assert kafkasniff("audit", capture, "--target", "4.0", "-o", tmp_path / "no" / "such").code == Exit.UNAVAILABLE


def test_counts_do_not_depend_on_batches(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor on when the statistics of closed connections are passed on."""
    from kafkasniff.cli.running import capture_usage, pipeline

    whole = audited(ROOT / "captures" / "java-0.10.2.pcap", capture, "--target", "4.0")
    monkeypatch.setattr(pipeline, "FIRST_ROWS", 3)
    monkeypatch.setattr(pipeline, "MAX_ROWS", 3)
    monkeypatch.setattr(capture_usage, "MAX_ENDED", 1)
    assert audited(ROOT / "captures" / "java-0.10.2.pcap", capture, "--target", "4.0") == whole


def test_long_lists_are_cut_in_text(tmp_path: Path) -> None:
    """Versions and keys come from the wire: the text stays short, the JSON is complete."""
    requests = [kafka.request(0, version, number, bytes(8)) for number, version in enumerate(range(100, 400), 3)]
    conversation = talk("10.0.1.1", metadata(1, "crafted"), metadata(2, "crafted"), close=False)
    conversation.send("client", b"".join(requests))
    capture = written(tmp_path / "many.pcap", [conversation])
    result = kafkasniff("audit", capture, "--target", "4.0", "--port", 9092)
    assert result.code == Exit.FINDINGS
    assert max(map(len, result.lines)) < 150
    [client] = audited(capture, "--target", "4.0", "--port", 9092)["clients"]
    assert client["findings"][0]["api_versions"] == list(range(100, 400))


def test_tls_with_the_secrets_of_the_capture(capture: Path, tmp_path: Path) -> None:
    path = ROOT / "captures" / "tls" / "tls13-kafka-python.pcapng"
    answer = audited(path, "--target", "4.0")
    assert answer["counts"]["served"] == len(answer["clients"]) > 0
    missing = kafkasniff("audit", capture, "--target", "4.0", "--keylog", tmp_path / "missing.log")
    assert missing.code == Exit.USAGE


def test_too_many_clients_at_once(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients beyond the bound are reported as omitted; the most frequent ones are kept."""
    from kafkasniff.cli.running import capture_usage

    monkeypatch.setattr(capture_usage, "_SENT", msgspec.structs.replace(capture_usage._SENT, bound=4))
    result = kafkasniff("audit", capture, "--target", "4.0", "--format", "json")
    assert "requests are not counted" in result.err
    kept = {one["client_id"]: one["requests"] for one in result.objects[0]["clients"]}
    assert kept["fixed"] == 2
    assert sum(kept.values()) < 12
