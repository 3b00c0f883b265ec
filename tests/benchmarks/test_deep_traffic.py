"""Form C-deep is what it is said to be: pipelined, of several releases, with bodies that differ."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest

from benchmarks import small_messages
from benchmarks.bodies import bodies_of, equal_share
from benchmarks.deep_messages import ERAS, KEYS, SHARES, make_client, make_exchange
from benchmarks.deep_traffic import MOST_IN_FLIGHT, ROUND_NS, START_NS, write
from benchmarks.resegment import SEGMENT
from kafkasniff.kafka.apis import dissectors
from tests.craft.outcome import files_outcome
from tests.craft.packet import SYN
from tests.craft.read import read_packets

CONNECTIONS = 60
EXCHANGES = 3_000

pytestmark = pytest.mark.xdist_group("benchmark-deep")


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deep") / "C-deep.pcap"
    counts = write(path, CONNECTIONS, EXCHANGES, seed=3)
    assert counts["requests"] == counts["responses"] >= EXCHANGES
    assert counts["packets"] == len(read_packets(path))
    return path


def test_every_message_is_decoded_without_a_problem(capture: Path) -> None:
    found = files_outcome([capture])
    assert not found.problems
    assert not [line for line in found.lines if line.get("problems")]
    assert found.summary.requests == found.summary.responses >= EXCHANGES
    assert len({line["connection"] for line in found.lines}) == CONNECTIONS


def test_hardly_any_body_is_repeated(capture: Path, tmp_path: Path) -> None:
    bodies = bodies_of(capture)
    assert len(bodies) == 2 * files_outcome([capture]).summary.requests
    assert equal_share(bodies) < 0.05
    again = Counter((body.kind, body.bytes()) for body in bodies)
    often = {kind for (kind, _), count in again.items() if count > 3}
    assert often == {(12, 1, False), (12, 3, False), (12, 4, False), (10, 1, False), (10, 2, False)}
    # Form C beside it.
    small_messages.write(tmp_path / "C.pcap", CONNECTIONS, 3 * EXCHANGES)
    assert equal_share(bodies_of(tmp_path / "C.pcap")) > 0.9


def test_clients_pipeline_one_to_four_requests(capture: Path) -> None:
    """By time: requests of a connection that are on the way when the last of a round was sent."""
    pending: dict[tuple[str, int], int] = defaultdict(int)
    depths: Counter[int] = Counter()
    rest: dict[tuple[tuple[str, int, str, int], int], bytes] = {}
    before: dict[tuple[str, int], bool] = {}
    for packet in read_packets(capture):
        if not packet.payload:
            continue
        from_client = packet.dport == 9092
        client = (packet.src, packet.sport) if from_client else (packet.dst, packet.dport)
        if not from_client and before.get(client):
            depths[pending[client]] += 1
        before[client] = from_client
        key = (packet.stream, 0)
        data = rest.get(key, b"") + packet.payload
        while len(data) >= 4 and len(data) >= 4 + struct.unpack_from(">i", data)[0]:
            data = data[4 + struct.unpack_from(">i", data)[0] :]
            pending[client] += 1 if from_client else -1
        rest[key] = data
        assert 0 <= pending[client] <= MOST_IN_FLIGHT
    assert set(depths) == set(range(1, MOST_IN_FLIGHT + 1))
    assert all(0.15 < count / depths.total() < 0.35 for count in depths.values())
    assert set(pending.values()) == {0}
    assert not any(rest.values())


def test_messages_share_segments_and_span_them(capture: Path) -> None:
    packets = [packet for packet in read_packets(capture) if packet.payload]
    assert max(len(packet.payload) for packet in packets) == SEGMENT
    asked = [packet for packet in packets if packet.dport == 9092]
    assert len(asked) < EXCHANGES, "there are fewer segments than requests"
    # Large responses, each on its own: all of their segments but the last are full.
    assert sum(len(packet.payload) == SEGMENT for packet in packets if packet.sport == 9092) > 100


def test_rounds_do_not_overlap(capture: Path) -> None:
    seen: dict[tuple[object, ...], int] = {}
    for packet in read_packets(capture):
        number = (packet.time_ns - START_NS) // ROUND_NS
        assert number >= seen.setdefault(packet.connection, number)
        seen[packet.connection] = number
        # A side that answers has received everything that it acknowledges.
        assert packet.ack or packet.flags & SYN


def test_all_apis_in_versions_of_each_release() -> None:
    rng = Random(1)
    clients = [make_client(rng, number) for number in range(len(ERAS))]
    seen = set()
    for number in range(3_000):
        client = clients[number % len(clients)]
        request, response = make_exchange(rng, client, number)
        key, version, correlation = struct.unpack_from(">hhi", request, 4)
        assert version == ERAS[client.era][KEYS.index(key)]
        assert struct.unpack_from(">i", response, 4)[0] == correlation == number
        seen.add((key, version))
    assert seen == {(key, version) for era in ERAS for key, version in zip(KEYS, era, strict=True)}
    assert sum(SHARES) == 100
    flexible = Counter(_is_flexible(key, version) for key, version in seen)
    assert min(flexible[True], flexible[False]) > len(KEYS)


def _is_flexible(key: int, version: int) -> bool:
    api = dissectors.api(key)
    assert api is not None
    return api.is_flexible(version)
