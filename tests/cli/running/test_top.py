"""The view of `--top` as a thread: what it shows and asks for, and how it leaves the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import termios
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.running import top as module
from kafkasniff.cli.running.top import MAX_SAID, TopView
from kafkasniff.live.snapshot import LiveRow, Snapshot
from tests.cli.person import PATIENCE, Person


class View:
    """A view in a person's terminal, whose clock the test advances."""

    def __init__(self, person: Person) -> None:
        self.now = 0.0
        self.stopped = threading.Event()
        self.err = io.StringIO()
        self._files = contextlib.ExitStack()
        stdin, stdout = (
            self._files.enter_context(os.fdopen(os.dup(person.program), mode, buffering=0)) for mode in ("rb", "wb")
        )
        self.environment = Environment(
            stdin=stdin,
            stdout=stdout,
            stderr=self.err,
            stdin_tty=True,
            stdout_tty=True,
            environ={"TERM": "xterm"},
            clock=lambda: self.now,
        )
        self.top = TopView(self.environment, self.stopped.set)

    def close(self) -> None:
        self._files.close()

    def advance(self, seconds: float = 1.0) -> None:
        self.now += seconds

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            self.advance()
            time.sleep(0.01)


@pytest.fixture
def view(person: Person) -> Iterator[View]:
    found = View(person)
    try:
        yield found
    finally:
        found.close()


def snapshot(name: str, connection: int = 7) -> Snapshot:
    row = LiveRow(name, client="10.0.0.5:5000", broker="10.0.0.9:9092", connection=connection, requests=5.0)
    return Snapshot(connections_seen=(row,))


def test_details_are_wanted_at_once(view: View, person: Person) -> None:
    """For the connection that the person selects, without waiting for the next snapshot."""
    with view.top:
        view.top.offer(snapshot("billing"), None)
        assert view.top.focus is None
        os.write(person.end, b"5\r")
        view.until(lambda: view.top.focus == 7)
        view.top.offer(snapshot("billing"), None)
        assert view.top.wants()
        view.top.offer(snapshot("billing"), 7)
        assert not view.top.wants()


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
