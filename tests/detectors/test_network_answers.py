"""Detectors of trouble between clients and brokers: each on a capture that shows it, and on one that only looks so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest

from kafkasniff.detectors import Finding, broker_facts, run
from kafkasniff.detectors import listeners as listening
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft.conversation import Conversation
from tests.detectors import network_scenes as scenes
from tests.detectors.talks import capture_of, checked

CLIENT = {"client_id": "crafted", "client_ip": "10.0.0.5"}
AT = {**CLIENT, "broker": "10.0.0.9:9092"}
PAIR = {"client_ip": "10.0.0.5", "broker": "10.0.0.9:9092"}
CAPTURES_ALONE = {
    "accepted_by_a_dying_broker",
    "killed",
    "listed_again",
    "restarted",
    "restarted_unseen",
    "not_up_yet",
    "refused",
    "unanswered",
    "slow_reader",
    "another_continent",
}
"""Scenes of what exports do not tell: attempts to connect, windows, round trips."""


class Case(NamedTuple):
    detector: str
    scene: Callable[[], Sequence[Conversation]]
    severity: str
    count: int
    subject: dict[str, Any]
    said: str
    """Part of the title."""
    evidence: list[tuple[int | None, int | None]]
    """Numbers of connection and exchange, the first three."""
    values: Mapping[str, Any] = MappingProxyType({})
    settings: tuple[str, ...] = ()


NOBODY = {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.10:9092"}
GONE = {"broker": "10.0.0.9:9092"}
CASES = [
    Case(
        "broker-gone",
        scenes.killed,
        "error",
        7,
        GONE,
        "not seen again by the end of the capture: 3 connections dropped, 3 connects refused, 1 connect not answered, "
        "3 clients (10.0.0.5, 10.0.0.6, 10.0.0.7)",
        [(1, None), (2, None), (3, None)],
        {"dropped": 3, "refused": 3, "unanswered": 1, "back": False},
    ),
    Case(
        "broker-gone",
        scenes.restarted,
        "warning",
        7,
        GONE,
        "(7 s): 3 connections dropped",
        [(1, None), (2, None), (3, None)],
    ),
    Case(
        "broker-gone",
        scenes.restarted_unseen,
        "warning",
        3,
        GONE,
        "3 connections dropped",
        [(1, None), (2, None), (3, None)],
    ),
    Case(
        "broker-gone",
        scenes.accepted_by_a_dying_broker,
        "error",
        8,
        GONE,
        "not seen again by the end of the capture: 4 connections dropped, 3 connects refused, 1 connect not answered",
        [(1, None), (2, None), (3, None)],
    ),
    Case("broker-gone", scenes.not_up_yet, "note", 1, GONE, "not up yet", [(None, None)]),
    Case(
        "broker-gone",
        scenes.listed_again,
        "warning",
        7,
        GONE,
        "(7 s, by the metadata of other brokers): 3 connections dropped, 3 connects refused",
        [(2, None), (3, None), (4, None)],
        {"back": True, "leaders_moved": {"1": 2}},
    ),
    Case(
        "broker-gone",
        scenes.registered_again,
        "warning",
        7,
        GONE,
        "by its new epoch): 3 connections dropped, 3 connects refused, 1 connect not answered, 3 clients (10.0.0.5, "
        "10.0.0.6, 10.0.0.7), restarted (broker epoch 40)",
        [(2, None), (3, None), (4, None)],
        {"back": True, "broker_epoch": 40},
    ),
    Case(
        "broker-gone",
        scenes.restarted_by_its_epochs,
        "note",
        1,
        {"broker": "2"},
        "broker 2 restarted between 10:13:28.126 and 10:13:30.127: broker epoch 17 became 40",
        [],
        {"epochs": [17, 40]},
    ),
    Case(
        "broker-gone",
        scenes.restarted_by_its_fetches,
        "note",
        1,
        {"broker": "2"},
        "broker epoch 17 became 40",
        [],
        {"epochs": [17, 40]},
    ),
    Case(
        "unreached-listeners",
        scenes.refused,
        "error",
        3,
        NOBODY,
        "3 connections of 10.0.0.5 to 10.0.0.10:9092, which brokers told it, refused; none came about",
        [(None, None)] * 3,
        {"attempts": 3, "opening": "refused"},
    ),
    Case(
        "unreached-listeners",
        scenes.unanswered,
        "error",
        2,
        NOBODY,
        "not answered",
        [(None, None)] * 2,
        {"attempts": 2, "opening": "unanswered"},
    ),
    Case(
        "unreached-listeners",
        scenes.in_a_container,
        "error",
        4,
        AT,
        "asked 10.0.0.9:9092 4 times for metadata and nothing else; it is told to go to the machine it runs on itself: "
        "127.0.0.1:9092",
        [(1, 2), (1, 3), (1, 4)],
        {"asks": 4, "advertised": ["127.0.0.1:9092"]},
    ),
    Case(
        "unreached-listeners",
        scenes.unknown_name,
        "note",
        4,
        AT,
        "it is told to go to kafka.internal:9092",
        [(1, 2), (1, 3), (1, 4)],
    ),
    Case(
        "mixed-broker-versions",
        scenes.upgraded,
        "warning",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"], "cluster": "one"},
        "2 brokers of cluster one with different versions of 1 API: 10.0.0.9:9092 (",
        [(1, 1), (2, 3)],
        {"apis": 1},
    ),
    Case(
        "mixed-broker-versions",
        scenes.upgraded_without_id,
        "warning",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"], "cluster": "10.0.0.10:9092"},
        "2 brokers of cluster 10.0.0.10:9092 with",
        [(1, 1), (2, 3)],
    ),
    Case(
        "mixed-broker-versions",
        scenes.of_clusters_without_ids,
        "note",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"]},
        "2 brokers, perhaps of different clusters, with different versions of 1 API: 10.0.0.9:9092 (",
        [(1, 1), (2, 3)],
    ),
    Case(
        "mixed-broker-versions",
        scenes.perhaps_upgraded,
        "note",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"]},
        "2 brokers, perhaps of different clusters, with different versions of 1 API: 10.0.0.9:9092 (",
        [(1, 1), (2, 2)],
    ),
    Case(
        "connection-churn",
        scenes.churning,
        "warning",
        25,
        CLIENT,
        "opened 25 connections within 60 s, 25 of them for less than 5 s",
        [(1, None), (2, None), (3, None)],
        {"opened": 25, "short": 25, "reset": 0, "without_requests": 0, "requests": 25},
        ("connection-churn.every=60s",),
    ),
    Case(
        "connection-churn",
        scenes.churning_for_a_mechanism,
        "warning",
        25,
        CLIENT,
        "opened 25 connections within 60 s, the broker refused 25 of them: the client asks for SCRAM-SHA-256, the "
        "listener takes PLAIN",
        [(1, None), (2, None), (3, None)],
        {"refused": 25},
        ("connection-churn.every=60s",),
    ),
    Case(
        "sasl-failures",
        scenes.wrong_mechanism,
        "error",
        2,
        {**AT, "error_code": 33},
        "with SCRAM-SHA-256 refused by 10.0.0.9:9092: UNSUPPORTED_SASL_MECHANISM, the listener takes PLAIN",
        [(1, 1), (2, 2)],
        {"mechanism": "SCRAM-SHA-256", "taken": "PLAIN"},
    ),
    Case(
        "sasl-failures",
        scenes.wrong_password,
        "error",
        2,
        {**AT, "error_code": 58},
        "2 authentications of crafted at 10.0.0.5 with SCRAM-SHA-256 refused by 10.0.0.9:9092: "
        "SASL_AUTHENTICATION_FAILED",
        [(1, 2), (2, 4)],
        {"mechanism": "SCRAM-SHA-256"},
    ),
    Case(
        "sasl-failures",
        scenes.closed_behind_a_token,
        "error",
        1,
        {**AT, "error_code": None},
        "with PLAIN refused by 10.0.0.9:9092: it closed the connection",
        [(1, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.browser,
        "warning",
        1,
        {"client_id": None, "client_ip": "10.0.0.8", "broker": "10.0.0.9:9092", "kind": "not-kafka"},
        "1 connection of 10.0.0.8 to 10.0.0.9:9092: ",
        [(2, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.web_server,
        "error",
        1,
        {**AT, "kind": "answer-not-kafka"},
        "1 connection of crafted at 10.0.0.5 to 10.0.0.9:9092: ",
        [(1, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.tls_at_plaintext,
        "error",
        1,
        {"client_id": None, "client_ip": "10.0.0.8", "broker": "10.0.0.9:9092", "kind": "tls-unanswered"},
        "TLS",
        [(2, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.nothing_but_closed,
        "error",
        2,
        {**AT, "kind": "connection-rejected"},
        "or the broker is older than 0.10, where there was no ApiVersions",
        [(1, None), (2, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.closed_though_others_work,
        "warning",
        1,
        {"client_id": "crafted", "client_ip": "10.0.0.8", "broker": "10.0.0.9:9092", "kind": "closed-early"},
        "1 connection of crafted at 10.0.0.8",
        [(3, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.old_client,
        "error",
        2,
        {**AT, "client_ip": "10.0.0.8", "kind": "version-not-taken"},
        "2 connections of crafted at 10.0.0.8 to 10.0.0.9:9092: closed at Produce v2, which Kafka 4.0 and newer do not "
        "take: v3 is the lowest there",
        [(3, None), (4, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.without_sasl,
        "error",
        1,
        {**AT, "client_ip": "10.0.0.8", "kind": "sasl-missing"},
        "the broker closed the connection at Metadata v9, where other clients authenticate with SASL first",
        [(2, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.tls_where_tls_works,
        "warning",
        1,
        {"client_id": None, "client_ip": "10.0.0.8", "broker": "10.0.0.9:9093", "kind": "closed-early"},
        "cause unknown",
        [(2, None)],
    ),
    Case(
        "tls-failures",
        scenes.untrusting,
        "error",
        2,
        {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.9:9093", "cause": "authority"},
        "2 TLS handshakes of 10.0.0.5 with 10.0.0.9:9093 failed: the client does not trust the authority of the "
        "broker's certificate (alert unknown_ca)",
        [(1, None), (2, None)],
    ),
    Case(
        "tls-failures",
        scenes.refusing_in_secret,
        "warning",
        2,
        {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.9:9093", "cause": "certificate"},
        "failed: probably the client refuses the broker's certificate (by the size of the last record",
        [(1, None), (2, None)],
    ),
    Case(
        "tls-failures",
        scenes.leaving_in_the_handshake,
        "warning",
        3,
        {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.9:9093", "cause": "unknown"},
        "without an alert; cause unknown",
        [(1, None), (2, None), (3, None)],
    ),
    Case(
        "slow-broker",
        scenes.one_is_slow,
        "warning",
        25,
        {"broker": "10.0.1.1:9092"},
        "10.0.1.1:9092: median Metadata latency is 60 ms, 5.9×",
        [(2, None)],
        {"apis": ["Metadata"]},
    ),
    Case(
        "transport-trouble",
        scenes.losses,
        "warning",
        8,
        {**PAIR, "trouble": "retransmits"},
        "between 10.0.0.5 and 10.0.0.9:9092 retransmitted; 8 exchanges slow for it",
        [(1, 1), (1, 6), (1, 11)],
        {"retransmits": 8, "unanswered": 0},
    ),
    Case(
        "transport-trouble",
        scenes.slow_reader,
        "warning",
        1,
        {**PAIR, "trouble": "client-window"},
        "10.0.0.5 took no data for 2 s: its window was closed 1 time",
        [(1, None)],
        {"closed": 1},
    ),
    Case(
        "transport-trouble",
        scenes.another_continent,
        "note",
        10,
        {**PAIR, "trouble": "distance"},
        "round trip from 10.0.0.5 to 10.0.0.9:9092: at least 80 ms",
        [],
        {"round_trip_ms": 80.0},
    ),
    Case(
        "skewed-partitions",
        scenes.hot_partition,
        "warning",
        1600,
        {"topic": "orders", "partition": 1},
        "partition 1 of orders got 80% of 2,000 records",
        [(1, 3), (1, 4), (1, 5)],
        {"share": 0.8, "partitions": 6, "idle": 2, "records": 2000},
    ),
]
FINE = [
    ("broker-gone", scenes.leaving),
    ("broker-gone", scenes.firewalled),
    ("broker-gone", scenes.staying),
    ("broker-gone", scenes.idle_too_long),
    ("broker-gone", scenes.beating),
    ("broker-gone", scenes.wrong_password),
    ("unreached-listeners", scenes.refused_at_first),
    ("unreached-listeners", scenes.arrived),
    ("mixed-broker-versions", scenes.alike),
    ("mixed-broker-versions", scenes.of_two_clusters),
    ("connection-churn", scenes.staying),
    ("sasl-failures", scenes.right_password),
    ("tls-failures", scenes.tls_that_works),
    ("tls-failures", scenes.tls_at_plaintext),
    ("wrong-protocol", scenes.untrusting),
    ("wrong-protocol", scenes.old_version_at_a_dying_broker),
    ("wrong-protocol", scenes.old_version_that_others_use),
    ("wrong-protocol", scenes.web_beside),
    ("wrong-protocol", scenes.left_by_the_client),
    ("wrong-protocol", scenes.accepted_by_a_dying_broker),
    ("wrong-protocol", scenes.right_password),
    ("slow-broker", scenes.all_alike),
    ("transport-trouble", scenes.a_single_loss),
    ("transport-trouble", scenes.busy_broker),
    ("skewed-partitions", scenes.spread),
]


def plain(findings: Sequence[Finding]) -> list[Finding]:
    """Without the numbers that exports do not have."""
    return [
        msgspec.structs.replace(
            one,
            evidence=tuple(msgspec.structs.replace(each, connection=None, exchange=None) for each in one.evidence),
        )
        for one in findings
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.detector}-{case.scene.__name__}")
def test_what_is_there_is_found(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "crafted.pcap"
    answer = checked(path, case.scene(), case.detector, settings=case.settings)
    (found,) = answer.findings
    assert answer.notes == []
    told = (found.detector, found.severity, found.count, found.subject)
    assert told == (case.detector, case.severity, case.count, case.subject)
    assert case.said in found.title
    if case.detector != "slow-broker":
        assert [(one.connection, one.exchange) for one in found.evidence][:3] == case.evidence
    else:
        assert {one.connection for one in found.evidence} == {2}
    assert {name: found.values[name] for name in case.values} == dict(case.values)
    assert found.meaning.endswith(".")
    assert found.advice.endswith(".")
    msgspec.json.encode(found)
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
    exported = run([str(tmp_path / "out")], only=[case.detector], settings=case.settings).findings
    if case.scene is scenes.registered_again:
        (restart,) = exported
        assert "broker 0 restarted between" in restart.title
    else:
        assert exported == ([] if case.scene.__name__ in CAPTURES_ALONE else plain(answer.findings))


@pytest.mark.parametrize(("detector", "scene"), FINE, ids=lambda value: getattr(value, "__name__", value))
def test_what_is_fine_is_not(detector: str, scene: Callable[[], Sequence[Conversation]], tmp_path: Path) -> None:
    answer = checked(tmp_path / "crafted.pcap", scene(), detector)
    assert (answer.findings, answer.notes, answer.broken) == ([], [], False)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("java-sasl", {"sasl-failures": {None}}),
        ("kraft-2.8", {"broker-gone": {None}}),
        ("java-errors", {}),
        ("tls/tls-plaintext-client", {"wrong-protocol": {"answer-not-kafka"}}),
        ("tls/tls-plaintext-listener", {"wrong-protocol": {"tls-unanswered"}}),
        ("tls/tls-refused", {"tls-failures": {None}}),
    ],
)
def test_real_captures(name: str, told: dict[str, set[str | None]], tmp_path: Path) -> None:
    """What their names say, and nothing else. A capture and its export say the same."""
    only = sorted({case.detector for case in CASES})
    path = ROOT / "captures" / f"{name}.pcap"
    captured = run([str(path)], only=only).findings
    found: dict[str, set[str | None]] = {}
    for one in captured:
        found.setdefault(one.detector, set()).add(one.subject.get("kind"))
    assert found == told
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
    by_rows = [one for one in captured if one.detector != "broker-gone"]  # packets alone tell of that
    assert plain(by_rows) == run([str(tmp_path / "out")], only=only).findings


def test_bodies_of_no_use() -> None:
    long = "x" * (broker_facts.MAX_BODY + 1)
    for body in ("", "{", '{"brokers":[}', '{"brokers":[{"node_id":"x"}]}', long):
        assert listening._brokers(body) == []
    assert listening._brokers('{"throttle_time_ms":0,"brokers":[{"node_id":1,"host":"a","port":9}]}') == [("a", 9)]


def test_one_direction_of_tls(tmp_path: Path) -> None:
    """Nothing of the broker is in the capture: that it did not answer is no claim, with or without packets."""
    talk = scenes.secure(("client", scenes.client_hello()))
    talk.packets = [packet for packet in talk.packets if packet.src == "10.0.0.5"]
    path = capture_of(tmp_path / "half.pcap", [scenes.plain(), talk])
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
    for source in (path, tmp_path / "out"):
        assert run([str(source)], only=["wrong-protocol", "tls-failures"]).findings == []


def test_bodies_without_facts_of_brokers() -> None:
    for body in (
        "",
        "{",
        '{"brokers":[}',
        '{"brokers":[',
        '{"brokers":[],"topics":[{"name":"t","partitions":[{"partition_index":0,"leader_id":9223372036854775808}]}]}',
        "x" * (broker_facts.MAX_BODY + 1),
    ):
        assert broker_facts._read(body) == broker_facts._Metadata()
        assert broker_facts._parse(broker_facts._REQUEST, body or None) in (None, broker_facts._Request())
    assert broker_facts._parse(broker_facts._REQUEST, '{"broker_id":1,"broker_epoch":9223372036854775808}') is None
    odd = '{"brokers":[{"node_id":"x"},{"node_id":3},{"node_id":true},{"node_id":4294967296},{"node_id":-1},{}]}'
    assert [one.node for one in broker_facts._read(odd).brokers] == [None, 3, None, None, None, None]


def test_cut_captures(tmp_path: Path) -> None:
    """Nothing fails on what is left of a capture."""
    for number, case in enumerate(CASES[::4]):
        path = capture_of(tmp_path / f"{number}.pcap", case.scene())
        data = path.read_bytes()
        # A few bytes more: the cut must not fall between two packets.
        path.write_bytes(data[: len(data) * 2 // 3] + bytes(3))
        answer = run([str(path)], only=[case.detector], settings=case.settings)
        assert answer.broken
        assert {one.detector for one in answer.findings} <= {case.detector}
