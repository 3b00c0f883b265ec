"""Objects made from options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.options import option_groups
from kafkasniff.cli.options.option_groups import (
    DEFAULT_WIDTH,
    OutputOptions,
    framing_arguments,
    inspector_arguments,
    key_arguments,
    make_catalog,
    make_settings,
    reads_twice,
    records_wanted,
    take_output,
)
from kafkasniff.cli.output import Output
from kafkasniff.errors import MissingExtraError, UsageError
from kafkasniff.filters.expression import parse_filter
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY
from tests.cli.console import environment

FRAMING: dict[str, Any] = {"ports": (9092,), "max_frame": None, "keylog": None, "memory": DEFAULT_MEMORY}
RECORDS = parse_filter('request.topic_data.partition_data.records.batches.records.value == "secret"')


def test_output_options_are_taken_from_the_others() -> None:
    options: dict[str, Any] = dict(OutputOptions._field_defaults)
    options |= {"form": "json", "ports": ()}
    assert take_output(options) == OutputOptions(form="json")
    assert options == {"ports": ()}


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


@pytest.mark.parametrize(
    ("options", "predicate", "reason"),
    [
        (OutputOptions(records=False), RECORDS, "--filter refers to records, which --no-records skips"),
        (OutputOptions(records=False, hex=1), None, "--hex shows records, which --no-records skips"),
        (OutputOptions(form="json", hex=1), None, "--hex needs text, not --format json"),
    ],
)
def test_options_that_exclude_each_other(options: OutputOptions, predicate: Any, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        records_wanted(options, predicate)
    assert str(error.value) == reason


def test_arguments_of_an_inspector() -> None:
    options = {**FRAMING, "show_secrets": True, "rest": 1}
    found = inspector_arguments(options, "batches", exchanges=True)
    assert found == {
        "records": "batches", "exchanges": True, "show_secrets": True, "ports": (9092,), "memory": DEFAULT_MEMORY,
    }  # fmt: skip
    assert options == {"rest": 1}
    assert framing_arguments({**FRAMING, "max_frame": 5}) == {"ports": (9092,), "max_frame": 5}


def test_a_key_log_needs_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "keys.log"
    path.write_bytes(b"")
    assert key_arguments(FRAMING) == {}
    assert list(key_arguments({**FRAMING, "keylog": str(path)})) == ["keys"]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kafkasniff\[tls\]'"):
        key_arguments({**FRAMING, "keylog": str(path)})


def test_names_of_topic_ids(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("\ufeffAAECAwQFBgcICQoLDA0ODw orders\n")
    catalog = make_catalog({"topic_ids": str(path)})
    assert catalog.topic("AAECAwQFBgcICQoLDA0ODw") == "orders"
    assert make_catalog({"topic_ids": None}).topic("AAECAwQFBgcICQoLDA0ODw") is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot read"),
        (b"ok\n\xff\xfe", ":2: not UTF-8"),
        (b"x" * 2_000, "is longer than 0 MiB"),
    ],
)
def test_files_of_topic_ids_that_cannot_be_read(
    content: bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(option_groups, "MAX_TOPIC_IDS", 1_000)
    path = tmp_path / "ids.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        make_catalog({"topic_ids": str(path)})
    assert reason in str(error.value)
    assert str(path) in str(error.value)


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
