"""`kafkasniff live` with real clients and a real broker: it decodes what the clients report."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import datetime
from typing import Any

import pytest

from tests.cli.console import kafkasniff
from tests.evidence.compare import Line, line_differences
from tests.evidence.kafka_classes import ask
from tests.evidence.wire import walk
from tests.integration import compare
from tests.integration.processes import OWN_STATE
from tests.integration.run import PROGRAMS, RELEASE, Run

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.root, pytest.mark.xdist_group("broker")]

every_client = pytest.mark.parametrize("name", [program.name for program in PROGRAMS])


def test_there_was_a_run(attempt: Run | str) -> None:
    assert isinstance(attempt, Run), attempt


def test_the_capture_was_whole(real_run: Run) -> None:
    assert real_run.exit_code == 0
    assert [line["detail"] for line in real_run.lines if line.get("kind") == "capture-loss"] == []
    *_, listening, summary = real_run.said.splitlines()
    assert listening.startswith("kafkasniff: listening on lo")
    found = re.search(r"([\d,]+) connections \(([\d,]+) Kafka\), ([\d,]+) messages\b.*?([\d,]+) bytes lost", summary)
    assert found, summary
    connections, kafka, messages, lost = (int(one.replace(",", "")) for one in found.groups())
    seen = {line["connection"] for line in real_run.lines if line.get("kind") not in OWN_STATE}
    assert connections == kafka == len(seen)
    assert messages == sum(line["type"] != "problem" for line in real_run.lines)
    assert lost == 0


def test_every_line_is_of_one_of_the_clients(real_run: Run) -> None:
    """All messages are of the clients; the only problems are clients that hang up before their response arrives."""
    ports = {f"127.0.0.1:{port}" for port in real_run.ports.values()}
    others = Counter()
    for line in real_run.lines:
        if line["type"] == "problem":
            others[line["kind"]] += 1
        else:
            assert line["type"] in {"request", "response"}
            assert line["broker"] in ports
            assert line["problems"] == []
    # A closed socket answers late segments with a RST numbered like its FIN, one below the expected number.
    assert others.keys() <= {"request-unanswered", "stream-cut", "tcp-rst-ignored"} | OWN_STATE
    requests = {line["exchange"] for line in real_run.lines if line["type"] == "request"}
    answered = {line["exchange"] for line in real_run.lines if line["type"] == "response"}
    assert len(requests - answered) == others["request-unanswered"]


@every_client
def test_client_and_kafkasniff_agree(real_run: Run, name: str) -> None:
    assert list(compare.differences(real_run.account(name))) == []


EXPECTED = {
    "java": ({"produced": 41, "consumed": 42, "committed": 4, "transaction": 3}, "OffsetCommit EndTxn", 20),
    "librdkafka": ({"consumed": 4}, "JoinGroup Heartbeat OffsetCommit LeaveGroup", 4),
    "python": ({"produced": 30, "consumed": 30}, "CreateTopics", 8),
}
"""Numbers of reports, APIs beside those of every client, and connections."""


@pytest.mark.parametrize("name", EXPECTED)
def test_the_client_did_the_expected_work(real_run: Run, name: str) -> None:
    """Otherwise, an empty account would agree with anything."""
    account, (reports, apis, connections) = real_run.account(name), EXPECTED[name]
    kinds = Counter(entry["kind"] for entry in account.reports)
    assert {kind: kinds[kind] for kind, number in reports.items() if kinds[kind] < number} == {}
    answered = {line["api"] for line in account.lines if line["type"] == "response"}
    assert answered >= {"ApiVersions", "Metadata", "Produce", "Fetch", *apis.split()}
    assert len({line["connection"] for line in account.lines}) > connections


def test_a_client_that_reconnects(real_run: Run) -> None:
    """The same client continues on a new connection after it has closed its old one."""
    times = defaultdict(list)
    for line in real_run.account("java").lines:
        if line["client_id"] == "java-idle" and line["api"] == "Fetch":
            times[line["connection"]].append(datetime.fromisoformat(line["time"]))
    first, *_, last = sorted(times)
    assert max(times[first]) < min(times[last])


def test_the_saved_packets_decode_to_the_same_messages(real_run: Run) -> None:
    """In each stream, one by one; numbers given across streams may differ from the live run, and times a little."""
    result = kafkasniff("decode", "--quiet", "--format", "json", real_run.capture)
    assert (result.code, result.err) == (0, "")
    live, kept = streams(real_run.lines), streams(result.objects)
    assert live.keys() == kept.keys()
    for stream, lines in live.items():
        assert [plain(line) for line in lines] == [plain(line) for line in kept[stream]], stream
        for one, other in zip(lines, kept[stream], strict=True):
            apart = datetime.fromisoformat(one["time"]) - datetime.fromisoformat(other["time"])
            assert abs(apart.total_seconds()) < 1
            assert one.get("latency_ms") == pytest.approx(other.get("latency_ms"), abs=1)
    assert problems(real_run.lines) == problems(result.objects)


def problems(lines: Any) -> Counter[str]:
    return Counter(line["kind"] for line in lines if line["type"] == "problem" and line["kind"] not in OWN_STATE)


PLACES = ("exchange", "connection", "time", "first_packet", "last_packet", "latency_ms", "duration_ms")


def streams(lines: Any) -> dict[tuple[str, str, str], list[Line]]:
    found = defaultdict(list)
    for line in lines:
        if line["type"] != "problem":
            found[line["client"], line["broker"], line["type"]].append(line)
    return dict(found)


def plain(value: Any) -> Any:
    """A line without places, and without names that may come from another stream (`_topic_name` and the like)."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if name not in PLACES and not name.startswith("_")}
    return [plain(item) for item in value] if isinstance(value, list) else value


def test_kafkas_own_classes_read_the_same(real_run: Run) -> None:
    """Every message of the saved packets, cut into frames by independent code and read by Kafka's classes."""
    lines = kafkasniff("decode", "--quiet", "--format", "json", real_run.capture).objects
    frames = walk(real_run.capture).frames
    ours, theirs = defaultdict(list), defaultdict(list)
    for line in lines:
        if line["type"] != "problem":
            ours[line["connection"], line["type"]].append(line)
    for frame, evidence in zip(frames, ask(frames, (RELEASE,)), strict=True):
        theirs[frame.connection, frame.kind].append((frame, evidence))
    assert ours.keys() == theirs.keys()
    for stream, messages in ours.items():
        for line, (frame, evidence) in zip(messages, theirs[stream], strict=True):
            assert not list(line_differences(line, frame, evidence)), f"{line['type']} of exchange {line['exchange']}"
