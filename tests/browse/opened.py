"""Captures and exports as the explorer reads them."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from kafkasniff.analysis.export import Export
from kafkasniff.browse.export_reading import ExportReading
from kafkasniff.browse.index import ExchangeIndex, Row
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.filters.expression import parse_filter
from kafkasniff.model import Exchange
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT


def path_of(name: str) -> Path:
    return ROOT / "captures" / f"{name}.pcap"


def capture(name: str) -> CaptureReading:
    return CaptureReading((str(path_of(name)),), dict)


@functools.cache
def _exports() -> tempfile.TemporaryDirectory[str]:
    """Removed at the end of the session."""
    return tempfile.TemporaryDirectory(prefix="kafkasniff-browse-")


@functools.cache
def exported(name: str, *options: str) -> tuple[ExportReading, str]:
    """The export of a capture, made once, and its folder."""
    folder = tempfile.mkdtemp(dir=_exports().name) + "/export"
    assert command("export", "-q", path_of(name), "-o", folder, *options).code == 0
    return ExportReading(Export.open(folder)), folder


def never() -> bool:
    return False


def fill(reading: CaptureReading | ExportReading, expression: str | None = None) -> ExchangeIndex:
    """The list of these exchanges; the capture is whole."""
    index = ExchangeIndex()
    predicate = None if expression is None else parse_filter(expression)
    assert reading.fill(index, predicate, stopped=never, progress=lambda _read, _total: None) is False
    return index


def rows_of(index: ExchangeIndex) -> list[Row]:
    return [index.row(place) for place in range(len(index))]


@functools.cache
def found(name: str, api: str, error: str = "") -> tuple[Exchange, Row]:
    """The first exchange of an API, with this error."""
    reading = capture(name)
    index = fill(reading)
    row = next(row for row in rows_of(index) if row.api.startswith(api) and error in row.error)
    exchange = reading.look(index, row, stopped=never)
    return exchange, row


def exchange_of(name: str, api: str, error: str = "") -> Exchange:
    return found(name, api, error)[0]
