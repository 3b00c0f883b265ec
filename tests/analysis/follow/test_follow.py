"""Ways of records, from rows of exports: attempts, losses, deliveries, commits, transactions, share groups."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis import table_file
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.follow import RecordWay, Wanted, WaysFound, follow, nothing_found, record_rows
from kafkasniff.errors import UsageError
from tests.analysis.exports import write_export
from tests.analysis.tables import Row, exchange, partition, record

IDEMPOTENT = {"producer_id": 7, "producer_epoch": 0, "sequence": 4}
KEY = Wanted(key=b"k")


def produce(number: int, at: float, offset: int | None = None, error: str | None = None, **values: Any) -> Row:
    """A Produce exchange of one record: acknowledged at an offset, refused, or without response."""
    answered = offset is not None or error is not None
    part = partition(
        offset=-1 if offset is None else offset,
        error_code=None if not answered else 0 if error is None else 6,
        error=error,
        record_count=1,
    )
    given = {"status": "answered" if answered else "unanswered", "latency_us": 5_000 if answered else None, "acks": -1}
    return exchange("Produce", at, exchange_id=number, partitions=[part], **{**given, **values})


def produced(number: int, at: float, **values: Any) -> Row:
    return record(at=at, exchange_id=number, offset=0, timestamp_type="CreateTime", **values)


def fetch(number: int, at: float, offset: int, client: str = "reader", **values: Any) -> Row:
    return exchange(
        "Fetch", at, connection_id=2, exchange_id=number, client_id=client, sender="client",
        partitions=[partition(offset=offset, record_count=1)], **values,
    )  # fmt: skip


def fetched(number: int, at: float, offset: int, api: str = "Fetch", **values: Any) -> Row:
    names = {"api": api, "direction": "response", "timestamp_type": "CreateTime", "connection_id": 2}
    return record(at=at, **{**names, "exchange_id": number, "offset": offset, **values})


def commit(number: int, at: float, offset: int, client: str = "reader", group: str = "g", **values: Any) -> Row:
    part = partition(offset=offset, **values)
    return exchange(
        "OffsetCommit", at, connection_id=3, exchange_id=number, client_id=client, group_id=group, partitions=[part]
    )


def followed(folder: Path, exchanges: Iterable[Row], records: Iterable[Row], wanted: Wanted = KEY) -> WaysFound:
    return follow(Export.open(str(write_export(folder, exchanges=exchanges, records=records))), wanted, 10)


def one(folder: Path, exchanges: Iterable[Row], records: Iterable[Row], wanted: Wanted = KEY) -> RecordWay:
    (way,) = followed(folder, exchanges, records, wanted).ways
    return way


def kinds(way: RecordWay) -> list[str]:
    return [step.kind for step in way.steps]


def states(way: RecordWay) -> dict[str | None, str]:
    return {one.group_id or one.client_id: one.state for one in way.consumers}


def at(place: str) -> Wanted:
    return Wanted.parse(None, place, None)


def test_from_the_producer_to_the_commit(tmp_path: Path) -> None:
    way = one(
        tmp_path,
        [produce(1, 0, 17), fetch(1, 0.5, 17), commit(1, 1, 17), commit(2, 2, 18), commit(3, 3, 19)],
        [produced(1, 0), fetched(1, 0.75, 17)],
    )
    assert (way.topic, way.partition, way.offset, way.key, way.value_bytes) == ("orders", 0, 17, b"k", 5)
    assert kinds(way) == ["produced", "acknowledged", "delivered", "committed"]
    assert [(step.after, step.delay_us) for step in way.steps] == [
        *((None, None), (0, 5_000), (1, 745_000), (2, 1_250_000)),
    ]
    assert [step.offset for step in way.steps] == [None, 17, None, 18]
    assert (way.unknown, states(way)) == ([], {"g": "committed"})


def test_a_refused_commit_and_one_before_the_delivery_do_not_count(tmp_path: Path) -> None:
    rows = [produce(1, 0, 17), fetch(1, 0.5, 17), commit(1, 0.6, 18), commit(2, 2, 18, error_code=25)]
    way = one(tmp_path, rows, [produced(1, 0), fetched(1, 0.75, 17)])
    assert (kinds(way)[-1], states(way)) == ("delivered", {"g": "delivered"})


@pytest.mark.parametrize("number", [IDEMPOTENT, {}])
@pytest.mark.parametrize("wanted", [KEY, at("orders-0@17")])
def test_retries_after_a_refusal_and_a_lost_acknowledgement(
    tmp_path: Path, number: dict[str, int], wanted: Wanted
) -> None:
    """With sequences they are recognized by these, otherwise by their content."""
    way = one(
        tmp_path,
        [produce(1, 0, error="NOT_LEADER_OR_FOLLOWER"), produce(2, 1), produce(3, 2, 17)],
        [produced(number_of, at, **number) for number_of, at in ((1, 0), (2, 1), (3, 2))],
        wanted,
    )
    assert kinds(way) == ["produced", "refused", "produced", "produced", "acknowledged"]
    assert [step.attempt for step in way.steps if step.attempt] == [1, 2, 3]
    by = "sequence" if number else "content"
    assert [step.matched for step in way.steps if step.matched] == [by, by, "offset"]
    assert way.steps[1].error == "NOT_LEADER_OR_FOLLOWER"
    assert way.unknown == ["delivery"]


@pytest.mark.parametrize("place", [7, 8])
def test_a_retry_that_was_written_twice(tmp_path: Path, place: int) -> None:
    """The lost acknowledgement was of offset 7, which no other request explains."""
    exchanges = [produce(1, 0), produce(2, 1, 8), fetch(1, 3, 7)]
    records = [produced(1, 0), produced(2, 1), fetched(1, 3, 7), fetched(1, 3, 8)]
    ways = followed(tmp_path / "key", exchanges, records).ways
    assert [(way.offset, kinds(way)) for way in ways] == [
        (7, ["produced", "delivered"]),
        (8, ["produced", "acknowledged", "delivered"]),
    ]
    assert ways[0].unknown == ["response"]
    assert one(tmp_path / "offset", exchanges, records, at(f"orders-0@{place}")) == ways[place - 7]


def test_other_content_at_the_same_sequence_is_another_record(tmp_path: Path) -> None:
    """A producer that gave a batch up uses its sequence for the next one."""
    exchanges = [produce(1, 0), produce(2, 1, 17)]
    records = [produced(1, 0, value=b"lost", **IDEMPOTENT), produced(2, 1, **IDEMPOTENT)]
    ways = followed(tmp_path, exchanges, records).ways
    assert [(way.offset, kinds(way)) for way in ways] == [(None, ["produced"]), (17, ["produced", "acknowledged"])]
    assert ways[0].unknown == ["response", "offset", "delivery"]


def test_an_acknowledgement_without_an_offset(tmp_path: Path) -> None:
    """A broker that no longer knows the offset of a batch that it has already."""
    exchanges = [produce(1, 0), produce(2, 1, -1), fetch(1, 2, 17)]
    records = [produced(number, number - 1, **IDEMPOTENT) for number in (1, 2)] + [fetched(1, 2, 17, **IDEMPOTENT)]
    way = one(tmp_path, exchanges, records)
    assert (way.offset, kinds(way)) == (17, ["produced", "produced", "acknowledged", "delivered"])
    assert (way.steps[2].offset, way.unknown) == (None, [])


def test_a_later_request_is_not_what_was_delivered_before(tmp_path: Path) -> None:
    exchanges = [produce(1, 2, status="no_response", acks=0), fetch(1, 1, 3)]
    ways = followed(tmp_path, exchanges, [produced(1, 2), fetched(1, 1, 3)]).ways
    assert [(way.offset, kinds(way)) for way in ways] == [(3, ["delivered"]), (None, ["produced"])]
    assert ways[0].unknown == ["producer"]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_offset_in_a_batch_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Counted over the batches of the partition: old producers send several."""
    monkeypatch.setattr(table_file, "BATCH_ROWS", size)
    part = partition(offset=40, record_count=3, batch_count=2)
    other = partition("other", offset=90, record_count=1)
    exchanges = [exchange("Produce", partitions=[other, part], acks=1)]
    records = [record("other", offset=0), *(record(offset=number, key=key) for number, key in ((0, b"a"), (1, b"b")))]
    records.append(record(offset=0, key=b"k"))
    assert one(tmp_path / "key", exchanges, records, Wanted(key=b"k", topics=("ord*",))).offset == 42
    assert one(tmp_path / "offset", exchanges, records, at("orders-0@41")).key == b"b"


def test_who_did_not_get_it(tmp_path: Path) -> None:
    exchanges = [
        produce(1, 0, 17),
        fetch(1, 1, 12, "early"),
        fetch(2, 1, 20, "late"),
        *(fetch(number, number, offset, "passing") for number, offset in ((3, 16), (4, 18))),
        fetch(5, 1, 3, "broker-1-fetcher-0"),
        commit(1, 4, 18, "elsewhere", "seen-only-here"),
        commit(2, 4, 0, "passing", "g"),
    ]
    way = one(tmp_path, exchanges, [produced(1, 0)])
    assert states(way) == {
        "early": "not-delivered",
        "late": "began-after",
        "g": "passed-over",
        "seen-only-here": "committed",
    }
    assert {one.deliveries for one in way.consumers} == {0}
    assert kinds(way) == ["produced", "acknowledged", "committed"]
    assert way.steps[2].after is None
    assert way.unknown == ["delivery"]


def test_followers_and_deliveries_that_are_repeated(tmp_path: Path) -> None:
    exchanges = [
        produce(1, 0, 17),
        fetch(1, 0.5, 17, "broker-2-fetcher-0"),
        fetch(2, 1, 17),
        fetch(3, 2, 17),
        fetch(4, 3, 17, "alone"),
        commit(1, 4, 17),
    ]
    records = [produced(1, 0), *(fetched(number, 0.5 * number, 17) for number in (1, 2, 3, 4))]
    way = one(tmp_path, exchanges, records)
    assert kinds(way) == ["produced", "acknowledged", "replicated", "delivered", "redelivered", "delivered"]
    assert [step.after for step in way.steps] == [None, 0, 1, 1, 3, 1]
    assert {(one.group_id, one.client_id): one.deliveries for one in way.consumers} == {
        ("g", None): 2,
        (None, "alone"): 1,
    }


def transactional(folder: Path, *rows: Row, control: str | None = None, end: bool | None = None) -> RecordWay:
    batch = {"producer_id": 7, "producer_epoch": 1, "sequence": 0, "transactional": True}
    exchanges = [produce(1, 0, 17), fetch(1, 3, 17), *rows]
    if end is not None:
        body = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 1, "committed": end}
        exchanges.append(exchange("EndTxn", 1, exchange_id=9, request_body=body))
    records = [produced(1, 0, **batch), fetched(1, 3, 17, **batch)]
    if control is not None:
        marker = {**batch, "sequence": -1, "key": b"\0\0\0\1"}
        records += [
            fetched(1, 3, 19, **{**marker, "control": control}),
            fetched(1, 3, 25, **{**marker, "control": "ABORT"}),
        ]
    return one(folder, exchanges, records)


def test_how_a_transaction_ends(tmp_path: Path) -> None:
    way = transactional(tmp_path / "both", control="COMMIT", end=True)
    assert kinds(way) == ["produced", "acknowledged", "transaction-committed", "delivered"]
    assert (way.outcome, way.marker_offset, way.unknown) == ("committed", 19, [])
    way = transactional(tmp_path / "end", end=False)
    assert (way.outcome, way.marker_offset, kinds(way)[2]) == ("aborted", None, "transaction-aborted")
    way = transactional(tmp_path / "marker", control="ABORT")
    assert (way.outcome, way.marker_offset, "transaction-aborted" in kinds(way)) == ("aborted", 19, False)
    assert transactional(tmp_path / "open").unknown == ["outcome"]
    other = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 2, "committed": True}
    refused = {**other, "producer_epoch": 1}
    ends = [
        exchange("EndTxn", 1, request_body=other),
        exchange("EndTxn", 1, request_body=refused, error_code=47),
        exchange("EndTxn", 1, request_body="[1"),
    ]
    assert transactional(tmp_path / "others", *ends).unknown == ["outcome"]


def share(number: int, at: float, api: str, request: Row, response: Row) -> Row:
    part = {"partition_index": 0}
    topic = {"topic_id": "T"}
    return exchange(
        api, at, connection_id=2, exchange_id=number, client_id="worker", group_id="workers",
        partitions=[partition(topic_id="T")],
        request_body={"topics": [{**topic, "partitions": [{**part, **request}]}]},
        response_body={"responses": [{**topic, "partitions": [{**part, **response}]}]},
    )  # fmt: skip


def test_share_groups(tmp_path: Path) -> None:
    def acknowledged(first: int, *types: int) -> Row:
        last = first + max(len(types), 2) - 1
        batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}]
        return {"acknowledgement_batches": batches}

    def acquired(count: int, first: int = 17) -> Row:
        return {"acquired_records": [{"first_offset": first, "last_offset": first, "delivery_count": count}]}

    way = one(
        tmp_path,
        [
            produce(1, 0, 17),
            share(1, 1, "ShareFetch", {}, acquired(1)),
            share(2, 2, "ShareAcknowledge", acknowledged(16, 1, 2), {}),
            share(3, 3, "ShareFetch", {}, acquired(1, 18)),
            share(4, 4, "ShareFetch", acknowledged(16, 1), {**acquired(2), "acknowledge_error_code": 121}),
            share(5, 5, "ShareAcknowledge", acknowledged(17, 1), {"error_code": 121}),
            share(6, 6, "ShareAcknowledge", acknowledged(17, 1), {}),
        ],
        [produced(1, 0), *(fetched(number, number, 17, "ShareFetch") for number in (1, 3, 4))],
    )
    assert [(step.kind, step.exchange_id) for step in way.steps[2:]] == [
        *(("delivered", 1), ("released", 2), ("redelivered", 4), ("accepted", 6)),
    ]
    assert [step.deliveries for step in way.steps] == [None, None, 1, None, 2, None]
    assert [(one.group_id, one.state, one.deliveries) for one in way.consumers] == [("workers", "settled", 2)]


@pytest.mark.parametrize("name", ["connection_id", "exchange_id", "offset", "time"])
def test_rows_that_another_program_wrote(tmp_path: Path, name: str) -> None:
    """Rows without keys are ignored."""
    whole = [produce(1, 0, 17), fetch(1, 1, 17), commit(1, 2, 18)]
    rows = [produced(1, 0), fetched(1, 1, 17)]
    expected = one(tmp_path / "whole", whole, rows)
    if name == "offset":
        found = one(tmp_path / "some", whole, [*rows, *({**row, name: None} for row in rows)])
    elif name == "time":
        times = {"time_ns": None, "latency_us": None}
        found = one(tmp_path / "some", [{**row, **times} for row in whole], rows)
        assert [step.time for step in found.steps if step.kind in ("produced", "committed")] == [None, None]
        return
    else:
        found = one(
            tmp_path / "some",
            [*whole, *({**row, name: None} for row in whole)],
            [*rows, *({**row, name: None} for row in rows)],
        )
    assert found == expected


def test_the_first_records_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = [produce(number, number, number) for number in range(20)]
    records = [produced(number, number) for number in range(20)]
    whole = followed(tmp_path / "whole", exchanges, records)
    assert ([way.offset for way in whole.ways], whole.more, whole.dropped) == ([*range(10)], 10, 0)
    monkeypatch.setattr(record_rows, "MAX_ROWS", 4)
    for size in (1, 3, 100):
        monkeypatch.setattr(table_file, "BATCH_ROWS", size)
        bounded = follow(Export.open(str(tmp_path / "whole")), KEY, 10)
        assert ([way.offset for way in bounded.ways], bounded.more, bounded.dropped) == ([0, 1, 2, 3], 0, 16)
    # A long key counts for several rows.
    records = [produced(number, number, key=bytes(record_rows.KEY_BYTES)) for number in range(20)]
    wanted = Wanted(key=bytes(record_rows.KEY_BYTES))
    assert len(followed(tmp_path / "long", exchanges, records, wanted).ways) == 2


def test_what_is_asked() -> None:
    assert Wanted.parse("hex:00fF", None, None).key == b"\x00\xff"
    place = at("a-b-7@12").place
    assert place is not None
    assert (place.topic, place.partition, place.offset, str(place)) == ("a-b", 7, 12, "a-b-7@12")
    for wrong in (
        "orders",
        "orders@3",
        "orders-0",
        "-0@3",
        "orders-0@x",
        "orders-0@-1",
        "orders-4294967296@1",
        "o-²@1",
    ):
        with pytest.raises(UsageError, match="TOPIC-PARTITION@OFFSET"):
            at(wrong)
    for given in ((None, None, None), ("a", "o-0@1", None)):
        with pytest.raises(UsageError, match="one of --key"):
            Wanted.parse(*given)
    with pytest.raises(UsageError, match="hex digits"):
        Wanted.parse("hex:0", None, None)
    with pytest.raises(UsageError, match="--topic does not apply"):
        Wanted.parse(None, "o-0@1", None, ("o",))


def test_a_client_in_several_groups(tmp_path: Path) -> None:
    """Its deliveries belong to either of them."""
    exchanges = [fetch(1, 1, 17), commit(1, 2, 18), commit(2, 3, 18, group="h"), commit(3, 4, 18, "other", "i")]
    way = one(tmp_path, exchanges, [fetched(1, 1, 17)])
    assert [(step.kind, step.group_id, step.after) for step in way.steps] == [
        ("delivered", None, None),
        *(("committed", "g", 0), ("committed", "h", 0), ("committed", "i", None)),
    ]


def test_an_export_without_records(tmp_path: Path) -> None:
    empty = Export.open(str(write_export(tmp_path / "empty", exchanges=[fetch(1, 1, 3)], records=[])))
    assert nothing_found(empty, KEY, follow(empty, KEY, 1).records) == "no records in 1 exchanges"
    bare = Export.open(str(write_export(tmp_path / "bare", exchanges=[fetch(1, 1, 3)])))
    with pytest.raises(UsageError, match="no table records"):
        follow(bare, KEY, 1)
