"""Exports in the explorer: the same rows and bodies as from the capture."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.browse.following import followed
from kafkasniff.browse.index import ExchangeIndex
from tests.browse.opened import capture, exported, fill, never, rows_of
from tests.choice import one_in

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
    stopped = ExchangeIndex()
    reading.fill(stopped, None, stopped=lambda: True, progress=lambda *_: None)
    assert len(stopped) == 0


def test_filters() -> None:
    for expression in (
        'api == "Fetch"', 'error == "UNKNOWN_TOPIC_OR_PARTITION"', "latency_ms > 2", 'topic == "errors"', "has error"
    ):  # fmt: skip
        index, wanted = fill(exported("java-errors")[0], expression), fill(capture("java-errors"), expression)
        assert 0 < len(index) < 49
        assert comparable(index).keys() == comparable(wanted).keys(), expression
