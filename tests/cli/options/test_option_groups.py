"""Objects made from options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.options.option_groups import (
    DEFAULT_WIDTH,
    OutputOptions,
    make_settings,
    reads_twice,
    records_wanted,
)
from kafkasniff.cli.output import Output
from kafkasniff.errors import UsageError
from kafkasniff.filters.expression import parse_filter
from tests.cli.console import environment

RECORDS = parse_filter('request.topic_data.partition_data.records.batches.records.value == "secret"')


@pytest.mark.parametrize(
    ("options", "predicate", "shown", "wanted"),
    [
        (OutputOptions(), None, True, "metadata"),
        (OutputOptions(verbose=1), None, True, "metadata"),
        (OutputOptions(verbose=2), None, True, "full"),
        (OutputOptions(form="json"), None, True, "full"),
        (OutputOptions(form="json", records=False), None, True, "batches"),
        (OutputOptions(records=True), None, True, "full"),
        (OutputOptions(verbose=2), None, False, "metadata"),
        (OutputOptions(), RECORDS, False, "full"),
        (OutputOptions(hex=1), None, True, "full"),
    ],
)
def test_how_far_records_are_decoded(options: OutputOptions, predicate: Any, shown: bool, wanted: str) -> None:
    assert records_wanted(options, predicate, shown=shown) == wanted


def test_what_can_be_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(b"")
    file, pipe = (str(path),), (str(path), "-")
    assert [reads_twice(wanted, file) for wanted in (None, True, False)] == [True, True, False]
    assert [reads_twice(wanted, pipe) for wanted in (None, False)] == [False, False]
    with pytest.raises(UsageError, match="--two-pass: stdin can be read only once"):
        reads_twice(True, pipe)


@pytest.mark.parametrize(
    ("options", "verbosity"),
    [(OutputOptions(verbose=1), 1), (OutputOptions(verbose=1, records=True), 2), (OutputOptions(records=True), 0)],
)
def test_settings_of_a_sink(options: OutputOptions, verbosity: int) -> None:
    world = environment(width=50)
    with Output(world, None, inputs=()) as output:
        found = make_settings(world, output, options, captures=True)
    assert (found.verbosity, found.width, found.captures) == (verbosity, DEFAULT_WIDTH, True)
    assert (found.colour, found.terminal) == (False, False)
