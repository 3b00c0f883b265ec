"""The memory that the kernel reads for trees. `tests/sinks/test_native_trees.py` compares the trees."""

from __future__ import annotations

import ctypes

from kafkasniff.native.caller import Caller
from kafkasniff.native.trees import FIRST_ENUM, MAX_ENUMS, PAGE, Colours, EnumName, TreeStyle
from kafkasniff.text.printable import shown_characters
from tests.native.kernel_and_walker import the_kernel


def _style() -> TreeStyle:
    return TreeStyle(Colours(b"<", b"(", b"", b">"), 80, shown_characters, Caller(the_kernel()))


def test_enums_have_roles_in_turn() -> None:
    style = _style()
    assert style.add_enum([EnumName(1, b"ONE"), EnumName(b"x", b"X")]) == FIRST_ENUM
    assert style.add_enum([]) == FIRST_ENUM + 1
    values, count = (ctypes.c_uint64 * 2).from_address(style._enums.ctypes.data)
    assert count == 2
    numbers = (ctypes.c_int64 * 10).from_address(values)
    assert (numbers[0], numbers[1], ctypes.string_at(numbers[3], numbers[4])) == (1, 0, b"ONE")
    assert (ctypes.string_at(numbers[6], numbers[7]), ctypes.string_at(numbers[8], numbers[9])) == (b"x", b"X")


def test_there_are_only_so_many_enums() -> None:
    style = _style()
    assert [style.add_enum([]) for _ in range(MAX_ENUMS)][-1] == FIRST_ENUM + MAX_ENUMS - 1
    assert style.add_enum([]) is None


def test_pages_of_characters() -> None:
    style = _style()
    style.add_page(0x4E00 // PAGE)
    style.add_page(0)
    wide, ascii_ = (ctypes.string_at(int(style._pages[number]), PAGE) for number in (0x4E00 // PAGE, 0))
    assert set(wide) == {2}
    assert (ascii_[ord("a")], ascii_[ord("\\")], ascii_[0x1B], ascii_[0xAD]) == (1, 0, 0, 0)
    assert shown_characters(0x300)[0] == 3
