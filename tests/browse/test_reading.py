"""Filling the index, and reading one exchange again."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkasniff
from kafkasniff.browse import reading as module
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import CaptureReading, unseen
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.model import Message
from tests.browse.opened import capture, fill, never, path_of, rows_of
from tests.choice import one_in


@pytest.mark.parametrize("name", one_in(2, ["java-errors", "java-transactions", "java-sasl", "java-group-share"]))
def test_a_second_reading_gives_the_same_exchange(name: str) -> None:
    reading = capture(name)
    index = fill(reading)
    exchanges = sorted(kafkasniff.read(path_of(name)), key=lambda one: (one.request.time_ns, one.request.first_packet))
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


@pytest.mark.parametrize("expression", [None, "latency_ms > 1", 'topic != "orders"'])
@pytest.mark.parametrize("name", one_in(2, ["java-errors", "java-transactions", "java-group-share", "kafkajs"]))
def test_rows_of_the_kernel_are_those_of_objects(
    name: str, expression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = capture(name)
    index = fill(reading, expression)
    assert index.is_complete
    monkeypatch.setattr(module, "_finder", lambda *_: None)
    assert rows_of(index) == rows_of(fill(reading, expression))


def test_readings_for_jumps_leave_names_known() -> None:
    """Topics of Fetch 13 and later have ids, whose names other connections say."""
    reading, index = capture("java-errors"), ExchangeIndex()
    reading.fill(index, None, stopped=never, progress=unseen, follow=True)
    reading.fill(ExchangeIndex(), None, stopped=lambda: True, progress=unseen)
    row = next(row for row in rows_of(index) if row.api == "Fetch v18")
    seen: list[tuple[int, int | None]] = []
    found = reading.look(index, row, stopped=never, progress=lambda *at: seen.append(at))
    assert found is not None
    assert [*mentions(found.request, found.response).topics] == ["errors"]
    size = path_of("java-errors").stat().st_size
    assert seen[-1] == (size, size)


def test_broken_and_changed_captures(tmp_path: Path) -> None:
    data = path_of("java-errors").read_bytes()
    path = tmp_path / "cut.pcap"
    path.write_bytes(data[:20_001])
    reading, index = CaptureReading((str(path),), dict), ExchangeIndex()
    assert reading.fill(index, None, stopped=never, progress=unseen) is True
    row = index.row(len(index) - 1)
    path.write_bytes(data[:1000])
    assert reading.look(index, row, stopped=never) is None
