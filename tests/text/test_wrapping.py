"""Lines of text that fit terminals."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.text.printable import display_width
from kafkasniff.text.wrapping import wrapped

PARTS = st.sampled_from(["a", "word", "orders-of-the-north", "注文", "é" * 9, "\x1b[1m", "\x1b[0m", " ", "  "])


@pytest.mark.parametrize(
    ("line", "width", "indent", "parts"),
    [
        ("one two three", 7, 0, ["one two", "three"]),
        ("  one two three", 9, 4, ["  one two", "      three"]),
        ("注文 注文 a", 5, 0, ["注文", "注文", "a"]),
        ("注文 注文 a", 9, 0, ["注文 注文", "a"]),
        ("\x1b[1mone\x1b[0m two", 3, 0, ["\x1b[1mone\x1b[0m", "two"]),
        ("a name-that-is-too-long b", 5, 0, ["a", "name-that-is-too-long", "b"]),
        ("one  two   ", 20, 4, ["one  two"]),
        ("", 5, 4, [""]),
    ],
)
def test_parts(line: str, width: int, indent: int, parts: list[str]) -> None:
    assert list(wrapped(line, width, indent)) == parts


@given(st.lists(PARTS, max_size=30).map("".join), st.integers(5, 40), st.integers(0, 4))
def test_only_a_single_word_is_wider(line: str, width: int, indent: int) -> None:
    parts = list(wrapped(line, width, indent))
    assert " ".join(parts).split() == line.split()
    for part in parts:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", part)
        assert display_width(plain) <= width or " " not in plain.strip()
