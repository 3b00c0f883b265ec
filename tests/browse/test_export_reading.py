"""Exports in the explorer: the same rows and bodies as from the capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.analysis.export import Export
from kafkasniff.browse.export_reading import ExportReading
from kafkasniff.browse.following import followed
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.errors import UsageError
from kafkasniff.filters.expression import parse_filter
from tests.browse.test_reading import fill, never
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT

NAMES = ("java-errors", "java-transactions", "java-group-share", "librdkafka-snaplen-128")


def capture(name: str) -> Path:
    return ROOT / "captures" / f"{name}.pcap"


def exported(name: str, folder: Path, *options: str) -> ExportReading:
    assert command("export", "-q", capture(name), "-o", folder / "export", *options).code == 0
    return ExportReading(Export.open(str(folder / "export")))


def rows(index: ExchangeIndex) -> dict[tuple[int, int], dict]:
    found = {}
    for place in range(len(index)):
        row = index.row(place)
        # Numbers of packets and connections are not in exports, times only in microseconds.
        shown = row._replace(packet=None, connection=0, problems=min(row.problems, 1))
        if shown.latency is not None:
            shown = shown._replace(latency=shown.latency // 1000)
        found[row.connection_id, row.exchange_id] = shown._asdict()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_the_capture(name: str, tmp_path: Path) -> None:
    index = fill(exported(name, tmp_path, "--records"))
    assert index.is_complete
    # Names that are learnt later are known in an export.
    reading = CaptureReading((str(capture(name)),), dict)
    plain = rows(fill(reading))
    named = rows(fill(reading, "has api or not has api"))
    found = rows(index)
    assert found.keys() == plain.keys()
    for key, row in found.items():
        wanted = named[key] | {name: row[name] for name in ("subject", "others") if plain[key][name] == row[name]}
        if not plain[key]["subject"]:
            wanted |= {name: row[name] for name in ("subject", "others")}
        assert row == wanted


@pytest.mark.parametrize("name", NAMES[:3])
def test_an_exchange_is_that_of_the_capture(name: str, tmp_path: Path) -> None:
    reading = exported(name, tmp_path, "--records")
    index = fill(reading)
    captured = CaptureReading((str(capture(name)),), dict)
    known = fill(captured)
    places = {(known.row(place).connection_id, known.row(place).exchange_id): place for place in range(len(known))}
    for place in range(0, len(index), 5):
        row = index.row(place)
        found = reading.look(index, row, stopped=never)
        wanted = captured.look(known, known.row(places[row.connection_id, row.exchange_id]), stopped=never)
        assert found is not None
        assert wanted is not None
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


@pytest.mark.parametrize(
    "expression",
    ['api == "Fetch"', 'error == "UNKNOWN_TOPIC_OR_PARTITION"', 'latency_ms > 2', 'topic == "errors"', "has error"],
)  # fmt: skip
def test_filters(expression: str, tmp_path: Path) -> None:
    index = fill(exported("java-errors", tmp_path), expression)
    wanted = fill(CaptureReading((str(capture("java-errors")),), dict), expression)
    assert 0 < len(index) < 49
    assert rows(index).keys() == rows(wanted).keys()


def test_filters_that_an_export_cannot_answer(tmp_path: Path) -> None:
    reading = exported("java-errors", tmp_path, "--no-json")
    assert len(fill(reading)) == 49
    assert {fill(reading).row(place).subject for place in range(49)} >= {"errors", "no-such-topic"}
    for expression in ("exchange == 3", 'api == "Fetch"'):
        with pytest.raises(UsageError):
            reading.fill(ExchangeIndex(), parse_filter(expression), stopped=never, progress=lambda *_: None)


def test_it_stops(tmp_path: Path) -> None:
    index = ExchangeIndex()
    exported("java-errors", tmp_path).fill(index, None, stopped=lambda: True, progress=lambda *_: None)
    assert len(index) == 0
