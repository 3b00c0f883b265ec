"""Captures that grow while they are looked at."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from kafkasniff.browse import growing as module
from kafkasniff.browse.growing import CopiedPipe, GrowingCapture, LiveCapture
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import CaptureReading
from tests.browse.opened import fill, never
from tests.conftest import ROOT

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
