"""Rows that select and unnest without copying: as Arrow does it."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.analysis.columns import (
    SelectedRows,
    broker_endpoint,
    column,
    encoded,
    exploded,
    extracted,
    in_any,
    matches,
    missing,
    named,
    only,
)
from tests.analysis.tables import batch_of, exchange, partition

TEXTS = ("Fetch", "Produce", "Metadata", None)


def batch(seed: int) -> pa.RecordBatch:
    dice = random.Random(seed)
    return batch_of(
        [
            exchange(
                dice.choice(TEXTS[:3]),
                client_id=dice.choice((*TEXTS, "")),
                broker_ip=dice.choice(("10.0.0.1", "fd00::1", None)),
                broker_port=dice.choice((9092, 65535, None)),
                partitions=[
                    partition(dice.choice(("orders", None)), number, topic_id=dice.choice(("id", None)))
                    for number in range(dice.randrange(3))
                ],
            )
            for _ in range(40)
        ]
    )


def chosen(rows: Any, plain: pa.Table, seed: int) -> tuple[Any, pa.Table]:
    """The same rows of both, after some random selections."""
    dice = random.Random(seed)
    for _ in range(dice.randrange(4)):
        mask = pa.array([dice.choice((True, True, False, None)) for _ in range(rows.num_rows)], pa.bool_())
        rows, plain = only(rows, mask), plain.filter(mask)
        if dice.random() < 0.5:
            places = pa.array([dice.randrange(rows.num_rows) for _ in range(5)] if rows.num_rows else [], pa.int64())
            rows, plain = rows.take(places), plain.take(places)
        column(rows, "client_id")  # made here, or above
        if dice.random() < 0.3:
            extra = pa.array(range(rows.num_rows), pa.int64())
            rows, plain = rows.append_column("extra", extra), plain.append_column("extra", extra)
            rows, plain = rows.select(rows.column_names[:-1]), plain.drop_columns(["extra"])
    return rows, plain


@pytest.mark.parametrize("seed", range(30))
def test_selections_are_those_of_arrow(seed: int) -> None:
    whole = batch(seed % 3)
    rows, plain = chosen(SelectedRows.of(whole), pa.table(whole), seed)
    assert rows.to_pylist() == plain.to_pylist()
    ids = plain["client_id"].to_pylist()
    assert encoded(rows, "client_id").to_pylist() == ids
    assert missing(rows, "client_id").to_pylist() == [one is None for one in ids]
    assert in_any(rows, "client_id", ("Fetch", "")).to_pylist() == [one in {"Fetch", ""} for one in ids]
    assert matches(rows, "client_id", "^F|^M").to_pylist() == [(one or "")[:1] in {"F", "M"} for one in ids]
    assert extracted(rows, "client_id", "(?P<end>.)$").to_pylist() == [one[-1] if one else None for one in ids]
    parts = named(exploded(rows, ["api", "broker_ip"]))
    expected = [
        (one["api"], part["topic"] or part["topic_id"], part["partition"])
        for one in plain.to_pylist()
        for part in one["partitions"]
    ]
    values = (column(parts, name).to_pylist() for name in ("api", "topic", "partition"))
    assert list(zip(*values, strict=True)) == expected
    assert encoded(parts, "topic").to_pylist() == [topic for _, topic, _ in expected]


def test_endpoints() -> None:
    ends = {"broker_ip": ["10.0.0.1", "fd00::1", None, "::"], "broker_port": pa.array([9092, 1, 3, None], pa.int32())}
    assert broker_endpoint(pa.record_batch(ends)).to_pylist() == ["10.0.0.1:9092", "[fd00::1]:1", None, None]


def test_a_column_that_was_not_selected() -> None:
    with pytest.raises(KeyError, match="api"):
        SelectedRows.of(batch(0)).select(["client_id"]).column("api")
