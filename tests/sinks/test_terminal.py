"""Lines of text on terminals: they fit, nothing is lost, and columns stay where they are."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.sinks.terminal import MAX_LINE, MIN_SUMMARY, TerminalOutput, folded
from kafkasniff.text.printable import display_width
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CAPTURE = ROOT / "captures" / "java-group-consumer.pcap"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
HEAD = "07:10:32.807741  127.0.0.1:54992 → 127.0.0.1:32925  Produce v13  #9  corr 5  "
WORDS = st.text("ab→Ü漢:, ", max_size=60)


def words(text: str) -> str:
    """The text without spaces, line ends and colours."""
    return COLOUR.sub("", "".join(text.split()))


@given(
    st.sampled_from(["", HEAD, " " * 17, " " * 6, "    \x1b[2mname\x1b[0m: "]), st.lists(WORDS), st.integers(20, 200)
)
def test_pieces_fit_and_have_all_words(head: str, parts: list[str], width: int) -> None:
    line = head + "  ".join(parts)
    pieces = list(folded(line, width))
    assert words("".join(pieces)) == words(line)
    assert all(display_width(COLOUR.sub("", piece)) <= width for piece in pieces)


@pytest.mark.parametrize("width", [80, 120, len(HEAD) + 90])
def test_a_line_that_fits_stays(width: int) -> None:
    line = HEAD[: width - 3] + "漢x"
    assert list(folded(line, width)) == [line]


def test_a_summary_with_room_goes_on_below_itself() -> None:
    width = len(HEAD) + MIN_SUMMARY
    assert list(folded(HEAD + "one two three one two three one two three one two three", width)) == [
        HEAD + "one two three one two three one two",
        " " * len(HEAD) + "three one two three",
    ]


def test_a_summary_without_room_goes_on_below_the_ends() -> None:
    first, second = folded(HEAD + "  client      one two three", len(HEAD) + 8)
    assert first == HEAD + "  client"
    assert second == " " * 17 + "one two three"


def test_empty_columns_take_no_room_below_a_line() -> None:
    *_, second = folded(HEAD + " " * 30 + "client         words", len(HEAD) + 8)
    assert second == " " * 17 + "client  words"


def test_lines_of_a_body_go_on_deeper_than_they_begin() -> None:
    assert list(folded("  name: one two three", 16)) == ["  name: one two", "      three"]


def test_colours_stay_where_they_are() -> None:
    first, second = folded(HEAD + "\x1b[31mERROR_NAME\x1b[0m word word", len(HEAD) - 1)
    assert COLOUR.sub("", first).rstrip() == HEAD.rstrip()
    assert words(second) == "ERROR_NAMEwordword"
    assert COLOUR.findall(first + second) == ["\x1b[31m", "\x1b[0m"]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("options", [(), ("-v",)])
def test_a_listing_fits_and_says_what_a_file_has(width: int, options: tuple[str, ...]) -> None:
    listing = kafkasniff("decode", "-q", *options, CAPTURE, stdout_tty=True, width=width, environ={"NO_COLOR": "1"})
    assert max(map(display_width, listing.text.splitlines())) <= width
    if not options:  # bodies choose their lines by the width
        assert words(listing.text) == words(kafkasniff("decode", "-q", CAPTURE).text)


def test_columns_of_a_wide_listing_do_not_move() -> None:
    listing = kafkasniff("decode", "-q", CAPTURE, stdout_tty=True, width=200, environ={"NO_COLOR": "1"}).text
    places = {line.index(" #") for line in listing.splitlines() if " #" in line}
    assert len(places) == 1


def test_a_piece_of_payload_is_not_folded() -> None:
    stream = io.BytesIO()
    piece = b"x" * (MAX_LINE + 1)
    TerminalOutput(stream, 80, "utf-8").write(piece + b"\n" + b"y" * 81)
    assert stream.getvalue().splitlines() == [piece, b"y" * 80, b"    y"]
