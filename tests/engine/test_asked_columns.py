"""Columns of exchanges, by field: from rows made by hand, and from what the kernel reads of bodies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kafkasniff.engine.asked_columns import BODY_FIELDS, HEADER_FIELDS, AskedBatch, AskedColumns, ReadFacts
from kafkasniff.engine.in_step_messages import Messages
from kafkasniff.filters.columns import FieldColumn
from kafkasniff.model import Endpoint
from kafkasniff.native.exchanges import HAS_GROUPS, HAS_RECORDS, PARTITION, ROW, ExchangeColumns, Strings
from kafkasniff.native.feed import MESSAGE, NONE, REQUEST, VERSIONS
from kafkasniff.tcp.segments import PACKET_SHIFT

PRODUCE = 0 * VERSIONS + 9
FETCH = 1 * VERSIONS + 12
CLIENT, BROKER = Endpoint("10.0.0.1", 50_000), Endpoint("::1", 9092)


def messages() -> Messages:
    """Two exchanges of two connections; the second connection has no number yet."""
    rows = np.zeros(4, MESSAGE)
    rows["code"] = PRODUCE, FETCH, PRODUCE, FETCH
    rows["flags"] = REQUEST, REQUEST, 0, 0
    rows["pair"] = NONE, NONE, 0, 1
    rows["connection"] = 0, 1, 0, 1
    rows["correlation"] = 7, 8, 7, 8
    rows["size"] = 100, 200, 30, 40
    rows["time"] = 1_000, 2_000, 3_000, 4_000
    rows["latency"] = 0, 0, 500, 600
    rows["packet"] = [(1 << PACKET_SHIFT) + 5] * 2 + [6] * 2
    rows["first_packet"] = rows["last_packet"] = (1 << PACKET_SHIFT) + np.arange(5, 9)
    owners: list[Any] = [
        SimpleNamespace(number=3, client=CLIENT, broker=BROKER),
        SimpleNamespace(number=0, client=None, broker=BROKER),
    ]
    return Messages(rows, b"", b"", owners)


def asked(*, answered: bool = True, numbers: list[int] | None = None) -> AskedColumns:
    batch = AskedBatch(
        messages(), None if numbers is None else np.array(numbers), lambda index: ("a.pcap", "b.pcap")[index], 0
    )
    return AskedColumns(batch, np.array([0, 1]), np.array([2, 3]) if answered else None)


def listed(column: FieldColumn) -> list[Any]:
    """The value of each entry; None: it has none."""
    if column.which is None:
        return list(column.values)
    return [None if which < 0 else column.values[which] for which in column.which]


def values(columns: AskedColumns, field: str, *, ended: bool = True) -> list[list[Any]]:
    found = columns.columns(field, ended=ended)
    assert found is not None
    return [listed(column) for column in found[0]]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("api", [[0, 1]]),
        ("api_version", [[9, 12]]),
        ("correlation_id", [[7, 8]]),
        ("request_size", [[100, 200]]),
        ("size", [[100, 200], [30, 40]]),
        ("response_size", [[30, 40]]),
        ("latency_ms", [[500, 600]]),
        ("time", [[1_000, 2_000]]),
        ("first_packet", [[5, 6], [7, 8]]),
        ("status", [["answered", "answered"]]),
        ("capture", [["b.pcap", "b.pcap"]]),
        ("client", [["10.0.0.1", None], ["10.0.0.1:50000", None]]),
        ("broker", [["::1", "::1"], ["[::1]:9092", "[::1]:9092"]]),
        ("client_port", [[50_000, None]]),
    ],
)
def test_header_fields(field: str, expected: list[list[Any]]) -> None:
    assert values(asked(), field) == expected


def test_every_header_field_but_client_ids_has_columns() -> None:
    columns = asked(numbers=[1, 2, 1, 2])
    assert {field for field in HEADER_FIELDS if columns.columns(field, ended=True) is None} == {"client_id"}
    assert {field for field in BODY_FIELDS if columns.columns(field, ended=True) is not None} == set()
    assert columns.columns("no_field", ended=True) is None


@pytest.mark.parametrize("field", ["response", "status", "response_size", "latency_ms", "duration_ms", "retransmits"])
def test_nothing_of_a_response_is_known_before_it_arrives(field: str) -> None:
    assert values(asked(), field, ended=False) == []
    if field not in ("response", "status"):
        assert values(asked(answered=False), field) == []


def test_numbers_that_come_later() -> None:
    found = asked().columns("connection", ended=True)
    assert found is not None
    columns, known = found
    assert listed(columns[0])[0] == 3
    assert known is not None
    assert known.tolist() == [True, False]
    assert asked().columns("exchange", ended=True) is None
    assert values(asked(numbers=[11, 12, 11, 12]), "exchange") == [[11, 12]]


def test_some_of_them() -> None:
    columns = asked().take(np.array([1]))
    assert len(columns) == 1
    assert values(columns, "size") == [[200], [40]]


def strings(*texts: bytes) -> Strings:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return Strings(offsets, np.frombuffer(b"".join(texts), np.uint8))


def facts() -> ReadFacts:
    """The first exchange has a group, two topics of which the request has one, and an error; the second has records."""
    rows = np.zeros(2, ROW)
    rows["pair"] = 0, 1
    rows["group"] = 0, NONE
    rows["client_id"] = NONE, 1
    rows["topics"], rows["asked_topics"] = (2, 1), (1, 1)
    rows["codes"] = 1, 0
    rows["records"] = 0, 44
    rows["has"] = 0, HAS_RECORDS | HAS_GROUPS
    none = strings()
    names = strings(b"group", "café".encode(), b"topic")
    read = ExchangeColumns(
        rows,
        none,
        none,
        names,
        np.array([2, 1, 2], np.uint32),
        np.zeros(0, PARTITION),
        np.zeros(0),
        np.zeros(0),
        np.array([27], np.int32),
    )
    return ReadFacts(read, {}, 0, 2, headers=False)


def entries(field: str, *, ended: bool = True) -> list[list[tuple[int, Any]]]:
    """(exchange, value) of each entry, by column."""
    columns = asked()
    columns.facts = facts()
    found = columns.columns(field, ended=ended)
    assert found is not None
    return [list(zip(one.rows.tolist(), listed(one), strict=True)) for one in found[0] if one.rows is not None]


def test_fields_of_bodies() -> None:
    assert entries("topic") == [[(0, "topic"), (0, "café"), (1, "topic")]]
    assert entries("topic", ended=False) == [[(0, "topic"), (1, "topic")]]
    assert entries("group_id") == [[(0, "group"), (1, None)]]
    assert entries("client_id") == [[(0, None), (1, "café")]]
    assert entries("error") == [[(0, 27)], [(1, 0)]]
    assert entries("error", ended=False) == []
    assert entries("error_count") == [[(0, 1), (1, 0)]]
    assert entries("record_count") == [[(1, 44)]]


def test_exchanges_with_several_groups_are_unknown() -> None:
    columns = asked()
    columns.facts = facts()
    found = columns.columns("group_id", ended=True)
    assert found is not None
    assert found[1] is not None
    assert found[1].tolist() == [True, False]


def test_headers_alone_have_client_ids_alone() -> None:
    columns = asked()
    columns.facts = facts()._replace(headers=True)
    assert columns.columns("topic", ended=True) is None
    assert columns.columns("client_id", ended=True) is not None
