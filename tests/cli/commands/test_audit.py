"""`kafkasniff audit`: captures compared with their clients' logs; `screens/audit.txt` has what it shows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kafkasniff.cli.environment import Exit
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CAPTURES = ROOT / "captures"
OLDEST = {
    **{"Produce": 3, "Fetch": 4, "ListOffsets": 1, "OffsetCommit": 2, "OffsetFetch": 1, "JoinGroup": 2},
    **{"CreateTopics": 2, "DeleteTopics": 1, "OffsetForLeaderEpoch": 2, "DescribeAcls": 1, "CreateAcls": 1},
    **{"DeleteAcls": 1, "DescribeConfigs": 1, "AlterReplicaLogDirs": 1, "DescribeLogDirs": 1},
    **{f"{verb}DelegationToken": 1 for verb in ("Create", "Renew", "Expire", "Describe")},
}
"""Versions that 4.0 supports, by KIP-896; all other APIs from version 0 on."""


def audited(*arguments: object, **options: Any) -> dict[str, Any]:
    result = kafkasniff("audit", *arguments, "--format", "json", **options)
    assert result.code in (Exit.OK, Exit.FINDINGS), result.err
    [answer] = result.objects
    assert (result.code == Exit.FINDINGS) == bool(answer["counts"]["refused"] + answer["counts"]["at_risk"])
    return answer


def sent(capture: str) -> set[tuple[str, str, int]]:
    """Client id, API and version of each request, according to the clients' logs."""
    lines = (CAPTURES / f"{capture}.log.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return {(one["client_id"], one["api"], one["api_version"]) for one in entries if one["kind"] == "request"}


@pytest.mark.parametrize(
    "name", one_in(2, ["java-0.9", "java-0.10.2", "java-1.1", "java-0.11", "java-2.0", "java-2.4"])
)
def test_clients_too_old_for_4_0(name: str) -> None:
    """According to the clients' logs and the table of KIP-896; "1" is the controller."""
    answer = audited(CAPTURES / f"{name}.pcap", "--target", "4.0")
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


def test_too_many_clients_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients beyond the bound are reported as omitted; the most frequent ones are kept."""
    from kafkasniff.cli.running import capture_usage

    monkeypatch.setattr(capture_usage, "_SENT", msgspec.structs.replace(capture_usage._SENT, bound=4))
    result = kafkasniff("audit", CAPTURES / "librdkafka-codecs.pcap", "--target", "4.0", "--format", "json")
    assert "requests are not counted" in result.err
    assert 0 < sum(one["requests"] for one in result.objects[0]["clients"]) < 55
