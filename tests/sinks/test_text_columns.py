"""Columns that grow: what is padded, what is cached, and until when."""

from __future__ import annotations

import pytest

from kafkasniff.model import Endpoint
from kafkasniff.sinks import text_columns
from kafkasniff.sinks.text_columns import NAME_WIDTH, EndsColumn, PaddedColumn
from kafkasniff.text.paint import COLOUR, PLAIN

CLIENT, BROKER = Endpoint("10.0.0.1", 50_000), Endpoint("10.0.0.2", 9092)
ARROWS = ("→", "←")


def test_texts_are_padded_to_the_widest_so_far() -> None:
    column = PaddedColumn(4)
    assert column.pad(1, "ab") == "ab  "
    assert column.ready == {1: "ab  "}
    assert column.pad(2, "abcdef") == "abcdef"
    assert column.ready == {2: "abcdef"}, "the first one would be too narrow now"
    assert column.pad(1, "ab") == "ab    "
    assert column.blank == " " * 6


def test_padding_has_no_colour() -> None:
    assert PaddedColumn(4).pad(1, "ab", "<", ">") == "<ab>  "


def test_width_is_that_of_the_terminal() -> None:
    assert PaddedColumn(6).pad(1, "日本") == "日本  "


def test_ends() -> None:
    column = EndsColumn({}, PLAIN, ARROWS)
    assert column.pad(1, CLIENT, BROKER)[2:] == (
        "10.0.0.1:50000 → 10.0.0.2:9092",
        "10.0.0.1:50000 ← 10.0.0.2:9092",
    )
    cleared = column.cleared
    short = Endpoint("10.0.0.1", 1), None
    assert column.pad(2, *short)[2] == "10.0.0.1:1 → ?" + " " * 16
    assert (column.cleared, set(column.ready)) == (cleared, {1, 2})
    assert column.pad(3, Endpoint("2001:db8::1", 50_000), BROKER)[2] == "[2001:db8::1]:50000 → 10.0.0.2:9092"
    assert (column.cleared, set(column.ready)) == (cleared + 1, {3})


def test_colours_are_those_of_the_direction() -> None:
    column = EndsColumn({}, COLOUR, (">", "<"))
    _, _, request, response = column.pad(1, CLIENT, BROKER)
    assert f"{COLOUR.request}>{COLOUR.reset}" in request
    assert f"{COLOUR.response}<{COLOUR.reset}" in response


def test_a_number_with_other_ends_shows_them() -> None:
    column = EndsColumn({}, PLAIN, ARROWS)
    first = column.pad(1, CLIENT, BROKER)
    assert column.pad(1, Endpoint("10.0.0.1", 50_000), BROKER) is first
    assert column.pad(1, BROKER, CLIENT)[2] == "10.0.0.2:9092 → 10.0.0.1:50000"


def test_names() -> None:
    names = {"10.0.0.1": "app", "10.0.0.2": "host", "10.0.0.2:9092": "kafka-1"}
    column = EndsColumn(names, PLAIN, ARROWS)
    assert column.pad(1, CLIENT, BROKER)[2] == "app:50000 → kafka-1:9092"
    assert column.pad(2, CLIENT, Endpoint("10.0.0.2", 9093))[2].rstrip() == "app:50000 → host:9093"
    names["10.0.0.9"] = "n" * 500
    assert column.pad(3, Endpoint("10.0.0.9", 1), None)[2] == f"{'n' * NAME_WIDTH}… +{500 - NAME_WIDTH}:1 → ?"


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_columns, "LINE_CACHE", 5)
    column, ends = PaddedColumn(4), EndsColumn({}, PLAIN, ARROWS)
    for number in range(50):
        column.pad(number, "a")
        ends.pad(number, CLIENT, BROKER)
        assert len(column.ready) <= 5
        assert len(ends.ready) <= 5
    assert ends.cleared >= 9
