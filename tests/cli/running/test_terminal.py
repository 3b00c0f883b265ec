from __future__ import annotations

import os
import pty
import termios
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.cli.running.top import Keyboard, keys_of


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"12+ ", ["1", "2", "+", " "]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[C\x1b[D\x1b[Z\t", ["right", "left", "backtab", "tab"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F", ["pageup", "pagedown", "home", "end"]),
        (b"\r\n", ["enter", "enter"]),
        (b"\x1b", ["escape"]),
        (b"\x1bq", ["escape", "q"]),
        (b"\x7f\x08", ["backspace", "backspace"]),
        (b"\x1b[1;5Aq", ["q"]),  # Ctrl-Up is not bound, and its last byte is not a key
        (b"\x1b[", []),
        (b"\xc3\xa9\x00\x01", []),
        (b"", []),
    ],
)
def test_keys(data: bytes, keys: list[str]) -> None:
    assert keys_of(data) == keys


@given(st.binary(max_size=40))
def test_any_bytes_are_read_as_keys(data: bytes) -> None:
    assert all(key and key.isprintable() for key in keys_of(data))
    assert len(keys_of(data)) <= len(data)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """(the person's side of the terminal, the program's side)"""
    ends = pty.openpty()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def test_keys_arrive_at_once_and_without_echo(terminal: tuple[int, int]) -> None:
    person, program = terminal
    before = termios.tcgetattr(program)
    with Keyboard(program) as keyboard:
        flags = termios.tcgetattr(program)[3]
        assert not flags & (termios.ECHO | termios.ICANON)
        assert flags & termios.ISIG, "Ctrl-C interrupts"
        os.write(person, b"s\x1b[A")
        assert keyboard.read() == ["s", "up"]
        os.write(person, b"\x1a\x1cq")  # Ctrl-Z and Ctrl-\ do not suspend or quit
        assert keyboard.read() == ["q"]
        assert not keyboard.gone
    assert termios.tcgetattr(program) == before


def test_the_terminal_is_restored_after_a_failure(terminal: tuple[int, int]) -> None:
    before = termios.tcgetattr(terminal[1])
    with pytest.raises(ZeroDivisionError), Keyboard(terminal[1]):
        raise ZeroDivisionError
    assert termios.tcgetattr(terminal[1]) == before


def test_a_terminal_that_closes() -> None:
    person, program = pty.openpty()
    try:
        with Keyboard(program) as keyboard:
            os.close(person)
            assert keyboard.read() == []
            assert keyboard.gone
    finally:
        os.close(program)
