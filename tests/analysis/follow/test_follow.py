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
    part = partition(offset=-1 if offset is None else offset, error=error, record_count=1)
    part["error_code"] = None if not answered else 0 if error is None else 6
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


@pytest.mark.parametrize("name", ["connection_id", "exchange_id", "offset", "time"])
def test_rows_that_another_program_wrote(tmp_path: Path, name: str) -> None:
    """Rows without keys are ignored."""
    whole = [produce(1, 0, 17), fetch(1, 1, 17), commit(1, 2, 18)]
    rows = [produced(1, 0), fetched(1, 1, 17)]
    expected = one(tmp_path / "whole", whole, rows)
    if name == "time":
        times = {"time_ns": None, "latency_us": None}
        found = one(tmp_path / "some", [{**row, **times} for row in whole], rows)
        assert [step.time for step in found.steps if step.kind in ("produced", "committed")] == [None, None]
        return
    strange = [] if name == "offset" else [{**row, name: None} for row in whole]
    some = [*rows, *({**row, name: None} for row in rows)]
    assert one(tmp_path / "some", [*whole, *strange], some) == expected


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
    assert (place.topic, place.partition, place.offset, str(place)) == ("a-b", 7, 12, "a-b-7@12")
    wrongs = ("orders", "orders@3", "orders-0", "-0@3", "orders-0@x", "orders-0@-1", "orders-4294967296@1", "o-²@1")
    for wrong in wrongs:
        with pytest.raises(UsageError, match="TOPIC-PARTITION@OFFSET"):
            at(wrong)
    for given in ((None, None, None), ("a", "o-0@1", None)):
        with pytest.raises(UsageError, match="one of --key"):
            Wanted.parse(*given)
    with pytest.raises(UsageError, match="hex digits"):
        Wanted.parse("hex:0", None, None)
    with pytest.raises(UsageError, match="--topic does not apply"):
        Wanted.parse(None, "o-0@1", None, ("o",))


def test_an_export_without_records(tmp_path: Path) -> None:
    empty = Export.open(str(write_export(tmp_path / "empty", exchanges=[fetch(1, 1, 3)], records=[])))
    assert nothing_found(empty, KEY, follow(empty, KEY, 1).records) == "no records in 1 exchanges"
    bare = Export.open(str(write_export(tmp_path / "bare", exchanges=[fetch(1, 1, 3)])))
    with pytest.raises(UsageError, match="no table records"):
        follow(bare, KEY, 1)
