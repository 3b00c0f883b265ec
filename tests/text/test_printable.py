from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.text.printable import KEPT_LENGTH, KEPT_WORDS, WORDS, display_width, printable, word

CONTROLS = [*range(0x20), 0x7F, *range(0x80, 0xA0)]
BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
INVISIBLE = [0x00AD, 0x034F, 0x115F, 0x1160, 0x180E, *range(0x200B, 0x2010), 0x2028, 0x2029, *range(0x2060, 0x2065)]
INVISIBLE += [0x2800, 0x3164, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF9, 0xFFFB, 0xE0001, 0xE0041, 0xE0100, 0xE01EF]


@pytest.mark.parametrize("code", CONTROLS + BIDI + INVISIBLE)
def test_what_a_terminal_would_act_on_or_hide_is_escaped(code: int) -> None:
    shown = printable(f"a{chr(code)}b")
    assert shown.startswith("a\\")
    assert shown.endswith("b")
    assert shown.isprintable()
    # The escape is Python's, so it can be read back: nothing is lost.
    assert shown.encode("ascii").decode("unicode_escape") == f"a{chr(code)}b"


def test_every_character_that_passes_is_visible() -> None:
    dangerous = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) in dangerous:
            assert printable(character) != character, hex(code)


def test_escapes_markup_and_what_looks_like_an_escape() -> None:
    assert printable("\x1b[31mred\x1b[0m") == "\\x1b[31mred\\x1b[0m"
    # No markup is interpreted, so it stands as it came.
    assert printable("[bold]x[/bold]") == "[bold]x[/bold]"
    assert printable("\\x1b") == "\\\\x1b"
    assert printable("größe 數據") == "größe 數據"


def test_bytes_are_read_as_utf8_and_the_rest_is_escaped() -> None:
    assert printable("grün".encode() + b"\xff\x00") == "grün\\xff\\x00"


@given(st.text())
def test_the_result_is_always_printable_and_stays_unambiguous(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    if text.isascii():
        assert shown.encode("ascii").decode("unicode_escape") == text


@given(st.binary())
def test_bytes_never_fail(data: bytes) -> None:
    assert printable(data).isprintable()


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
    assert word(b"\xff" * 10, 24) == "\\xff" * 6 + "… +4"


@given(st.text(), st.integers(8, 64))
def test_no_word_takes_more_room_than_its_width(text: str, width: int) -> None:
    shown = word(text, width)
    # Two quotes, an escape in front of each quote inside, and the rest's number.
    assert len(shown) <= 2 * width + 2 + len(f"… +{len(text)}")
    assert shown.isprintable()


def test_width_of_wide_and_combining_characters() -> None:
    assert display_width("abc") == 3
    assert display_width("數據") == 4
    assert display_width("e\u0301") == 1


@given(st.text() | st.binary())
def test_ready_words_are_words(name: str | bytes) -> None:
    assert [WORDS[name], WORDS[name]] == [word(name), word(name)]


@pytest.mark.parametrize("value", [None, 5, {"redacted": 3}, ["a"], True])
def test_only_strings_have_ready_words(value: object) -> None:
    with pytest.raises(TypeError):
        WORDS[value]  # type: ignore[index]
    assert word(value) not in {"", '""'}


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
