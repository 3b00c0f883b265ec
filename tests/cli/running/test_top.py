"""The view of `--top` as a thread: what it shows and asks for, and how it leaves the terminal."""

from __future__ import annotations

import dataclasses
import io
import os
import termios
import threading
from collections.abc import Iterator

import pytest

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.running import top as module
from kafkasniff.cli.running.top import MAX_SAID, TopView
from tests.cli.person import PATIENCE, Person


@dataclasses.dataclass
class View:
    top: TopView
    environment: Environment
    err: io.StringIO
    stopped: threading.Event


@pytest.fixture
def view(person: Person) -> Iterator[View]:
    """The view in a person's terminal."""
    err, stopped = io.StringIO(), threading.Event()
    with (
        open(os.dup(person.program), "rb", buffering=0) as stdin,
        open(os.dup(person.program), "wb", buffering=0) as stdout,
    ):
        given = {"stdin": stdin, "stdout": stdout, "stderr": err, "environ": {"TERM": "xterm"}}
        world = Environment(stdin_tty=True, stdout_tty=True, **given)
        yield View(TopView(world, stopped.set), world, err, stopped)


def test_the_terminal_hangs_up(view: View, person: Person) -> None:
    with view.top:
        view.top._keyboard.gone = True
        os.write(person.end, b"x")
        assert view.stopped.wait(PATIENCE)


def test_messages_wait_until_the_terminal_is_restored(view: View) -> None:
    with view.top:
        for number in range(MAX_SAID + 5):
            view.environment.say(f"notice {number}")
        assert view.err.getvalue() == ""
    lines = view.err.getvalue().splitlines()
    assert len(lines) == MAX_SAID
    assert lines[-1].endswith(f"notice {MAX_SAID + 4}")
    assert view.environment.stderr is view.err


def test_a_terminal_without_a_size(view: View, person: Person) -> None:
    """As on a serial line."""
    termios.tcsetwinsize(person.program, (0, 0))
    with view.top:
        person.waits_for("kafkasniff")
        assert (view.top._console.size.width, view.top._console.size.height) == module.UNKNOWN_SIZE
