"""Columns of text are padded as lines leave, in pieces of any size."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.native import text_lines
from kafkasniff.native.library import kernel
from kafkasniff.native.text_lines import LAST, TextPadding, capture_mark, column_mark, day_mark
from tests.choice import examples

WIDTHS = {"ends": 0, "api": 3, "exchange": 4, "correlation": 7, "client": 8}
CAPTURES = ("", "capture a", "capture b.pcap")
MARK = re.compile("\x1f(?:([eaxrc])(..)|d(.{10})|f(.{4})|l)")

columns = st.tuples(st.sampled_from(sorted(WIDTHS)), st.integers(0, 40) | st.just(2000))
lines = st.tuples(
    st.integers(0, 2),
    st.sampled_from([None, "2026-11-21", "2026-11-22"]),
    st.lists(columns, max_size=5),
    st.sampled_from(["", "orders-0", "x" * 300, "a\n    below"]),
)


def marked(capture: int, day: str | None, cells: list[tuple[str, int]], summary: str) -> str:
    """A line as a sink writes it."""
    head = "".join(f"{'w' * min(width, 60)}{column_mark(name, width)}  " for name, width in cells)
    return f"{capture_mark(capture)}{day_mark(day)}12:00  {head}{summary}{'' if summary else LAST}\n"


def padded(text: str) -> str:
    """The same as it is shown: the specification."""
    widths = dict(zip("eaxrc", WIDTHS.values(), strict=True))
    capture, today, made, at = 0, "", "", 0

    def number(digits: str) -> int:
        return sum((ord(digit) - 0x40) << 5 * place for place, digit in enumerate(reversed(digits)))

    for mark in MARK.finditer(text):
        made, at = made + text[at : mark.start()], mark.end()
        column, width, day, of = mark.groups()
        if column:
            widths[column] = max(widths[column], number(width))
            made += " " * (widths[column] - number(width))
        elif day is not None:
            made += f"{day} UTC\n" if day.strip() and day != today else ""
            today = day if day.strip() else today
        elif of is not None:
            made += f"{CAPTURES[number(of)]}\n" if number(of) and number(of) != capture else ""
            capture = number(of)
        else:
            made = made.rstrip(" ")
    return made + text[at:]


@pytest.mark.parametrize("room", [64 << 10, 256 << 10])
@examples(60)
@given(some=st.lists(lines, max_size=12), at=st.integers(0, 12), blocks=st.integers(0, 400))
@example(some=[(1, None, [("client", 9)], ""), (1, "2026-11-21", [("client", 3)], "")], at=1, blocks=0)
def test_lines_are_padded_in_any_pieces(
    some: list[tuple[int, str | None, list[tuple[str, int]], str]], at: int, blocks: int, room: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "OUTPUT", room)
        padding = TextPadding(kernel(), (b"", b""), WIDTHS)
    for line in CAPTURES[1:]:
        padding.add_capture(line.encode())
    made = [marked(*one) for one in some]
    made.insert(at, f"{'y' * 500 * blocks}\n")
    first, rest = "".join(made[:at]), "".join(made[at:])
    shown = b"".join(bytes(padding.pad(part.encode())) for part in (first, rest))
    assert shown.decode() == padded(first + rest)
