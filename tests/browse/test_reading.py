"""Filling the explorer's list from captures, growing ones and exports, its columns and bars; one exchange again."""

from __future__ import annotations

import gzip
import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import kafkasniff
from kafkasniff.browse import index as index_module
from kafkasniff.browse import reading as module
from kafkasniff.browse.following import followed
from kafkasniff.browse.index import COLUMNS, ExchangeIndex, latency_bins, time_bins
from kafkasniff.browse.reading import CaptureReading, CopiedPipe, GrowingCapture, unseen
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.model import Exchange, Message
from tests.browse.opened import capture, exported, fill, never, path_of, rows_of
from tests.choice import one_in
from tests.conftest import ROOT


@pytest.mark.parametrize("name", one_in(2, ["java-errors", "java-transactions", "java-sasl", "java-group-share"]))
def test_a_second_reading_gives_the_same_exchange(name: str) -> None:
    reading = capture(name)
    index = fill(reading)
    exchanges = sorted(kafkasniff.read(path_of(name)), key=lambda one: (one.request.time_ns, one.request.first_packet))
    assert len(index) == len(exchanges)
    for place in range(0, len(index), 7):
        found, wanted = reading.look(index, index.row(place), stopped=never), exchanges[place]
        for one, other in ((found.request, wanted.request), (found.response, wanted.response)):
            assert (one is None) == (other is None)
            if isinstance(one, Message) and isinstance(other, Message):
                assert (one.header, one.first_packet, one.time_ns) == (other.header, other.first_packet, other.time_ns)
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


EXCHANGES = list(kafkasniff.read(path_of("java-errors")))


def asked(exchange: Exchange) -> tuple[int, int]:
    return exchange.request.time_ns, exchange.request.first_packet


def indexed(exchanges: list[Exchange]) -> ExchangeIndex:
    index = ExchangeIndex()
    for exchange in exchanges:
        index.add(exchange)
    assert len(index) == 0
    index.publish()
    return index


@pytest.fixture
def filled() -> ExchangeIndex:
    return indexed(EXCHANGES)


def test_rows_say_what_the_exchanges_say(filled: ExchangeIndex) -> None:
    for row, exchange in zip(rows_of(filled), sorted(EXCHANGES, key=asked), strict=True):
        request, response = exchange.request, exchange.response
        assert (row.packet, row.exchange_id, row.connection, row.latency) == (
            request.first_packet, exchange.exchange_id, exchange.connection, exchange.latency_ns)  # fmt: skip
        assert (row.api, row.client_id) == (f"{request.api} v{request.api_version}", request.client_id)
        assert row.request == request.size
        assert row.response == (response.size if response else None)
        assert row.error == (response.errors[0].name if response and response.errors else "" if response else row.error)
        assert filled.ends(row) == (request.client, request.broker)
    assert {row.subject for row in rows_of(filled)} >= {"errors", "no-such-topic"}


def test_order(filled: ExchangeIndex) -> None:
    for column in COLUMNS:
        for descending in (False, True):
            places = filled.order(column, descending=descending).tolist()
            assert sorted(places) == [*range(len(filled))], column
            values = [getattr(filled.row(place), column) for place in places]
            known = [value for value in values if value is not None]
            assert known == sorted(known, reverse=descending), column
            # Equal values stay in order.
            pairs = zip(values, values[1:], places, places[1:], strict=False)
            assert all(before < after for one, other, before, after in pairs if one == other), column


def test_chunks(filled: ExchangeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = rows_of(filled)
    monkeypatch.setattr(index_module, "CHUNK", 4)
    index = ExchangeIndex()
    for exchange in sorted(EXCHANGES, key=asked):
        index.add(exchange)
        if exchange.exchange % 3:
            index.publish()
    index.publish()
    assert rows_of(index) == wanted
    assert [wanted[place] for place in index.order("latency")] == sorted(wanted, key=lambda row: row.latency or -1)
    assert index.start == filled.start == wanted[0].time


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(index_module, "MAX_NUMBER", asked(EXCHANGES[9])[1])
        index = indexed(EXCHANGES)
        assert index.is_full
        assert 0 < len(index) < len(EXCHANGES)
    monkeypatch.setattr(index_module, "MAX_EXCHANGES", 5)
    monkeypatch.setattr(index_module, "MAX_WORDS", 3)
    index = indexed(EXCHANGES)
    assert len(index) == 5
    assert index.is_full
    assert {row.client for row in rows_of(index)} == {"…"}


MAKE = {"time": time_bins, "latency_ms": latency_bins}


@pytest.mark.parametrize("most", one_in(2, [1, 2, 7, 1000, 80]))
@pytest.mark.parametrize("field", ["time", "latency_ms"])
def test_a_range_selects_what_it_counts(field: str, most: int) -> None:
    reading = capture("java-errors")
    brush = MAKE[field](fill(reading), most)
    bins = brush.bins
    assert 0 < len(bins) <= most
    assert sum(one.exchanges for one in bins) == 49
    assert all(one.high == after.low for one, after in pairwise(bins))
    assert bins[0].exchanges > 0
    assert bins[-1].exchanges > 0
    for first, last in {(0, len(bins) - 1), (0, len(bins) // 2), (len(bins) // 2, len(bins) - 1)}:
        wanted = sum(one.exchanges for one in bins[first : last + 1])
        assert len(fill(reading, brush.expression(first, last))) == wanted


NAMES = ("java-transactions", "librdkafka-snaplen-128", "java-group-share", "java-errors")


def comparable(index: ExchangeIndex) -> dict[tuple[int, int], dict[str, Any]]:
    found = {}
    for row in rows_of(index):
        # Numbers of exchanges, packets and connections are not in exports, times only in microseconds.
        shown = row._replace(number=None, packet=None, connection=0, problems=min(row.problems, 1))
        if shown.latency is not None:
            shown = shown._replace(latency=shown.latency // 1000)
        found[row.connection_id, row.exchange_id] = shown._asdict()
    return found


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_rows_are_those_of_the_capture(name: str) -> None:
    index = fill(exported(name, "--records")[0])
    assert index.is_complete
    # Names that are learnt later are known in an export.
    plain = comparable(fill(capture(name)))
    named = comparable(fill(capture(name), "has api or not has api"))
    found = comparable(index)
    assert found.keys() == plain.keys()
    for key, row in found.items():
        wanted = named[key] | {name: row[name] for name in ("subject", "others") if plain[key][name] == row[name]}
        if not plain[key]["subject"]:
            wanted |= {name: row[name] for name in ("subject", "others")}
        assert row == wanted


@pytest.mark.parametrize("name", one_in(3, ["java-transactions", "java-errors", "java-group-share"]))
def test_an_exchange_is_that_of_the_capture(name: str) -> None:
    reading, _ = exported(name, "--records")
    index = fill(reading)
    captured = capture(name)
    known = fill(captured)
    rows = {(row.connection_id, row.exchange_id): row for row in rows_of(known)}
    for row in rows_of(index)[::5]:
        found = reading.look(index, row, stopped=never)
        wanted = captured.look(known, rows[row.connection_id, row.exchange_id], stopped=never)
        for one, other in ((found.request, wanted.request), (found.response, wanted.response)):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                for field in ("size", "api", "api_version", "client", "broker", "correlation_id"):
                    assert getattr(one, field) == getattr(other, field)
                assert one.errors == other.errors
                assert (one.body or {}).keys() >= (other.body or {}).keys()
        assert {of.expression for of in followed(wanted)} <= {of.expression for of in followed(found)}
    assert reading.look(index, index.row(0), stopped=lambda: True) is None
    assert reading.look(index, index.row(0)._replace(exchange_id=77_777), stopped=never) is None
    stopped = ExchangeIndex()
    reading.fill(stopped, None, stopped=lambda: True, progress=lambda *_: None)
    assert len(stopped) == 0


def test_filters_of_exports() -> None:
    for expression in (
        'api == "Fetch"', 'error == "UNKNOWN_TOPIC_OR_PARTITION"', "latency_ms > 2", 'topic == "errors"', "has error"
    ):  # fmt: skip
        index, wanted = fill(exported("java-errors")[0], expression), fill(capture("java-errors"), expression)
        assert 0 < len(index) < 49
        assert comparable(index).keys() == comparable(wanted).keys(), expression


CAPTURE = ROOT / "captures" / "java-errors.pcap"


class _Appended(GrowingCapture):
    ended = False

    @property
    def is_over(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True


def test_a_file_is_followed_to_its_end(tmp_path: Path) -> None:
    data, path = CAPTURE.read_bytes(), tmp_path / "grown.pcap"
    path.write_bytes(data[:20_001])
    capture = _Appended(path)
    reading = CaptureReading((str(path),), dict, None, capture)
    # What is there so far, although it ends within a packet.
    some = fill(reading)
    assert 0 < len(some) < 49
    index = ExchangeIndex()
    seen = []

    def progress(_read: int, _total: int | None) -> None:
        seen.append(len(index))
        if len(seen) == 1:
            with path.open("ab") as file:
                file.write(data[20_001:])
            capture.ended = True

    assert reading.fill(index, None, stopped=never, progress=progress, follow=True) is False
    assert 0 < seen[0] < len(index) == 49
    assert capture.state == ""
    assert reading.look(index, index.row(48), stopped=never) is not None


@pytest.mark.parametrize("suffix", ["", "gz"])
def test_a_pipe(suffix: str) -> None:
    data = CAPTURE.read_bytes()
    pipe = CopiedPipe(io.BytesIO(gzip.compress(data) if suffix else data))
    folder = pipe.path.parent
    assert folder.stat().st_mode & 0o777 == 0o700
    reading = CaptureReading((str(pipe.path),), dict, None, pipe)
    index = ExchangeIndex()
    reading.fill(index, None, stopped=never, progress=lambda *_: None, follow=True)
    assert len(index) == 49
    assert pipe.is_over
    pipe.close()
    assert not folder.exists()


def test_a_pipe_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROWN", 20_000)
    pipe = CopiedPipe(io.BytesIO(CAPTURE.read_bytes()))
    pipe._thread.join(60)
    assert pipe.path.stat().st_size == 20_000
    assert pipe.is_full
    assert "nothing further is read" in pipe.state
    pipe.close()
