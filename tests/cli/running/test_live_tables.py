"""Tables beside a live capture: their options, their batches, and what is printed at their end."""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkasniff.cli.environment import Interrupted
from kafkasniff.cli.options.export_options import TABLES
from kafkasniff.cli.options.filter_options import FilterOptions
from kafkasniff.cli.running.live_tables import MIN_EVERY_SECONDS, export_arguments, exported, finished
from kafkasniff.errors import UsageError
from kafkasniff.redact.payload import SHOWN
from kafkasniff.tables.exports.live import LiveExport
from kafkasniff.tcp.packets import PacketBatch
from tests.cli.console import environment

UNSET = {
    **{"directory": None, "every": None, "tables": None, "no_bodies": False, "no_json": False, "discard_state": False},
    **{"ports": (9092,), "max_frame": None, "show_secrets": False},
}


def arguments(options: dict[str, Any]) -> dict[str, Any] | None:
    def seconds(text: str | None) -> float | None:
        return None if text is None else float(text)

    return export_arguments(options, FilterOptions(), None, seconds, records=False, payload=SHOWN)


def test_without_a_folder_there_are_no_tables() -> None:
    options = dict(UNSET)
    assert arguments(options) is None
    assert options.keys() == {"ports", "max_frame", "show_secrets"}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"discard_state": True}, "--discard-state"),
        ({"every": "60"}, "--export-every"),
        ({"tables": "records"}, "--tables"),
        ({"no_bodies": True}, "--no-bodies"),
        ({"no_json": True}, "--no-json"),
    ],
)
def test_options_that_need_a_folder(given: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} needs --export DIR"):
        arguments({**UNSET, **given})


def test_all_tables_unless_some_are_named() -> None:
    found = arguments({**UNSET, "directory": "out"})
    assert found is not None
    assert (found["directory"], found["discard_state"]) == ("out", False)
    assert "every_seconds" not in found
    assert found["options"].tables == TABLES
    assert found["options"].ports == (9092,)
    assert found["options"].bodies
    named = arguments({**UNSET, "directory": "out", "tables": "problems,exchanges", "no_json": True})
    assert named is not None
    assert named["options"].tables == ("exchanges", "problems")
    assert not named["options"].bodies
    assert not named["options"].headers


def test_time_between_commits() -> None:
    found = arguments({**UNSET, "directory": "out", "every": str(MIN_EVERY_SECONDS)})
    assert found is not None
    assert found["every_seconds"] == MIN_EVERY_SECONDS
    with pytest.raises(UsageError, match="--export-every: at least 1 s"):
        arguments({**UNSET, "directory": "out", "every": "0.999"})


class Tables:
    """Takes batches, and closes with a result or an exception."""

    directory = "out"

    def __init__(self, error: BaseException | None = None) -> None:
        self.fed: list[object] = []
        self._error = error

    def feed(self, batch: object) -> None:
        self.fed.append(batch)

    def close(self) -> SimpleNamespace:
        if self._error is not None:
            raise self._error
        return SimpleNamespace(notices=("a partition has a problem",), rows={"exchanges": 1, "records": 1200})


def test_batches_are_added_before_they_are_passed_on() -> None:
    tables = Tables()
    made = cast("Iterator[PacketBatch]", iter(["one", "two"]))
    passed = exported(environment(), made, cast("LiveExport", tables))
    assert tables.fed == []
    assert cast("str", next(passed)) == "one"
    assert tables.fed == ["one"]
    assert list(cast("Iterator[str]", passed)) == ["two"]
    assert tables.fed == ["one", "two"]


def test_the_end() -> None:
    stderr = io.StringIO()
    assert finished(environment(stderr=stderr), cast("LiveExport", Tables())) == "1 exchange, 1,200 records in out"
    assert stderr.getvalue() == "kafkasniff: a partition has a problem\n"


def test_an_end_that_is_not_awaited() -> None:
    stderr = io.StringIO()
    interrupt = Interrupted(2, lambda _signum: None)
    with pytest.raises(Interrupted):
        finished(environment(stderr=stderr), cast("LiveExport", Tables(interrupt)))
    interrupt.accept()
    assert stderr.getvalue() == "kafkasniff: stopped immediately: out lacks the last rows\n"
