"""The captures are what they are said to be: the same for the same seed, sound for kafkasniff and for tshark."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import generate
from benchmarks.disturbed_segments import DELAYED, FORMS, disturbed
from benchmarks.generate import Maker, Sizes, captures, made_with, main, path_of
from benchmarks.measures import requests_of
from benchmarks.newest_messages import newest, templates
from benchmarks.recorded_answers import without_refusals
from benchmarks.recording import RecordingError, record_with
from captures.record.distribution import is_cached, python_with
from captures.record.programs import CONFLUENT
from kafkasniff.kafka.apis import dissectors
from tests.conftest import missing
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation
from tests.craft.outcome import Outcome, files_outcome, packets_outcome
from tests.craft.packet import SYN, Packet, ahead
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.craft.streams import stream_bytes

# Fixtures that are made once are used by one worker.
pytestmark = pytest.mark.xdist_group("benchmark-captures")

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
RECORDED = CAPTURES / "franz-go.pcap"
SIZES = Sizes(
    base_mb=1,
    mixed_copies=2,
    large_copies=2,
    segment_copies=2,
    disturbed_copies=2,
    packets=3_000,
    connections=40,
    seed=5,
    deep_exchanges=1_000,
)


def broker_ports(capture: Path) -> list[int]:
    manifest = json.loads((CAPTURES / "manifest.json").read_text())
    found: list[int] = next(one["broker_ports"] for one in manifest["captures"] if one["file"] == capture.name)
    return found


def give_recordings(data: Path) -> None:
    """Real captures instead of recordings, so that nothing is recorded."""
    folder = data / "bases"
    folder.mkdir(parents=True, exist_ok=True)
    for versions in ("capped", "newest"):
        path = folder / f"recorded-{versions}-{SIZES.base_mb}-{SIZES.seed}-{SIZES.format}.pcap"
        shutil.copy(RECORDED, path)
        path.with_suffix(".json").write_text(json.dumps({"ports": broker_ports(RECORDED)}))


def give_mixed(path: Path, megabytes: int) -> list[int]:
    """In the place of `mixed_recording.record`."""
    assert megabytes == SIZES.mixed_mb
    shutil.copy(RECORDED, path)
    return broker_ports(RECORDED)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    give_recordings(folder)
    maker = Maker(folder, SIZES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "record_mixed", give_mixed)
        for form in generate.FORMS:
            maker.make(form)
    return folder


def outcome(data: Path, form: str) -> Outcome:
    return files_outcome([path_of(data, form)])


def problems(found: Outcome) -> Counter[str]:
    kinds = Counter(problem["kind"] for problem in found.problems)
    for line in found.lines:
        kinds.update(problem["kind"] for problem in line.get("problems", ()))
    return kinds


def test_everything_is_made_with_facts(data: Path) -> None:
    found = captures(data)
    assert list(found) == list(generate.FORMS)
    assert made_with(data) == {form: Maker(data, SIZES).made_with(form) for form in generate.FORMS}
    for form, capture in found.items():
        if not form.endswith("-pcapng"):
            assert capture.packets == len(read_packets(capture.path)) > 0
    assert not list(data.rglob("*.part"))


@pytest.mark.parametrize("form", ["A", "B", "B-ipv6", "Bx", "C", "A-new", "C-new", "C-deep"])
def test_kafkasniff_finds_no_problem(data: Path, form: str) -> None:
    found = outcome(data, form)
    assert found.summary.requests > 50
    assert not problems(found)


def test_forms_of_one_recording_hold_the_same_messages(data: Path) -> None:
    once = files_outcome([RECORDED]).summary
    for form in ("A", "A-pcapng", "B", "B-ipv6", "Bx"):
        summary = outcome(data, form).summary
        assert (summary.requests, summary.responses) == (2 * once.requests, 2 * once.responses), form
    assert max(len(packet.payload) for packet in read_packets(path_of(data, "B"))) == 1448
    assert {packet.is_ipv6 for packet in read_packets(path_of(data, "B-ipv6"))} == {True}
    assert outcome(data, "C-pcapng").lines == outcome(data, "C").lines


def test_seeded_captures_are_reproducible(data: Path, tmp_path: Path) -> None:
    give_recordings(tmp_path)
    same, other = Maker(tmp_path / "same", SIZES), Maker(tmp_path / "other", dataclasses.replace(SIZES, seed=6))
    for maker in (same, other):
        shutil.copytree(tmp_path / "bases", maker.data / "bases")
    for path in (other.data / "bases").iterdir():
        path.rename(path.with_name(path.name.replace("-5-", "-6-")))
    for form in ("Bx", "C", "C-new", "C-deep"):
        before = path_of(data, form).read_bytes()
        same.make(form)
        other.make(form)
        assert path_of(same.data, form).read_bytes() == before
        assert path_of(other.data, form).read_bytes() != before


def test_only_missing_captures_are_made(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    arguments = ["--data", str(folder), "--missing", "C", "start"]
    for field in dataclasses.fields(SIZES):
        if field.name != "format":
            arguments += [f"--{field.name.replace('_', '-')}", str(getattr(SIZES, field.name))]
    before = path_of(folder, "C").stat().st_mtime_ns
    assert main(arguments) == 0
    assert path_of(folder, "C").stat().st_mtime_ns == before
    path_of(folder, "start").with_suffix(".json").unlink()  # as when making it was interrupted
    assert main(arguments) == 0
    assert "start.pcap" in capsys.readouterr().out
    # What C does not depend on does not make it anew.
    assert main([*arguments, "--base-mb", "7"]) == 0
    assert path_of(folder, "C").stat().st_mtime_ns == before
    assert main([*arguments, "--packets", "3100"]) == 0
    assert path_of(folder, "C").stat().st_mtime_ns != before


def test_without_a_recording_the_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> str:
        raise RecordingError("no right to record")

    monkeypatch.setattr(generate, "client_python", refuse)
    arguments = ["--data", str(tmp_path), "--packets", "1000", "--connections", "10", "A", "Bx", "start", "C"]
    assert main(arguments) == 0
    assert set(captures(tmp_path)) == {"C", "start"}
    assert "not made: A, Bx: no right to record" in capsys.readouterr().err
    assert main(["--data", str(tmp_path / "nothing"), "A"]) == 1


def test_each_reason_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> list[int]:
        raise RecordingError("no broker")

    def refuse_clients() -> str:
        raise RecordingError("no client")

    monkeypatch.setattr(generate, "record_mixed", refuse)
    monkeypatch.setattr(generate, "client_python", refuse_clients)
    assert main(["--data", str(tmp_path), "A", "mixed", "B", "start"]) == 0
    assert set(captures(tmp_path)) == {"start"}
    said = capsys.readouterr().err
    assert "not made: A, B: no client\n" in said
    assert "not made: mixed: no broker\n" in said


def test_ports_of_recordings_are_kept(data: Path) -> None:
    assert captures(data)["mixed"].ports == broker_ports(RECORDED)
    sizes = {"mixed_mb": SIZES.mixed_mb, "mixed_copies": SIZES.mixed_copies, "format": SIZES.format}
    assert made_with(data)["mixed"] == sizes


def test_recorded_traffic_of_mixed_is_repeated(data: Path) -> None:
    """In copies with other clients, each later; it is recorded once."""
    found = captures(data)["mixed"]
    packets, recorded = read_packets(found.path), read_packets(RECORDED)
    assert len(packets) == found.packets == SIZES.mixed_copies * len(recorded)
    assert [packet.payload for packet in packets] == SIZES.mixed_copies * [packet.payload for packet in recorded]
    assert all(one.time_ns < other.time_ns for one, other in pairwise(packets[:: len(recorded)]))
    assert len({packet.src for packet in packets}) > len({packet.src for packet in recorded})


def test_wrong_arguments_are_refused() -> None:
    for wrong in (["D"], ["--packets", "0"], ["--packets", "-3"]):
        with pytest.raises(SystemExit):
            main(wrong)


@pytest.mark.tshark
def test_tshark_finds_nothing_malformed(data: Path, require_tool: Callable[[str], str], tmp_path: Path) -> None:
    require_tool("tshark")
    found = captures(data)["C"]
    counted = requests_of(found.path, found.ports, tmp_path / "counted")
    assert counted == (outcome(data, "C").summary.requests, outcome(data, "C").summary.requests, 0)
    # And where there is something, it is counted.
    newer = captures(data)["C-new"]
    assert requests_of(newer.path, newer.ports, tmp_path / "counted").malformed > 100
    assert not (tmp_path / "counted").exists()


@pytest.mark.root
@pytest.mark.tshark
def test_a_recording_is_sound(
    require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """What is recorded itself, in versions that tshark knows."""
    require_root()
    require_tool("tcpdump")
    require_tool("tshark")
    if not is_cached("4.4.0", CONFLUENT):
        missing("the environment with confluent-kafka is not in the cache; recording form A makes it")
    maker = Maker(tmp_path, dataclasses.replace(SIZES, large_copies=1))
    maker.python = python_with(*CONFLUENT)
    maker.make("A")
    found = captures(tmp_path)["A"]
    mine, theirs, malformed = requests_of(found.path, found.ports, tmp_path / "counted")
    assert mine == theirs > 20
    assert malformed == 0
    kinds = problems(outcome(tmp_path, "A"))
    # The consumer may end in the midst of a response, and this machine may not look in time.
    assert set(kinds) <= {"stream-cut", "tcp-gap", "frame-incomplete", "request-unanswered"}, kinds


def test_a_failed_recording_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="not recorded"):
        record_with("/bin/false", tmp_path / "A.pcap", 1)


# Messages of the newest versions


def test_messages_are_of_the_newest_versions() -> None:
    pairs = templates(1)
    seen = set()
    for request, response in pairs:
        key, version = int.from_bytes(request[4:6]), int.from_bytes(request[6:8])
        api = dissectors.api(key)
        assert api is not None
        assert version == newest(key) == max(api.versions)
        assert api.is_flexible(version)
        assert request[8:12] == response[4:8] == bytes(4)
        seen.add(api.name)
    assert seen == {"Produce", "Fetch", "Metadata", "OffsetCommit", "Heartbeat"}
    assert templates(1) == pairs != templates(2)


# Disturbances


def large() -> list[Packet]:
    """Long runs of segments in both directions."""
    talk = Conversation(("10.0.0.5", 51_000), ("10.0.0.9", 9092))
    talk.handshake()
    for number in range(1, 40):
        batch = kafka.record_batch([kafka.record(0, None, bytes([65 + number % 26]) * 9_000)])
        request = kafka.produce_request(2 * number, "large", batch)
        talk.send("client", request, 500)
        talk.send("broker", kafka.produce_response(2 * number, "large", 1), 500)
        talk.send("client", kafka.fetch_request(2 * number + 1, "large", 1))
        talk.send("broker", kafka.fetch_response(2 * number + 1, "large", batch, 2), 500)
    talk.close()
    return talk.packets


def test_disturbed_segments_lose_nothing() -> None:
    packets = large()
    found, counts = disturbed(packets, random.Random(3), share=0.1)
    assert stream_bytes(found) == stream_bytes(packets)
    data = sum(bool(packet.payload) for packet in packets)
    assert 0.05 * data < sum(counts.values()) < 0.15 * data
    assert set(counts) == set(FORMS)
    assert len(found) == len(packets) + counts["duplicated"]
    # The same messages, and nothing is said to be lost.
    before, after = packets_outcome(packets), packets_outcome(found)
    assert after.messages(drop=("size",)) == before.messages(drop=("size",))
    assert not problems(after)
    assert [packet.time_ns for packet in found] == sorted(packet.time_ns for packet in found)
    assert disturbed(packets, random.Random(3), share=0.1)[0] == found


def test_disturbed_segments_stay_before_the_peers_answer() -> None:
    packets = large()
    found, counts = disturbed(packets, random.Random(4), share=0.3)
    assert counts["delayed"] > 20
    sent: dict[tuple[str, int, str, int], int] = {}
    reach = 0
    for packet in found:
        src, sport, dst, dport = packet.stream
        # Acknowledged bytes were sent before.
        if not packet.flags & SYN and (dst, dport, src, sport) in sent:
            assert ahead(packet.ack, sent[dst, dport, src, sport]) <= 0
        last = sent.setdefault(packet.stream, packet.end)
        reach = max(reach, ahead(last, packet.seq) // 500)
        if ahead(packet.end, last) > 0:
            sent[packet.stream] = packet.end
    assert 2 < reach <= DELAYED + 1


def test_without_a_share_nothing_is_disturbed() -> None:
    found, counts = disturbed(mixed(), random.Random(1), share=0)
    assert found == mixed()
    assert not counts


# Answers that are cut out


def refused(error: int = 35) -> list[Packet]:
    """A connection that begins as one with librdkafka's mock cluster, and one that does not."""
    talk = Conversation(("10.0.0.5", 51_000), ("10.0.0.9", 9092), isn=(0xFFFF_FFF0, 77))
    talk.handshake()
    # As the mock cluster writes it: a count of one byte, no tags.
    answer = kafka.frame(kafka.int32(1) + kafka.int16(error) + b"\1" + kafka.int16(18) + kafka.int16(0) * 2 + bytes(4))
    talk.exchange(kafka.api_versions_request(1, 3), answer)
    talk.exchange(kafka.api_versions_request(2), kafka.api_versions_response(2))
    talk.exchange(kafka.metadata_request(3, ["orders"]), kafka.metadata_response(3, "broker", 9092, ["orders"], 3))
    talk.close()
    return talk.packets


def test_refused_exchanges_are_cut_out() -> None:
    packets = refused()
    kept = without_refusals(packets)
    assert len(kept) == len(packets) - 2
    before, after = stream_bytes(packets), stream_bytes(kept)
    first = len(kafka.api_versions_request(1, 3))
    assert {len(before[stream]) - len(after[stream]) for stream in after} == {first, 21}
    assert all(before[stream].endswith(after[stream]) for stream in after)
    found = packets_outcome(kept)
    assert not problems(found)
    assert [line["api_version"] for line in found.lines if line["type"] == "request"] == [0, 1]
    assert problems(packets_outcome(packets))["array-too-long"] == 1
    # Both sides still acknowledge what the other has sent, to the byte.
    ends: dict[tuple[str, int, str, int], int] = {}
    for packet in kept:
        src, sport, dst, dport = packet.stream
        if (dst, dport, src, sport) in ends and packet.payload:
            assert packet.ack == ends[dst, dport, src, sport]
        ends[packet.stream] = packet.end


def test_other_exchanges_stay() -> None:
    assert without_refusals(refused(error=0)) == refused(error=0)
    assert without_refusals(mixed()) == mixed()
    assert without_refusals(read_packets(RECORDED)) == read_packets(RECORDED)


def test_garbage_is_not_a_refusal() -> None:
    rng = random.Random(2)
    packets = [packet.but(payload=rng.randbytes(rng.randrange(40)) if packet.payload else b"") for packet in refused()]
    assert without_refusals(packets) == packets
