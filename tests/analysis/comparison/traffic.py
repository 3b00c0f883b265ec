"""A minute of a producer as rows of `exchanges`: long-tailed latencies and a slowly changing load."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from kafkasniff.analysis.comparison.answer import SECTIONS, ComparisonAnswer
from kafkasniff.analysis.comparison.compare import compare
from kafkasniff.analysis.comparison.inference import Thresholds
from kafkasniff.analysis.comparison.side import Side
from tests.analysis.tables import Row, batch_of, exchange, partition

PLAIN = exchange(
    "Produce", api_version=9, software_name="java", software_version="3.7.0", partitions=[partition(record_count=1)]
)


def traffic(
    seed: int = 1,
    *,
    seconds: int = 60,
    rate: int = 10,
    slower: float = 1.0,
    tail: float = 1.0,
    fail: float = 0.0,
    records: int = 10,
    codec: str = "lz4",
    size: int = 100,
    **values: Any,
) -> pa.RecordBatch:
    """`rate`: requests per second; `fail`: share of requests with error 6."""
    random, load, rows = Random(seed), 0.0, []
    for number in range(seconds * rate):
        if number % rate == 0:
            load = 0.8 * load + random.gauss(0, 0.05)
        latency = 2000 * random.lognormvariate(load, 0.5) * slower
        if random.random() < 0.02:
            latency *= 5 * tail
        code = 6 if random.random() < fail else 0
        sent = {
            **PLAIN["partitions"][0],
            "error_code": code,
            "record_count": max(records + random.randrange(-2, 3), 1),
            "batch_count": 1,
            "bytes": 60 * records + random.randrange(50),
            "compression": codec,
        }
        time_ns = PLAIN["time_ns"] + int((number + random.random()) / rate * 1e9)
        rows.append((number, time_ns, round(latency), size + random.randrange(20), code, int(code != 0), [sent]))
    return table({**PLAIN, **values}, rows)


def table(plain: Row, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Repeat the row `plain`, with some columns replaced. Ten times as fast as a batch of dicts."""
    names = ("exchange_id", "time_ns", "latency_us", "request_size", "error_code", "error_count", "partitions")
    batch = batch_of([plain])
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.repeat(batch.column(field.name)[0], len(rows))
        if not pa.types.is_nested(field.type)
        else pa.concat_arrays([batch.column(field.name)] * len(rows))
        for field in batch.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def side(*batches: pa.RecordBatch) -> Side:
    made = Side()
    for batch in batches:
        made.update(batch)
    return made


def differing(answer: ComparisonAnswer) -> dict[str, int]:
    return {name: number for name, number in answer.differences.items() if number}


def compared(
    before: Side, *after: pa.RecordBatch, only: tuple[str, ...] = SECTIONS, **thresholds: Any
) -> ComparisonAnswer:
    """What differs after the change."""
    return compare(before, side(*after), Thresholds(**thresholds), only)
