"""Filling the index, and reading one exchange again."""

from __future__ import annotations

import gzip
import io
import threading
from pathlib import Path

import pytest

import kafkasniff
from kafkasniff.browse import reading as module
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import CaptureReading, CopiedPipe, GrowingCapture, LiveCapture, unseen
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.model import Message
from tests.browse.opened import capture, fill, never, path_of, rows_of
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


def test_it_stops() -> None:
    reading, index = capture("java-errors"), ExchangeIndex()
    reading.fill(index, None, stopped=lambda: True, progress=unseen)
    assert len(index) == 0
    whole = fill(reading)
    assert reading.look(whole, whole.row(0), stopped=lambda: True) is None


def test_broken_and_changed_captures(tmp_path: Path) -> None:
    data = path_of("java-errors").read_bytes()
    path = tmp_path / "cut.pcap"
    path.write_bytes(data[:20_001])
    reading, index = CaptureReading((str(path),), dict), ExchangeIndex()
    assert reading.fill(index, None, stopped=never, progress=unseen) is True
    row = index.row(len(index) - 1)
    path.write_bytes(data[:1000])
    assert reading.look(index, row, stopped=never) is None


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
    found = reading.look(index, index.row(48), stopped=never)
    assert found is not None


def test_following_stops(tmp_path: Path) -> None:
    path = tmp_path / "grown.pcap"
    path.write_bytes(CAPTURE.read_bytes())
    capture = _Appended(path)
    reading = CaptureReading((str(path),), dict, None, capture)
    index, stop = ExchangeIndex(), threading.Event()
    options = {"stopped": stop.is_set, "progress": lambda *_: None, "follow": True}
    thread = threading.Thread(target=reading.fill, args=(index, None), kwargs=options)
    thread.start()
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert capture.state.startswith("live, ")


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


@pytest.mark.extended
def test_a_live_capture_is_bounded_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROWN", 10_000)
    path = tmp_path / "live.pcapng"
    script = (
        f"import sys, time; print('kafkasniff: 7 lost', file=sys.stderr); open({str(path)!r}, 'wb').write(b'x' * 20000)"
    )
    (tmp_path / "grows.py").write_text(f"{script}; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    capture = LiveCapture(["grows"], path, None)
    assert capture.begin()
    capture.watch()
    capture._process.wait(60)
    assert capture.is_full
    capture._threads[0].join(60)
    assert capture.said == "kafkasniff: 7 lost"
    assert capture.state.endswith("nothing further is read · 7 lost")
    capture.close()
    assert path.exists()


@pytest.mark.extended
def test_a_capture_that_cannot_begin(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    command = ["kafkasniff", "live", "-q", "-i", "no-such-interface", f"--write={folder}/x"]
    capture = LiveCapture(command, folder / "x", folder)
    assert not capture.begin()
    assert "no-such-interface" in capture.said
    assert capture.exit_code
    assert not folder.exists()
