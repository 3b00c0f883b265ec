"""The share of the traffic that was decoded: the same in all commands, for captures, exports and any batches."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis.detectors import run
from kafkasniff.analysis.detectors.visible_wording import all_clear, visibility_lines
from kafkasniff.analysis.visibility import OtherProtocols, Undecoded, VisibleTraffic
from kafkasniff.cli.environment import Exit
from kafkasniff.engine.inspector import Inspector, Output
from kafkasniff.model import Connection, Exchange, Problem
from kafkasniff.tables.checkpoint import dump, load
from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import Case, finds, ignores
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.craft.read import read_packets
from tests.craft.write import pcap_bytes, write_pcap

FAULTS = ROOT / "captures" / "faults"
NAMES = (
    "requests-only",
    "responses-only",
    "responses-lost-midway",
    "acks-zero-requests-only",
    "tls-without-keys",
    "http-only",
    "http-beside-kafka",
    "broker-stopped",
)
every = pytest.mark.parametrize("name", NAMES)


def capture(name: str) -> str:
    return str(FAULTS / f"{name}.pcap")


def visible(name: str) -> VisibleTraffic:
    return run([capture(name)]).visible


def reasons(name: str) -> dict[str, int | None]:
    return {one.reason: one.bytes for one in visible(name).undecoded}


@every
def test_a_capture_and_its_export_agree(name: str, tmp_path: Path) -> None:
    kafkasniff("export", capture(name), "-o", tmp_path / "out")
    assert run([str(tmp_path / "out")]).visible == visible(name)


@every
def test_batches_and_states_change_nothing(name: str) -> None:
    packets, chance = batch(read_packets(Path(capture(name)))), Random(3)
    whole = Inspector(connections=True)
    expected = reported([*whole.feed(packets), *whole.close()])
    inspector, found = Inspector(connections=True), []
    while len(packets) > 1:
        part, packets = packets.split(min(chance.randrange(1, 20), len(packets) - 1))
        found += inspector.feed(part)
        inspector = load(dump(inspector), Inspector)
    assert reported([*found, *inspector.feed(packets), *inspector.close()]) == expected


def reported(events: list[Output]) -> list[Output]:
    return [event for event in events if isinstance(event, Connection | Exchange | Problem)]


@every
def test_stats_and_check_agree(name: str) -> None:
    checked = json.loads(kafkasniff("check", "--format", "json", capture(name)).text)["visibility"]
    assert json.loads(kafkasniff("stats", "--format", "json", capture(name)).text)["visibility"] == checked


def test_bytes_of_one_direction() -> None:
    """The two halves of one capture: each counts as lost what the other one has."""
    asked, answered = visible("requests-only"), visible("responses-only")
    whole = run([str(ROOT / "captures" / "librdkafka-group-classic.pcap")]).visible
    assert (whole.share, whole.undecoded) == (1.0, [])
    # Four clients closed before their last responses arrived: 402 bytes were never acknowledged. Where their FINs were
    # not captured, each looks like one byte.
    assert asked.bytes == whole.bytes - 402
    assert answered.bytes == whole.bytes + 4
    assert reasons("requests-only") == {"client-to-broker-only": asked.bytes - asked.bytes_decoded}
    assert reasons("responses-only") == {"broker-to-client-only": answered.bytes}


def test_requests_of_one_direction_are_not_unanswered() -> None:
    counts = json.loads(kafkasniff("stats", "--format", "json", capture("requests-only")).text)["exchanges"]
    assert (counts["requests"], counts["unanswered"], counts["lost"]) == (79, 0, 79)
    lines = [json.loads(line) for line in kafkasniff("decode", "--format", "json", capture("requests-only")).lines]
    kinds = [line["kind"] for line in lines if line["type"] == "problem"]
    assert kinds == ["one-direction"] * 10


def test_requests_beyond_the_bound_are_not_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection keeps a bounded number of requests; those dropped do not count as unanswered."""
    monkeypatch.setattr("kafkasniff.kafka.connection.exchange.MAX_OUTSTANDING", 2)
    inspector = Inspector()
    found = [*inspector.feed(batch(read_packets(Path(capture("requests-only"))))), *inspector.close()]
    assert [one.status for one in found if isinstance(one, Exchange)] == ["lost"] * 79
    assert {one.kind for one in found if isinstance(one, Problem)} == {"one-direction"}


def test_a_stopped_broker_is_not_one_direction() -> None:
    (found,) = run([capture("broker-stopped")], only=["unanswered-requests"]).findings
    assert (found.severity, found.subject["api"]) == ("error", "ApiVersions")
    assert visible("broker-stopped").undecoded == []


def test_other_protocols_count_only_without_kafka() -> None:
    alone, beside = visible("http-only"), visible("http-beside-kafka")
    assert list(reasons("http-only")) == ["other-protocols"]
    assert alone.not_kafka.protocols == beside.not_kafka.protocols == ["HTTP"]
    assert alone.not_kafka.connections == beside.not_kafka.connections == 6
    assert (beside.share, beside.undecoded) == (1.0, [])


def test_a_snap_length_is_no_loss() -> None:
    found = run([str(ROOT / "captures" / "librdkafka-snaplen-128.pcap")]).visible
    assert found.undecoded[0].reason == "snap-length"
    assert "packet-loss" not in [one.reason for one in found.undecoded]


def test_lost_requests_make_orphans(tmp_path: Path) -> None:
    """Every second packet with a request is missing from the capture, while its bytes are acknowledged."""
    packets = read_packets(ROOT / "captures" / "librdkafka-codecs.pcap")
    asked = [one for one in packets if one.payload and one.sport > one.dport]
    kept = [one for one in packets if one not in asked[1::2]]
    found = run([str(write_pcap(tmp_path / "lossy.pcap", kept))]).visible
    reported = {one.reason: one.bytes for one in found.undecoded}
    assert reported.keys() >= {"packet-loss", "orphan-responses"}
    assert found.bytes_decoded + sum(size or 0 for size in reported.values()) == found.bytes
    # No byte is invented.
    assert found.bytes <= run([str(ROOT / "captures" / "librdkafka-codecs.pcap")]).visible.bytes


def test_packets_of_an_unknown_link_type(tmp_path: Path) -> None:
    """Link type 147 (USER0) is unknown: without a single connection the answer is not an all-clear."""
    data = bytearray(pcap_bytes([Packet(1, "10.0.0.5", 5, "10.0.0.9", 9092, 1, 1, 16, b"x")]))
    data[20:24] = (147).to_bytes(4, "little")
    path = tmp_path / "user.pcap"
    path.write_bytes(data)
    result = kafkasniff("check", path)
    assert result.code == Exit.FINDINGS
    assert "none of the traffic could be decoded; not decoded: packets that could not be read" in result.text


def test_filters_that_select_nothing() -> None:
    result = kafkasniff("check", "--topic", "no-such-topic", str(ROOT / "captures" / "librdkafka-codecs.pcap"))
    assert result.lines[0].startswith("no exchanges match the filters in ")


# -- what people and builds see


@pytest.mark.parametrize("name", ["requests-only", "responses-only", "tls-without-keys", "http-only"])
def test_the_exit_code_fails_where_little_could_be_decoded(name: str) -> None:
    assert kafkasniff("check", capture(name)).code == Exit.FINDINGS
    assert kafkasniff("check", "--fail-on", "error", capture(name)).code == Exit.OK
    skipped = kafkasniff("check", "--skip", "undecoded-traffic", capture(name))
    assert skipped.code == Exit.OK
    assert "no problems" not in skipped.lines[0]
    assert skipped.lines[1].startswith("decoded: ")


def test_a_cut_file_is_no_all_clear() -> None:
    result = kafkasniff("check", "--only", "late-answers", capture("cut-file"))
    assert result.code == Exit.BROKEN
    assert result.lines[0] == f"no problems found in the readable part in {capture('cut-file')}"
    assert result.lines[2].startswith("not decoded: a capture is truncated, damaged or skipped")
    assert "copy the file again" in result.err
    assert "copy the file again" in kafkasniff("stats", capture("cut-file")).err


def test_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    kafkasniff("report", capture("tls-without-keys"), "-o", page)
    assert "decoded: 0% of the traffic" in page.read_text()
    assert "give the session secrets with --keylog FILE" in page.read_text()
    kafkasniff("report", capture("http-beside-kafka"), "-o", page)
    assert "decoded: " not in page.read_text()


def test_an_export_of_an_earlier_release(tmp_path: Path) -> None:
    """It lacks two columns, so TLS counts as another protocol."""
    kafkasniff("export", capture("tls-without-keys"), "-o", tmp_path / "out")
    for file in (tmp_path / "out" / "connections").rglob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["protocol", "captured"]), file)
    found = run([str(tmp_path / "out")]).visible
    assert [one.reason for one in found.undecoded] == ["other-protocols"]


def test_an_export_without_connections(tmp_path: Path) -> None:
    shipped = str(ROOT / "captures" / "librdkafka-codecs.pcap")
    kafkasniff("export", shipped, "-o", tmp_path / "out", "--tables", "exchanges")
    answer = run([str(tmp_path / "out")], only=["late-answers"])
    assert (answer.visible.share, answer.visible.known) == (None, False)
    assert any("how much of the traffic was decoded is unknown" in note for note in answer.notes)


def traffic(share: float | None, *undecoded: Undecoded) -> VisibleTraffic:
    decoded = round(1000 * (share or 0))
    return VisibleTraffic(share, 4, 3, 1000, decoded, list(undecoded), OtherProtocols(0, 0, []))


TLS = Undecoded("tls", "TLS without keys", 1, 630, 0.63, "give the session secrets with --keylog FILE")
CUT = Undecoded("capture-cut", "a capture is cut", None, None, None, "copy the file again")


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, "no problems found"),
        (traffic(1.0), "no problems found"),
        (traffic(0.9, TLS), "no problems found"),
        (traffic(0.89, TLS), "nothing found in the 89% of the traffic that could be decoded"),
        (traffic(0.004, TLS), "nothing found in the 0.4% of the traffic that could be decoded"),
        (traffic(0.0, TLS), "nothing could be decoded"),
        (traffic(1.0, CUT), "no problems found in the readable part"),
        (traffic(None), "no Kafka traffic"),
    ],
)
def test_all_clear(seen: VisibleTraffic | None, said: str) -> None:
    assert all_clear(seen) == said


def test_lines() -> None:
    assert visibility_lines(traffic(0.37, TLS)) == [
        "decoded: 37% of the traffic, 370 B of 1.0 kB, on 3 of 4 connections",
        "not decoded: 63% TLS without keys (1 connection); give the session secrets with --keylog FILE",
    ]
    assert visibility_lines(traffic(0.95, TLS)) == visibility_lines(None) == []


CASES = [
    Case(
        "undecoded-traffic",
        scenes.one_direction,
        "note",
        1,
        {},
        "only 62% of the traffic could be decoded; not decoded: 38% only client → broker was captured (1 connection)",
        [None],
        {"bytes": 106, "bytes_decoded": 66, "client_to_broker_only": 40 / 106},
    ),
    Case(
        "undecoded-traffic",
        scenes.other_direction,
        "warning",
        1,
        {},
        "none of the traffic could be decoded; not decoded: 100% only broker → client was captured (1 connection)",
        [None],
        {"bytes": 4 * 20 + 4 * 33, "bytes_decoded": 0},
    ),
]
LOOK_ALIKES = [
    ("undecoded-traffic", scenes.stopped),
    ("undecoded-traffic", scenes.silent_by_request),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
