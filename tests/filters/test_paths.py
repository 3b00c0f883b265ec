"""Paths into bodies, and into the records in them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.filters.paths import RECORDS
from kafkasniff.filters.places import values_at
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT
from tests.filters.expressions import at, exchange, holds, names
from tests.sinks.messages import PRODUCED, message

BODIES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=10,
)


@given(BODIES, st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple))
def test_paths_through_anything(body: Any, path: tuple[str, ...]) -> None:
    found = values_at(body, path)
    assert not any(value is None or isinstance(value, list) for value in found)
    if not isinstance(body, list):
        assert repr(found) == repr(at(body, *path))
    holder = message(body={"_x": body})
    for comparison in ("== 1", '!= "a"', "=~ 'a'", "> 0", "in (1, 'a', true)", "!~ 'b'", "== true", "== null"):
        assert holds(f"request._x.{'.'.join(path)} {comparison}", exchange(holder, None)) in (True, False)


def test_paths_into_records_match_the_existing_ones() -> None:
    expected = names(RECORDS)

    def compare(value: Any, known: Any) -> None:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and known is not None:
                reported = {name for name in one if not name.startswith("_")}
                assert reported <= set(known)
                for name in reported:
                    seen.add(name)
                    compare(one[name], known[name])

    seen: set[str] = set()
    for name in ("java-codecs", "java-transactions", "java-0.9", "sarama"):
        capture = ROOT / "captures" / f"{name}.pcap"
        for line in command("decode", "-q", "--format", "json", capture).objects:
            if line.get("api") in {"Produce", "Fetch"}:
                side = ("topic_data", "partition_data") if line["type"] == "request" else ("responses", "partitions")
                for records in at(line["body"], *side, "records"):
                    compare(records, expected)
    batch = set(expected["batches"])
    assert seen >= batch | {"truncated_bytes"} | set(expected["batches"]["records"])


def test_produced_records_are_in_the_sample() -> None:
    assert values_at(PRODUCED, ("responses", "partition_responses", "base_offset")) == [1042]
