"""Filters that are applied while packets are read, against what Spark's own words for them mean."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.model import NO_TIME
from kafkasniff.spark.packet_rows import Condition, condition_of, keeper, packet_rows
from tests.spark.test_packet_rows import longest, row

pytest.importorskip("pyspark")
from pyspark.sql import datasource as words


def met(rows: list[dict[str, Any]], column: str, test: Any) -> list[int]:
    """Numbers of the rows whose value is not null and passes."""
    return [one["number"] for one in rows if one[column] is not None and test(one[column])]


PORT = ("dst_port",)
CASES: list[tuple[Any, Any]] = [
    (words.EqualTo(PORT, 9), lambda port: port == 9),
    (words.GreaterThan(("number",), 20), lambda number: number > 20),
    (words.GreaterThanOrEqual(("number",), 20), lambda number: number >= 20),
    (words.LessThan(("number",), 20), lambda number: number < 20),
    (words.LessThanOrEqual(("number",), 20), lambda number: number <= 20),
    (words.In(("number",), (3, 5, 7, 2**40)), lambda number: number in {3, 5, 7}),
    (words.Not(words.In(("number",), (3, 5))), lambda number: number not in {3, 5}),
    (words.Not(words.EqualTo(("src_ip",), "127.0.0.1")), lambda address: address != "127.0.0.1"),
    (words.EqualTo(("src_ip",), "127.0.0.1"), lambda address: address == "127.0.0.1"),
    (words.IsNotNull(("time_ns",)), lambda time: True),
    (words.IsNull(("time_ns",)), lambda time: False),
    (words.Not(words.Not(words.LessThan(("number",), 20))), lambda number: number < 20),
    (words.LessThan(("src_port",), 2**40), lambda port: True),
]


@pytest.mark.parametrize(("asked", "test"), CASES, ids=[str(case[0]) for case in CASES])
def test_rows_that_meet_a_condition(asked: Any, test: Any) -> None:
    batch = longest("sarama.pcap")
    condition = condition_of(asked)
    assert condition is not None
    everything = packet_rows(batch).to_pylist()
    keep, looked_at = keeper([condition])
    rows = packet_rows(batch, ["number", "payload"], keep=keep, looked_at=looked_at).to_pylist()
    assert [one["number"] for one in rows] == met(everything, condition.column, test)
    payloads = {one["number"]: one["payload"] for one in everything}
    assert all(one["payload"] == payloads[one["number"]] for one in rows)


def test_all_of_several_together_with_ports() -> None:
    batch = longest("sarama.pcap")
    everything = packet_rows(batch).to_pylist()
    port = everything[0]["src_port"]
    keep, looked_at = keeper([Condition("number", "GreaterThan", 10), Condition("length", "GreaterThan", 0)])
    rows = packet_rows(batch, ["number"], ports=[port], keep=keep, looked_at=looked_at)
    assert rows.column(0).to_pylist() == [
        one["number"]
        for one in everything
        if one["number"] > 10 and one["length"] > 0 and port in {one["src_port"], one["dst_port"]}
    ]


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(("operation", "value"), [("EqualTo", 5), ("In", (5, 6)), ("LessThan", 5)])
def test_what_is_null_meets_no_comparison(operation: str, value: Any, negated: bool) -> None:
    keep, looked_at = keeper([Condition("time_ns", operation, value, negated)])
    assert packet_rows(row(NO_TIME), ["number"], keep=keep, looked_at=looked_at).num_rows == 0


@pytest.mark.parametrize(
    "asked",
    [
        words.EqualTo(("time",), 5),
        words.EqualTo(("payload",), b"x"),
        words.EqualTo(("number",), "5"),
        words.EqualTo(("number",), None),
        words.EqualTo(("number", "inner"), 5),
        words.EqualTo(("nothing",), 5),
        words.EqualNullSafe(("number",), 5),
        words.In(("number",), (1, None)),
        words.In(("number",), ()),
        words.Not(words.StringContains(("src_ip",), "1")),
        words.StringStartsWith(("src_ip",), "10."),
    ],
    ids=str,
)
def test_what_is_left_to_spark(asked: Any) -> None:
    assert condition_of(asked) is None


def test_no_condition() -> None:
    assert keeper([]) == (None, ())
