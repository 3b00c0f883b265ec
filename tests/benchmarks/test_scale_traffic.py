"""The traffic of the measurements of scale holds what it says, in packets without a flaw, copy after copy."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.scale_captures import HEADER
from benchmarks.scale_traffic import BASE_NS, CODECS, HOT_SHARE, STEADY, Base, copies, make_base
from tests.craft.outcome import Outcome, files_outcome
from tests.craft.packet import ACK, SYN, Packet
from tests.craft.read import read_packets

# Fixtures that are made once are used by one worker.
pytestmark = pytest.mark.xdist_group("traffic")

SIZE = 3_000_000
COPIES = 3


def write(folder: Path, base: Base) -> Path:
    path = folder / "scale.pcap"
    with path.open("wb") as out:
        out.write(HEADER + base.preamble)
        for data in itertools.islice(copies(base), COPIES):
            out.write(data.data)
    return path


@pytest.fixture(scope="module")
def base() -> Base:
    return make_base(SIZE, seed=7, flaws=False)


@pytest.fixture(scope="module")
def path(base: Base, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("traffic"), base)


@pytest.fixture(scope="module")
def packets(path: Path) -> list[Packet]:
    return read_packets(path)


@pytest.fixture(scope="module")
def outcome(path: Path) -> Outcome:
    return files_outcome([path])


def test_the_same_arguments_give_the_same_bytes(base: Base) -> None:
    again, other = make_base(SIZE, seed=7, flaws=False), make_base(SIZE, seed=8, flaws=False)
    first = [next(copies(one)).tobytes() for one in (base, again, other)]
    assert first[0] == first[1] != first[2]
    assert 0.8 * SIZE < len(first[0]) < 1.6 * SIZE


def test_streams_have_no_hole_and_acknowledge_what_was_sent(packets: list[Packet]) -> None:
    assert [packet.time_ns for packet in packets] == sorted(packet.time_ns for packet in packets)
    following: dict[object, int] = {}
    for packet in packets:
        assert packet.seq == following.get(packet.stream, packet.seq)
        assert packet.stream in following or packet.flags & SYN
        following[packet.stream] = packet.end
        if packet.flags & ACK:
            src, sport, dst, dport = packet.stream
            assert packet.ack == following[dst, dport, src, sport]


def test_copies_have_connections_of_their_own_but_for_those_that_stay(base: Base, packets: list[Packet]) -> None:
    seen: dict[object, set[int]] = {}
    for packet in packets:
        copy = max(0, packet.time_ns - packets[0].time_ns - 10**9) // BASE_NS
        seen.setdefault(packet.connection, set()).add(copy)
    # Every tenth of each kind stays: the first of ten bulk connections, and one per started ten of the others.
    staying = 1 + -(-(base.connections - 10) // STEADY)
    assert Counter(map(len, seen.values())) == {COPIES: staying, 1: COPIES * (base.connections - staying)}


def test_one_connection_carries_far_more_than_the_others(packets: list[Packet]) -> None:
    carried: Counter[object] = Counter()
    for packet in packets:
        carried[packet.connection] += len(packet.payload)
    assert carried.most_common(1)[0][1] > HOT_SHARE * carried.total()


def test_one_connection_can_carry_nearly_everything(tmp_path: Path) -> None:
    path = write(tmp_path, make_base(SIZE, seed=7, flaws=False, hot_share=0.9))
    carried: Counter[object] = Counter()
    for packet in read_packets(path):
        carried[packet.connection] += len(packet.payload)
    assert 0.8 < carried.most_common(1)[0][1] / carried.total() < 0.95


def test_all_messages_are_decoded(base: Base, outcome: Outcome) -> None:
    summary = outcome.summary
    assert (summary.requests, summary.responses) == (COPIES * base.requests, COPIES * base.requests)
    assert summary.bytes_decoded == summary.bytes_stream
    assert summary.problems == 0
    assert not any(line["problems"] for line in outcome.lines)


def test_correlation_ids_count_on_from_copy_to_copy(outcome: Outcome) -> None:
    for side, lines in outcome.messages().items():
        assert [line["correlation_id"] for line in lines] == list(range(len(lines))), side


def test_there_are_all_codecs_and_versions(outcome: Outcome) -> None:
    pairs = {(line["api"], line["api_version"]) for line in outcome.lines}
    assert pairs >= {("Produce", 3), ("Produce", 9), ("Fetch", 4), ("Fetch", 13), ("Metadata", 12), ("ApiVersions", 3)}
    text = str([line["body"] for line in outcome.lines if line["api"] in ("Produce", "Fetch")])
    assert len(CODECS) == 5
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"'compression': '{codec}'" in text


def test_flaws_are_few_and_are_found(tmp_path: Path, base: Base) -> None:
    flawed = make_base(SIZE, seed=7)
    assert 0 < len(flawed.places) - len(base.places) < len(base.places) // 1000
    outcome = files_outcome([write(tmp_path, flawed)])
    # How many go missing depends on how many there are: with this few packets none may.
    assert outcome.summary.requests > 0.99 * COPIES * base.requests
