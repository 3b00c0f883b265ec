"""Text that is safe for terminals, times, and lines that fit."""

from __future__ import annotations

import re
import sys
import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.text.printable import (
    KEPT_LENGTH,
    KEPT_WORDS,
    WORDS,
    display_width,
    printable,
    suggestion,
    word,
    wrapped,
)
from kafkasniff.text.times import clock_time, date_of, duration, milliseconds_date, rfc3339
from tests.choice import fewer

CONTROLS = [*range(0x20), 0x7F, *range(0x80, 0xA0)]
BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
INVISIBLE = [0x00AD, 0x034F, 0x115F, 0x1160, 0x180E, *range(0x200B, 0x2010), 0x2028, 0x2029, *range(0x2060, 0x2065)]
INVISIBLE += [0x2800, 0x3164, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF9, 0xFFFB, 0xE0001, 0xE0041, 0xE0100, 0xE01EF]


def test_what_a_terminal_would_act_on_or_hide_is_escaped() -> None:
    for text in map("a{:c}b".format, CONTROLS + BIDI + INVISIBLE):
        shown = printable(text)
        assert shown.startswith("a\\"), repr(text)
        assert shown.endswith("b")
        assert shown.isprintable()
        # The escape is Python's, so it can be read back: nothing is lost.
        assert shown.encode("ascii").decode("unicode_escape") == text


def test_every_character_that_passes_is_visible() -> None:
    dangerous = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    every = range(0, sys.maxunicode + 1, fewer(7, 1))
    characters = [one for one in map(chr, every) if unicodedata.category(one) in dangerous]
    for start in range(0, len(characters), 256):
        some = characters[start : start + 256]
        assert set(printable("".join(some))).isdisjoint(some), hex(ord(some[0]))


@given(st.text())
@example("[bold]x[/bold] \\x1b \x1b[31mred")
def test_the_result_is_always_printable_and_stays_unambiguous(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    if text.isascii():
        assert shown.encode("ascii").decode("unicode_escape") == text


def test_words_are_quoted_where_they_could_be_mistaken() -> None:
    assert word("orders") == "orders"
    assert word("two words") == '"two words"'
    assert word("a, acks all") == '"a, acks all"'
    assert word("") == '""'
    assert word('say "x"') == '"say \\"x\\""'
    assert word(None) == "null"
    assert word({"redacted": 7}) == "[7 bytes redacted]"
    assert word(42) == "42"


def test_long_words_are_cut_with_the_rest_reported() -> None:
    assert word("x" * 70, 64) == "x" * 64 + "… +6"
    assert printable("grün".encode() + b"\xff\x00") == "grün\\xff\\x00"
    assert word(b"\xff" * 10, 24) == "\\xff" * 6 + "… +4"


@given(st.text(), st.integers(8, 64))
def test_no_word_takes_more_room_than_its_width(text: str, width: int) -> None:
    assert [WORDS[text], WORDS[text]] == [word(text)] * 2
    shown = word(text, width)
    # Two quotes, an escape in front of each quote inside, and the rest's number.
    assert len(shown) <= 2 * width + 2 + len(f"… +{len(text)}")
    assert shown.isprintable()


def test_ready_words_are_bounded() -> None:
    for number in range(KEPT_WORDS + 10):
        assert WORDS[f"name-{number}"] == f"name-{number}"
    assert len(WORDS) <= KEPT_WORDS
    long = "x" * (KEPT_LENGTH + 1)
    assert word(long) == WORDS[long]
    assert long not in WORDS


@given(st.text(st.characters(max_codepoint=0x3FF) | st.sampled_from("\\\t\n\r\0\x7f\u200b\ufe0f"), max_size=30))
def test_whole_texts_are_escaped_as_their_characters_are(text: str) -> None:
    assert printable(text) == "".join(map(printable, text))


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.integers(-(2**62), 2**63 - 1))
def test_rfc3339_is_what_datetime_says(time_ns: int) -> None:
    seconds, rest = divmod(time_ns, 1_000_000_000)
    moment = EPOCH + timedelta(seconds=seconds)
    assert (
        rfc3339(time_ns) == moment.strftime("%4Y-%m-%dT%H:%M:%S").replace("%4Y", f"{moment.year:04}") + f".{rest:09}Z"
    )
    assert date_of(time_ns) == moment.date().isoformat()
    assert clock_time(time_ns) == moment.strftime("%H:%M:%S") + f".{rest // 1000:06}"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (1_234_000, "1.23 ms"),
        (9_994_999, "9.99 ms"),
        (9_995_000, "10.0 ms"),
        (502_000_000, "502 ms"),
        (999_500_000, "1.00 s"),
        (4_200_000_000, "4.20 s"),
        (99_960_000_000, "100 s"),
        (1_234_567_000_000_000, "1,234,567 s"),
        (-1_230_000, "-1.23 ms"),
    ],
)
def test_durations_have_three_digits_and_a_unit(ns: int, text: str) -> None:
    assert duration(ns) == text


def test_timestamps_of_the_protocol_that_are_no_times() -> None:
    assert milliseconds_date(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert milliseconds_date(-1) is None
    assert milliseconds_date(0) is None
    assert milliseconds_date(2**63 - 1) is None


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


NAMES = ("BrokerHeartbeat", "list_offsets", "broker-gone", "Produce")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("Prodce", "; did you mean Produce?"),
        ("PRODUCE", "; did you mean Produce?"),
        ("brokergone", "; did you mean broker-gone?"),
        ("ListOffset", "; did you mean list_offsets?"),
        ("brokerh", "; did you mean BrokerHeartbeat?"),
        ("gon", "; did you mean broker-gone?"),
        ("zzz", "; see the list"),
        ("", "; see the list"),
    ],
)
def test_the_closest_name_or_what_to_do(word: str, hint: str) -> None:
    assert suggestion(word, NAMES, "see the list") == hint
    assert suggestion(word, NAMES) == ("" if "see" in hint else hint)
