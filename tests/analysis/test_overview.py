"""The overview: answers known by construction, and the same whatever way the rows arrive."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.overview import Overview, OverviewAnswer
from kafkasniff.tables.rows import CONNECTIONS, EXCHANGES, PROBLEMS, RECORDS
from tests.analysis.tables import START_NS, Row, exchange, partition
from tests.analysis.test_accumulator import merged_in_parts, pool_batch
from tests.choice import examples

TABLES = ("exchanges", "records", "connections")
SCHEMAS = {"exchanges": EXCHANGES, "records": RECORDS, "connections": CONNECTIONS, "problems": PROBLEMS}


FORGED = 'm"generation_id":99,'
"""A member's name that looks like a field, but for the backslashes that JSON puts into it."""


def problem(kind: str, at: float, **values: Any) -> Row:
    row: Row = dict.fromkeys(PROBLEMS.names)
    row |= {"kind": kind, "detail": f"{kind} at {at}", "time_ns": START_NS + round(at * 1e9), "connection_id": 1}
    return {**row, **values}


def reported(overview: Overview | None = None, **tables: list[Row]) -> OverviewAnswer:
    overview = Overview() if overview is None else overview
    for table, rows in tables.items():
        overview.update(pa.RecordBatch.from_pylist(rows, schema=SCHEMAS[table]), table)
    return overview.answer()


# -- known answers ----------------------------------------------------------------------------------------------------


def test_groups() -> None:
    def join(at: float, generation: int, member: str, members: list[str]) -> list[Row]:
        body = {"error_code": 0, "generation_id": generation, "members": [{"member_id": one} for one in members]}
        ids = {"group_id": "g", "member_id": member, "client_id": member}
        return [
            exchange("JoinGroup", at, response_body=body, request_body={"group_id": "g"}, **ids),
            exchange("SyncGroup", at + 0.1, request_body={"generation_id": generation}, **ids),
            exchange("Heartbeat", at + 0.2, request_body={"member_id": FORGED, "generation_id": generation}, **ids),
        ]  # fmt: skip

    rows = [
        *join(1, 1, "a", ["a"]),
        *join(2, 2, "a", ["a", "b"]),
        *join(2, 2, "b", []),
        exchange("OffsetCommit", 3, group_id="late", request_body={"generation_id_or_member_epoch": -1}),
        exchange("ConsumerGroupHeartbeat", 4, group_id="new", response_body={"member_epoch": 7}),
    ]
    first, *others = reported(exchanges=rows).groups
    assert (first.group_id, first.protocols, first.requests) == ("g", ["classic"], 9)
    assert (first.generation_first, first.generation_last, first.rebalances, first.members) == (1, 2, 2, 2)
    assert first.clients == 2
    assert [(one.group_id, one.protocols, one.generation_last) for one in others] == [
        ("late", [], None),
        ("new", ["consumer"], 7),
    ]


def test_truncated_lists_report_the_rest() -> None:
    rows = [exchange(at=number, client_id=f"c{number:02}", request_size=number) for number in range(20)]
    overview = Overview()
    reported(overview, exchanges=rows)
    answer = overview.answer(top=3)
    assert [one.client_id for one in answer.clients] == ["c19", "c18", "c17"]
    assert (answer.more["clients"], answer.more["apis"]) == (17, 0)


# -- the same whatever way the rows arrive -----------------------------------------------------------------------------


def over_rows(overview: Any) -> OverviewAnswer:
    """The answer with rows of `problems`, which the pool does not have."""
    return reported(overview, problems=[problem("tcp-gap", 3, bytes=10), problem("crc-mismatch", 2)])


@examples(6)
@given(data=st.data())
def test_order_batches_and_merging_change_nothing(data: st.DataObject) -> None:
    whole = Overview()
    for table in TABLES:
        whole.update(pool_batch(table), table)
    assert over_rows(merged_in_parts(data, TABLES, Overview, lambda part: part)) == over_rows(whole)


def test_errors_and_where_they_occurred_first() -> None:
    failed = partition("lost", error_code=3)
    rows = [
        exchange("Metadata", 5, error_code=3, error_count=1, client_id="later", partitions=[failed]),
        exchange("Produce", 4, error_code=3, error_count=2, client_id="first", partitions=[failed, failed]),
        exchange("Heartbeat", 1, error_code=27, error_count=1, response_body={"error_code": 27}),
        exchange("Heartbeat", 2, error_code=9999, error_count=1, response_body={"error_code": 9999}),
    ]
    unknown_topic, rebalance, new = reported(exchanges=rows).errors
    assert (unknown_topic.code, unknown_topic.name, unknown_topic.count) == (3, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    assert unknown_topic.apis == ["Metadata", "Produce"]
    assert unknown_topic.first == START_NS + 4 * 10**9
    assert (unknown_topic.first_api, unknown_topic.first_client_id, unknown_topic.first_topic) == (
        "Produce",
        "first",
        "lost",
    )
    assert (unknown_topic.retriable, rebalance.retriable, new.retriable) == (True, False, None)
    assert rebalance.meaning is not None
    assert (new.name, new.meaning) == (None, None)
