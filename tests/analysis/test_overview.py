"""The overview: answers known by construction, and the same whatever way the rows arrive."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.overview import Overview, OverviewAnswer
from kafkasniff.tables.rows import PROBLEMS
from tests.analysis.tables import START_NS, Row, batch_of, exchange
from tests.analysis.test_accumulator import merged_in_parts, pool_batch
from tests.choice import examples

TABLES = ("exchanges", "records", "connections")


def problem(kind: str, at: float, **values: Any) -> Row:
    row: Row = dict.fromkeys(PROBLEMS.names)
    row |= {"kind": kind, "detail": f"{kind} at {at}", "time_ns": START_NS + round(at * 1e9), "connection_id": 1}
    return {**row, **values}


def test_truncated_lists_report_the_rest() -> None:
    overview = Overview()
    overview.update(batch_of([exchange(at=one, client_id=f"c{one:02}", request_size=one) for one in range(20)]))
    answer = overview.answer(top=3)
    assert [one.client_id for one in answer.clients] == ["c19", "c18", "c17"]
    assert (answer.more["clients"], answer.more["apis"]) == (17, 0)


def over_rows(overview: Any) -> OverviewAnswer:
    """The answer with rows of `problems`, which the pool does not have."""
    rows = [problem("tcp-gap", 3, bytes=10), problem("crc-mismatch", 2)]
    overview.update(pa.RecordBatch.from_pylist(rows, schema=PROBLEMS), "problems")
    answer: OverviewAnswer = overview.answer()
    return answer


@examples(6)
@given(data=st.data())
def test_order_batches_and_merging_change_nothing(data: st.DataObject) -> None:
    whole = Overview()
    for table in TABLES:
        whole.update(pool_batch(table), table)
    assert over_rows(merged_in_parts(data, TABLES, Overview, lambda part: part)) == over_rows(whole)
