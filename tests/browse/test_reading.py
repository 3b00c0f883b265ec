"""Filling the index, and reading one exchange again."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkasniff
from kafkasniff.browse import reading as module
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import CaptureReading, unseen
from kafkasniff.filters.expression import parse_filter
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.model import Message
from kafkasniff.native import kernel
from tests.conftest import ROOT


def never() -> bool:
    return False


def fill(reading: CaptureReading, expression: str | None = None) -> ExchangeIndex:
    index = ExchangeIndex()
    predicate = None if expression is None else parse_filter(expression)
    assert reading.fill(index, predicate, stopped=never, progress=lambda _read, _total: None) is False
    return index


@pytest.mark.parametrize("name", ["java-errors", "java-transactions", "java-sasl", "java-group-share"])
def test_a_second_reading_gives_the_same_exchange(name: str) -> None:
    path = ROOT / "captures" / f"{name}.pcap"
    reading = CaptureReading((str(path),), dict)
    index = fill(reading)
    exchanges = sorted(kafkasniff.read(path), key=lambda one: (one.request.time_ns, one.request.first_packet))
    assert len(index) == len(exchanges)
    for place in range(0, len(index), 7):
        found, wanted = reading.look(index, index.row(place), stopped=never), exchanges[place]
        assert found is not None
        for one, other in ((found.request, wanted.request), (found.response, wanted.response)):
            assert (one is None) == (other is None)
            if isinstance(one, Message) and isinstance(other, Message):
                assert (one.header, one.first_packet, one.time_ns) == (other.header, other.first_packet, other.time_ns)
                assert one.frame is not None
                assert len(one.frame) == one.size
                assert one.errors == other.errors
                # Names that were learned later are known by now.
                assert {*(other.body or {})} <= {*(one.body or {})}


@pytest.mark.skipif(kernel() is None, reason="there is no kernel")
@pytest.mark.parametrize("expression", [None, "latency_ms > 1", 'topic != "orders"'])
@pytest.mark.parametrize("name", ["java-errors", "java-transactions", "java-group-share", "kafkajs"])
def test_rows_of_the_kernel_are_those_of_objects(
    name: str, expression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = CaptureReading((str(ROOT / "captures" / f"{name}.pcap"),), dict)
    index = fill(reading, expression)
    assert index.is_complete
    monkeypatch.setattr(module, "kernel", lambda: None)
    plain = fill(reading, expression)
    assert [index.row(place) for place in range(len(index))] == [plain.row(place) for place in range(len(plain))]


def test_filter() -> None:
    reading = CaptureReading((str(ROOT / "captures" / "java-errors.pcap"),), dict)
    index = fill(reading, 'api == "Produce"')
    assert {index.row(place).api for place in range(len(index))} == {"Produce v13"}
    found = reading.look(index, index.row(0), stopped=never)
    assert found is not None
    assert found.request is not None
    assert found.request.api == "Produce"


def test_readings_for_jumps_leave_names_known() -> None:
    """Topics of Fetch 13 and later have ids, whose names other connections say."""
    reading, index = CaptureReading((str(ROOT / "captures" / "java-errors.pcap"),), dict), ExchangeIndex()
    reading.fill(index, None, stopped=never, progress=unseen, follow=True)
    reading.fill(ExchangeIndex(), None, stopped=lambda: True, progress=unseen)
    rows = [row for row in map(index.row, range(len(index))) if row.api == "Fetch v18"]
    seen: list[tuple[int, int | None]] = []
    found = reading.look(index, rows[0], stopped=never, progress=lambda *at: seen.append(at))
    assert found is not None
    assert [*mentions(found.request, found.response).topics] == ["errors"]
    size = (ROOT / "captures" / "java-errors.pcap").stat().st_size
    assert seen[-1] == (size, size)


def test_records_in_filters() -> None:
    reading = CaptureReading((str(ROOT / "captures" / "java-transactions.pcap"),), dict)
    some = fill(reading, "exists(record.key)")
    assert 0 < len(some) < len(fill(reading))


def test_it_stops() -> None:
    reading = CaptureReading((str(ROOT / "captures" / "java-errors.pcap"),), dict)
    index = ExchangeIndex()
    reading.fill(index, None, stopped=lambda: True, progress=lambda _read, _total: None)
    assert len(index) == 0
    whole = fill(reading)
    assert reading.look(whole, whole.row(0), stopped=lambda: True) is None


def test_broken_and_changed_captures(tmp_path: Path) -> None:
    data = (ROOT / "captures" / "java-errors.pcap").read_bytes()
    path = tmp_path / "cut.pcap"
    path.write_bytes(data[:20_001])
    reading = CaptureReading((str(path),), dict)
    index = ExchangeIndex()
    assert reading.fill(index, None, stopped=never, progress=lambda _read, _total: None) is True
    row = index.row(len(index) - 1)
    path.write_bytes(data[:1000])
    assert reading.look(index, row, stopped=never) is None
