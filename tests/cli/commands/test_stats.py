"""`kafkasniff stats`; `screens/stats.txt` has what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

RECORDS = 'request.topic_data.partition_data.records.batches.records.key == "key-0"'


def answered(*arguments: object, **options: Any) -> dict[str, Any]:
    result = kafkasniff("stats", "--format", "json", *arguments, **options)
    assert result.code in (Exit.OK, Exit.BROKEN), result.err
    (found,) = result.objects
    return found


def by(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_the_crafted_capture(capture: Path) -> None:
    """See `samples.mixed`: 16 requests of a producer, one unanswered as requested; 9 of a consumer, the last one
    unanswered; one connection that is not Kafka.
    """
    answer = answered(capture)
    assert answer["exchanges"]["requests"] == 16 + 9 - 1
    assert answer["connections"]["connections"] == 3
    assert (answer["connections"]["kafka"], answer["connections"]["not_kafka"]) == (2, 1)
    assert by(answer["brokers"], "address", "port", "connections") == [("10.0.0.9", 9092, 2)]
    assert sorted(by(answer["clients"], "address", "software_name")) == [("10.0.0.5", "craft"), ("10.0.0.6", None)]
    apis = {one["api"]: one for one in answer["apis"]}
    assert (apis["Produce"]["versions"], apis["Produce"]["exchanges"], apis["Produce"]["unanswered"]) == ([3, 9], 12, 0)
    assert (apis["Fetch"]["exchanges"], apis["Fetch"]["unanswered"]) == (8, 1)
    (orders,) = answer["topics"]
    # Batches of 3 to 8 records, five of 2, one of 1; fetches of 1, 40, 3, 200 and 2.
    assert orders["produced"]["records"] == sum(range(3, 9)) + 5 * 2 + 1
    assert orders["fetched"]["records"] == 1 + 40 + 3 + 200 + 2
    # A key of 5 to 7 bytes, a value of up to 700, and a header of 3.
    assert 700 + 5 + 3 <= orders["record_bytes_max"] <= 700 + 7 + 3
    (error,) = answer["errors"]
    assert (error["code"], error["count"], error["first_api"], error["first_topic"]) == (6, 1, "Produce", "orders")
    assert "leader" in error["meaning"]
    assert [one["kind"] for one in answer["problems"]] == ["request-unanswered"]


def test_a_capture_and_its_export_agree(capture: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert kafkasniff("export", capture, "-o", folder).code == Exit.OK
    one, other = answered(capture), answered(folder)
    assert one["security"]["identities"]
    for each in one["security"]["identities"]:
        each["examples"] = [{**example, "connection": None, "exchange": None} for example in each["examples"]]
    assert one.pop("sources") == [str(capture)]
    assert other.pop("sources") == [str(folder)]
    assert one == other
    texts = [kafkasniff("stats", source).text for source in (capture, folder)]
    whole, exported = (text.partition("\n") for text in texts)
    assert [whole[0], exported[0]] == [str(capture), str(folder)]
    assert whole[2] == exported[2]


def test_filters(capture: Path) -> None:
    answer = answered(capture, "--api", "Fetch")
    assert [one["api"] for one in answer["apis"]] == ["Fetch"]
    assert answer["connections"]["connections"] == 1
    assert answer["topics"][0]["produced"]["records"] == 0
    assert answered(capture, "--errors")["exchanges"]["exchanges"] == 1
    answer = answered(ROOT / "captures" / "java-group-consumer.pcap", "--topic", "events")
    assert {one["topic"] for one in answer["topics"]} <= {"events"}
    # Learned when the captures were read for names.
    assert [one["broker_id"] for one in answer["brokers"]] == [1]
    # These filters need decoded records.
    assert answered(capture, "--filter", RECORDS)["exchanges"]["exchanges"] > 0


@pytest.mark.parametrize("options", one_in(2, [["--api", "Fetch,Metadata"], ["--topic", "events"]], 1))
def test_filters_match_an_export_with_the_same_filters(options: list[str], tmp_path: Path) -> None:
    path = ROOT / "captures" / "java-group-consumer.pcap"
    assert kafkasniff("export", path, "-o", tmp_path / "out", *options).code == Exit.OK
    one, other = answered(path, *options), answered(tmp_path / "out")
    for found in (one, other):
        del found["sources"]
        for each in found["security"]["identities"]:
            del each["examples"]
    assert one == other
    assert 0 < one["exchanges"]["exchanges"] < answered(path)["exchanges"]["exchanges"]


@pytest.mark.extended
def test_an_incomplete_export(capture: Path, tmp_path: Path) -> None:
    kafkasniff("export", capture, "-o", tmp_path / "few", "--tables", "exchanges")
    answer = answered(tmp_path / "few")
    assert (answer["connections"], answer["problems"]) == (None, None)
    # Three of the lists, the decoded share, and the detectors that need a missing table.
    assert len(answer["notes"]) == 9
    reported = kafkasniff("stats", tmp_path / "few")
    assert reported.err.count("\n") == 9
    assert "connections" not in reported.lines[2]
    kafkasniff("export", capture, "-o", tmp_path / "headers", "--no-bodies")
    answer = answered(tmp_path / "headers")
    assert (answer["errors"], answer["topics"], answer["groups"]) == ([], [], [])
    assert answer["exchanges"]["requests"] == 24
    kafkasniff("export", capture, "-o", tmp_path / "hashes", "--hash-payload")
    assert answered(tmp_path / "hashes")["topics"][0]["record_bytes_max"] is None
    kafkasniff("export", capture, "-o", tmp_path / "none", "--tables", "records")
    assert kafkasniff("stats", tmp_path / "none").code == Exit.USAGE
