"""Every golden line is proven by independent code: Kafka's own classes, and a plain walk. tests/test_tshark.py checks
the pairing of requests and responses with tshark, tests/test_evidence_clients.py compares with the clients' logs."""

from __future__ import annotations

import base64
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from kafkasniff.kafka.apis.releases import defined_pairs, proven
from tests.craft.packet import FIN, RST
from tests.craft.read import file_bytes, raw_packets, read_packets
from tests.evidence.compare import Line, differences, line_differences, rfc3339
from tests.evidence.kafka_classes import RELEASES, Evidence, ask, evidence
from tests.evidence.match import golden_lines, match, open_lines, tokens
from tests.evidence.proven import PART, proven_lines
from tests.evidence.wire import frames, walk
from tests.golden import ROOT, captures
from tests.proven_file import PROVEN_FILE

pytestmark = pytest.mark.extended


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def was_cut(capture: Path) -> bool:
    return any(frame.cut for frame in frames(capture))


def test_every_message_has_a_line_that_matches_what_kafka_reads(capture_path: Path):
    matches, strays, passed = match(capture_path, golden_lines(capture_path))
    assert not strays, "lines without evidence"
    assert matches
    for line, frame, reported in matches:
        assert not list(line_differences(line, frame, reported)), f"{line['type']} of exchange {line['exchange']}"
    if was_cut(capture_path):
        # The first message of a stream must be complete for the stream to be recognized as Kafka.
        assert len(passed) < len(frames(capture_path)) // 2
        lost = {line["connection"] for line in golden_lines(capture_path) if line["type"] == "problem"}
        silent = {line["connection"] for line in golden_lines(capture_path)} - lost
        assert all(frame.cut and frame.connection not in silent for frame in passed)
    else:
        assert not passed


def test_the_same_with_secrets_shown(capture_path: Path):
    """A line without secrets equals that of the golden file, which is compared above."""
    matches, strays, _ = match(capture_path, open_lines(capture_path))
    assert not strays
    golden = [(line, frame) for line, frame, _ in match(capture_path, golden_lines(capture_path))[0]]
    assert len(golden) == len(matches)
    for (line, frame, reported), compared in zip(matches, golden, strict=True):
        assert '"redacted"' not in repr(line).replace("'", '"')
        if (line, frame) == compared:
            continue
        assert not list(line_differences(line, frame, reported)), f"{line['type']} of exchange {line['exchange']}"


def test_exchanges_join_matching_messages(capture_path: Path):
    matches, _, _ = match(capture_path, golden_lines(capture_path))
    numbers = {id(frame): line["exchange"] for line, frame, _ in matches}
    for _, frame, _ in matches:
        if frame.pair is not None and id(frame.pair) in numbers:
            assert numbers[id(frame)] == numbers[id(frame.pair)]
    assert max(Counter(numbers.values()).values()) == 2
    assert set(numbers.values()) == set(range(1, max(numbers.values()) + 1))


def test_lines_are_in_order_of_completion(capture_path: Path):
    """Within a stream always; across streams where the first request of each connection showed at once that it is
    Kafka.
    """
    messages = [line for line in golden_lines(capture_path) if line["type"] != "problem"]
    firsts = {line["connection"]: line for line in reversed(messages)}
    streams = defaultdict(list)
    for line in messages:
        streams[line["connection"], line.get("direction", line["type"])].append(line["time"])
    assert all(times == sorted(times) for times in streams.values())
    late = {number for number, line in firsts.items() if line["problems"]}
    times = [line["time"] for line in messages if line["connection"] not in late]
    assert times == sorted(times)
    assert (len(times) > len(messages) // 2) != bool(late)


def test_raw_tokens_are_those_on_the_wire(capture_path: Path):
    ours = [line for line in golden_lines(capture_path) if line["type"] == "sasl"]
    theirs = sorted(tokens(capture_path), key=lambda frame: (frame.time_ns, frame.last_packet))
    shown = [line for line in open_lines(capture_path) if line["type"] == "sasl"]
    assert len(ours) == len(theirs) == len(shown)
    for line, frame, whole in zip(ours, theirs, shown, strict=True):
        place = (line["connection"], line["client"], line["broker"], line["size"], line["time"])
        assert place == (frame.connection, frame.client, frame.broker, frame.size, rfc3339(frame.time_ns))
        assert line["token"] == {"redacted": frame.size}
        assert not list(differences(whole["token"], {"base64": base64.b64encode(frame.data).decode()}))


NO_ANSWER = re.compile(r"#(\d+) (\w+) v(\d+) corr (-?\d+): ")


def left_without_an_answer(capture: Path, line: Line) -> bool:
    """Whether the broker closed the connection of a line after the client's last message."""
    ends = next(
        (one["client"], one["broker"])
        for one in golden_lines(capture)
        if one["connection"] == line["connection"] and one["type"] != "problem"
    )
    packets = [
        packet
        for packet in read_packets(capture)
        if {f"{packet.src}:{packet.sport}", f"{packet.dst}:{packet.dport}"} == set(ends)
    ]
    *_, last_word = (packet for packet in packets if packet.payload)
    farewells = [packet for packet in packets if packet.flags & (FIN | RST)]
    by_client = [f"{packet.src}:{packet.sport}" == ends[0] for packet in (last_word, farewells[0])]
    return by_client == [True, False] and rfc3339(farewells[-1].time_ns) == line["time"]


def test_every_other_line_has_a_known_reason(capture_path: Path):
    """Problems of streams have no message of their own that Kafka could read.
    - request-unanswered, response-lost: the walk of the wire finds no complete response to that request;
    - stream-cut: the walk has that many bytes after the last complete frame of that stream;
    - connection-rejected: the client sent last, and the broker closed first;
    - sasl: test_raw_tokens_match_the_wire.
    """
    times = {number: raw[0] for number, raw in enumerate(raw_packets(file_bytes(capture_path)), 1)}
    matches, _, _ = match(capture_path, golden_lines(capture_path))
    requests = {line["exchange"]: (frame, reported) for line, frame, reported in matches if line["type"] == "request"}
    answered = {line["exchange"] for line, _, _ in matches if line["type"] == "response"}
    without, cut_off = [], {}
    for line in golden_lines(capture_path):
        if line["type"] in {"request", "response", "sasl"}:
            continue
        assert line["type"] == "problem"
        assert line["capture"] == capture_path.relative_to(ROOT).as_posix()
        assert line["time"] == rfc3339(times[line["packet"]])
        if line["kind"] == "stream-cut":
            cut_off[line["connection"], line["direction"]] = line["bytes"]
            continue
        if line["kind"] == "connection-rejected":
            assert left_without_an_answer(capture_path, line)
            continue
        assert line["kind"] in {"request-unanswered", "response-lost"}, "a kind of line that nothing has checked"
        found = NO_ANSWER.match(line["detail"])
        assert found
        exchange, api, version, correlation = found.groups()
        assert line["exchange"] == int(exchange)
        frame, reported = requests[int(exchange)]
        assert (reported["api"], frame.api_version, frame.correlation_id) == (api, int(version), int(correlation))
        assert line["connection"] == frame.connection
        assert line["time"] >= rfc3339(frame.time_ns)
        assert int(exchange) not in answered
        assert frame.pair is None or frame.pair.cut
        without.append(int(exchange))
    left = {number: reported for number, (_, reported) in requests.items() if number not in answered}
    assert sorted(without) == sorted(number for number, reported in left.items() if not wants_nothing(reported))
    assert cut_off == walk(capture_path).rests


def wants_nothing(request: Evidence) -> bool:
    """Whether Kafka reads a Produce request without a response."""
    return request["api"] == "Produce" and request.get("body", {}).get("acks") == 0


def test_proven_pairs_match_the_evidence():
    lines = PART.lines(PROVEN_FILE.read_text(encoding="utf-8"))
    assert lines == proven_lines(captures()), "python -m tests.evidence"
    found = proven()
    by_captures = {pair for pair, proof in found.pairs.items() if proof.captures}
    assert len(by_captures) > 100
    assert by_captures <= defined_pairs()
    assert {name for proof in found.pairs.values() for name in proof.captures} <= {one.name for one in captures()}
    assert all(found.batches[magic].captures for magic in (0, 1, 2))


def test_kafka_still_agrees(require_kafka):
    """The stored evidence equals the current output of Kafka's classes, on two captures."""
    require_kafka(*RELEASES)
    for name in ("java-group-consumer.pcap", "librdkafka-snaplen-128.pcap"):
        kept = evidence(ROOT / "captures" / name)
        assert ask([frame for frame, _ in kept], RELEASES) == [reported for _, reported in kept]
