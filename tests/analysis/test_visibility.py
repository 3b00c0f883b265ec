"""The account of decoded and undecoded bytes, from rows that show one reason each."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.analysis.parameters import make_parameters
from kafkasniff.analysis.visibility import HIGH, REASONS, TLS, Visibility, VisibleTraffic
from kafkasniff.tables.rows import PROBLEMS
from tests.analysis.tables import SCHEMAS, Row, connection, exchange

Rows = tuple[str, Row]


def stream(verdict: str = "kafka", *, decoded: int = 0, skipped: int = 0, lost: int = 0, **values: Any) -> Rows:
    """A row of `connections`. Bytes that are neither decoded nor skipped are the client's."""
    size = values.pop("size", decoded + skipped)
    more = {"bytes_decoded": decoded, "bytes_skipped": skipped, "bytes_lost": lost, "captured": "both"}
    row = connection(verdict=verdict, client_bytes=size, broker_bytes=0)
    assert more.keys() | values.keys() <= row.keys()
    return "connections", row | more | values


def problem(kind: str, size: int | None = None) -> Rows:
    return "problems", dict.fromkeys(PROBLEMS.names) | {"kind": kind, "bytes": size}


def orphan(size: int) -> Rows:
    return "exchanges", exchange(None, status="orphan", request_size=None, response_size=size)


def account(*rows: Rows) -> Visibility:
    made = Visibility(make_parameters(Visibility, {}))
    for table, row in rows:
        schema = PROBLEMS if table == "problems" else SCHEMAS[table]
        made.update(pa.RecordBatch.from_pylist([row], schema=schema), table)
    return made


def visible(*rows: Rows) -> VisibleTraffic:
    return account(*rows).visible()


def undecoded(*rows: Rows) -> dict[str, tuple[int | None, int | None]]:
    """Connections and bytes by reason."""
    return {one.reason: (one.connections, one.bytes) for one in visible(*rows).undecoded}


GOOD = stream(decoded=900)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([stream("not_kafka", protocol=TLS, size=100)], {"tls": (1, 100)}),
        ([stream("undecided", size=100)], {"undecided": (1, 100)}),
        ([stream("undecided", size=40, lost=60, captured="client")], {"client-to-broker-only": (1, 100)}),
        ([stream("undecided", size=100, captured="client")], {"undecided": (1, 100)}),
        ([stream(decoded=40, lost=100, captured="client")], {"client-to-broker-only": (1, 100)}),
        ([stream(decoded=60, lost=40, captured="broker")], {"broker-to-client-only": (1, 100)}),
        ([stream(decoded=50, skipped=100)], {"skipped": (None, 100)}),
        ([stream(decoded=50, lost=100)], {"packet-loss": (None, 100)}),
        ([stream(decoded=50, lost=100), problem("tcp-gap", 100)], {"packet-loss": (None, 100)}),
        # No gap explains these bytes, so they lie beyond the snap length.
        ([stream(decoded=50, lost=100), problem("retransmission")], {"snap-length": (None, 100)}),
        (
            [stream(decoded=50, lost=100), problem("tcp-gap", 30)],
            {"snap-length": (None, 70), "packet-loss": (None, 30)},
        ),
        # With the response's length prefix.
        ([orphan(96)], {"orphan-responses": (None, 100)}),
    ],
)
def test_reasons(rows: list[Rows], expected: dict[str, tuple[int | None, int | None]]) -> None:
    found = visible(GOOD, *rows)
    assert {one.reason: (one.connections, one.bytes) for one in found.undecoded} == expected
    assert list(expected) == [one.reason for one in found.undecoded], "the largest comes first"
    missing = sum(size or 0 for _, size in expected.values())
    assert found.bytes - found.bytes_decoded == missing
    for one in found.undecoded:
        assert (one.what, one.advice) == REASONS[one.reason]
        assert one.share == pytest.approx((one.bytes or 0) / found.bytes)


def test_responses_of_one_sided_connections_are_no_orphans_besides() -> None:
    """All of their responses are orphans; their bytes are counted once."""
    rows = [GOOD, stream(decoded=100, captured="broker"), orphan(96)]
    assert undecoded(*rows) == {"broker-to-client-only": (1, 100)}
    assert visible(*rows).is_one_sided
    assert undecoded(*rows, orphan(6)) == {"broker-to-client-only": (1, 100), "orphan-responses": (None, 10)}


def test_other_protocols_count_only_if_nothing_was_decoded() -> None:
    http = stream("not_kafka", protocol="HTTP", size=500)
    beside = visible(GOOD, http, stream("not_kafka", size=1))
    assert beside.undecoded == []
    assert (beside.not_kafka.connections, beside.not_kafka.bytes, beside.not_kafka.protocols) == (2, 501, ["HTTP"])
    (alone,) = visible(http, stream("not_kafka", protocol="AMQP", size=1)).undecoded
    assert (alone.reason, alone.connections, alone.share) == ("other-protocols", 2, 1.0)
    assert alone.what == "other protocols (AMQP, HTTP)"


def test_missing_data_of_unknown_size_follows_and_lowers_no_share() -> None:
    found = visible(GOOD, stream(decoded=0, skipped=10), problem("capture-broken"), problem("capture-cut"))
    assert [(one.reason, one.bytes) for one in found.undecoded] == [("skipped", 10), ("capture-cut", None)]
    assert found.share > HIGH
    assert not found.is_high
    assert [one.reason for one in found.unmeasured] == ["capture-cut"]


def test_order_batches_and_merging_change_nothing() -> None:
    rows = [GOOD, stream(decoded=50, lost=100), stream("not_kafka", protocol=TLS, size=70), problem("tcp-gap", 30)]
    rows += [stream(decoded=100, captured="broker"), problem("capture-loss"), orphan(300)]
    expected = account(*rows)
    for seed in range(6):
        order = Random(seed).sample(rows, len(rows))
        cut = seed + 1
        first, second = account(*order[:cut]), account(*order[cut:])
        first.merge(Visibility.from_state(second.state()))
        assert first.visible() == expected.visible()
        assert first.result() == expected.result()
