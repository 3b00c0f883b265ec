"""`kafkasniff timing`, on crafted captures in which every time is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import kafkasniff
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import interleaved
from tests.craft.packet import Packet
from tests.craft.write import write_pcap
from tests.timing.timeline import Timeline


def packets() -> list[Packet]:
    """One connection captured near its client, 4 ms from the broker, with three Metadata and an empty Fetch; another
    one captured near the broker, with one answer that took 300 ms.
    """
    near, far = Timeline(), Timeline(client=("10.0.0.6", 40_000))
    near.open(4, 0.01)
    asked = [kafka.metadata_request(number, ["orders"]) for number in range(5)]
    answered = [kafka.metadata_response(number, "10.0.0.9", 9092, ["orders"]) for number in range(5)]
    near.data("client", 10, asked[1])
    near.data("broker", 20, answered[1])
    near.data("client", 120, asked[2] + asked[3])
    near.data("broker", 134, answered[2])
    near.data("broker", 144, answered[3])
    near.data("client", 154, kafka.fetch_request(4, "orders", 0))
    near.data("broker", 660, kafka.fetch_response(4, "orders", b"", 0))
    far.open(0.02, 30, begin=1000)
    far.data("client", 1100, asked[1][:9])
    far.data("client", 1150, asked[1][9:])
    far.data("broker", 1450, answered[1])
    return interleaved([near, far])


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pcap(tmp_path_factory.mktemp("timing") / "slow.pcap", packets(), nanoseconds=True)


def answered(*arguments: object, **options: Any) -> dict[str, Any]:
    result = kafkasniff("timing", "--format", "json", *arguments, **options)
    assert result.code == Exit.OK, result.err
    (found,) = result.objects
    return found


def totals(group: dict[str, Any]) -> dict[str, float]:
    """Milliseconds per part."""
    return {name: part["total_us"] / 1000 for name, part in group["parts"].items()}


def test_by_api(slow: Path) -> None:
    answer = answered(slow)
    fetch, metadata = answer["groups"]
    assert (fetch["keys"], metadata["keys"]) == ({"api": "Fetch"}, {"api": "Metadata"})
    assert (fetch["exchanges"], fetch["timed"], metadata["exchanges"]) == (1, 1, 4)
    assert totals(fetch) == {"think": 10, "network": 4, "wait": 500, "broker": 2}
    # 6 ms; 10 ms before the second; none for the third, which waited 14 ms in line; 300 ms.
    expected = {"think": 100, "request": 50, "behind": 14, "network": 12.02, "broker": 6 + 10 + 6 + 299.98}
    assert totals(metadata) == expected
    assert metadata["duration"]["total_us"] == 10_000 + 14_000 + 24_000 + 350_000
    assert metadata["duration"]["max_us"] == 350_000
    assert metadata["parts"]["behind"]["count"] == 1
    captured = answer["captured"]
    assert captured["near"] == {"client": 1, "broker": 1, "unknown": 0}
    assert captured["broker_round_trip"] == {"min_us": 20, "max_us": 4000}
    assert captured["client_round_trip"] == {"min_us": 10, "max_us": 30_000}
    assert [one["exchange"] for one in answer["slowest"]] == [5, 3, 2, 1, 4]


def test_filters(slow: Path) -> None:
    """A request that is filtered out keeps its place on the connection: the third request waits for the second."""
    answer = answered(slow, "--filter", "correlation_id == 3")
    (group,) = answer["groups"]
    assert (group["exchanges"], totals(group)) == (1, {"behind": 14, "network": 4, "broker": 6})
    assert [one["exchange"] for one in answer["slowest"]] == [3]
    nothing = kafkasniff("timing", "--json", "--slower-than", "1s", slow)
    assert (nothing.code, nothing.objects[0]["groups"]) == (Exit.NOTHING, [])


def test_an_export_has_fewer_phases(slow: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", slow, "-o", tmp_path / "out").code == Exit.OK
    result = kafkasniff("timing", "--format", "json", tmp_path / "out")
    (answer,) = result.objects
    assert "captures have them" in result.err
    fetch, metadata = answer["groups"]
    assert totals(fetch) == {"wait": 500, "broker": 6}
    assert totals(metadata) == {"transfer": 50, "behind": 14, "broker": 334}
    assert (answer["captured"], answer["slowest"]) == (None, [])
    text = kafkasniff("timing", tmp_path / "out", width=100).text
    assert "transfer" in text
    assert kafkasniff("export", slow, "-o", tmp_path / "bare", "--no-bodies").code == Exit.OK
    result = kafkasniff("timing", "--format", "json", tmp_path / "bare")
    assert "without bodies" in result.err
    assert totals(result.objects[0]["groups"][0]) == {"broker": 506}
