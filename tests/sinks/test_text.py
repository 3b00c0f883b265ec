"""Lines of text fit terminals; `test_events.py` has their content."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.sinks.lines import folded
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
@example("", ["漢" * 40], 20)
def test_pieces_fit_and_have_all_words(head: str, parts: list[str], width: int) -> None:
    line = head + "  ".join(parts)
    pieces = list(folded(line, width))
    assert words("".join(pieces)) == words(line)
    assert all(display_width(COLOUR.sub("", piece)) <= width for piece in pieces)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("options", [(), ("-v",)])
def test_a_listing_fits_and_says_what_a_file_has(width: int, options: tuple[str, ...]) -> None:
    listing = kafkasniff("decode", "-q", *options, CAPTURE, stdout_tty=True, width=width, environ={"NO_COLOR": "1"})
    assert max(map(display_width, listing.text.splitlines())) <= width
    if not options:  # bodies choose their lines by the width
        assert words(listing.text) == words(kafkasniff("decode", "-q", CAPTURE).text)
