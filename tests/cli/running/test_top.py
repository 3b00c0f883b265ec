"""The view of `--top` as a thread: what it shows and asks for, and how it leaves the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import re
import termios
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.running import top as module
from kafkasniff.cli.running.top import MAX_SAID, SNAPSHOT_SECONDS, TopView, require_terminal
from kafkasniff.errors import UsageError
from kafkasniff.live.snapshot import LiveRow, Snapshot
from tests.cli.console import environment
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


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        ({"stdin_tty": False, "stdout_tty": True}, "needs a terminal for keys and screen"),
        ({"stdin_tty": True, "stdout_tty": False}, "needs a terminal for keys and screen"),
        ({"stdin_tty": True, "stdout_tty": True, "environ": {"TERM": "dumb"}}, "TERM is dumb"),
    ],
)
def test_terminals_that_cannot_show_it(world: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        require_terminal(environment(**world))


def test_a_terminal_that_can_show_it() -> None:
    require_terminal(environment(stdin_tty=True, stdout_tty=True, environ={"TERM": "xterm"}))


def test_snapshots_are_shown(view: View, person: Person) -> None:
    with view.top:
        view.top.offer(snapshot("billing"), None)
        person.types("5")
        view.until(lambda: person.sees("billing"))
        person.seen = b""
        view.top.offer(snapshot("shipping"), None)
        view.until(lambda: person.sees("shipping"))


def test_snapshots_are_wanted_twice_a_second(view: View) -> None:
    with view.top:
        assert view.top.wants()
        view.top.offer(Snapshot(), None)
        assert not view.top.wants()
        view.advance(SNAPSHOT_SECONDS / 2)
        assert not view.top.wants()
        view.advance(SNAPSHOT_SECONDS / 2)
        assert view.top.wants()


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


def test_the_threshold_follows_the_keys(view: View, person: Person) -> None:
    before = view.top.threshold_ns
    with view.top:
        os.write(person.end, b"+")
        view.until(lambda: view.top.threshold_ns > before)
        os.write(person.end, b"--")
        view.until(lambda: view.top.threshold_ns < before)


def test_a_paused_view_does_not_change(view: View, person: Person) -> None:
    with view.top:
        view.top.offer(snapshot("billing"), None)
        os.write(person.end, b"5p")
        view.until(lambda: view.top._frozen is not None)
        view.top.offer(snapshot("shipping"), None)
        assert view.top._shown().connections_seen[0].name == "billing"
        os.write(person.end, b"p")
        view.until(lambda: person.sees("shipping"))


def test_it_is_drawn_four_times_a_second_at_most(view: View, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keys are pressed: the clock stands still."""
    drawn = []
    draw = TopView._draw

    def counted(top: TopView, live: object) -> None:
        drawn.append(view.now)
        draw(top, live)  # type: ignore[arg-type] # rich's screen is passed on

    monkeypatch.setattr(TopView, "_draw", counted)
    with view.top:
        person.waits_for("kafkasniff")
        for _ in range(5):
            os.write(person.end, b"+")
            view.top.offer(Snapshot(), None)
        view_threshold = view.top.threshold_ns
        deadline = time.monotonic() + PATIENCE
        while view.top.threshold_ns == view_threshold and time.monotonic() < deadline:
            time.sleep(0.01)
        assert drawn == [0.0]
        view.until(lambda: len(drawn) > 1)


@pytest.mark.parametrize("key", ["q", "Q"])
def test_the_person_quits(view: View, person: Person, key: str) -> None:
    with view.top:
        os.write(person.end, key.encode())
        assert view.stopped.wait(PATIENCE)
    assert termios.tcgetattr(person.program) == person.before


def test_the_terminal_hangs_up(view: View, person: Person) -> None:
    with view.top:
        view.top._keyboard.gone = True
        os.write(person.end, b"x")
        assert view.stopped.wait(PATIENCE)


def test_the_terminal_is_restored(view: View, person: Person) -> None:
    with view.top:
        person.waits_for_bytes(b"\x1b[?1049h")  # the alternate screen
        assert termios.tcgetattr(person.program) != person.before
    person.waits_for_bytes(b"\x1b[?1049l")
    assert termios.tcgetattr(person.program) == person.before
    # The thread has ended, and `stop` was called even if nobody quit.
    assert view.stopped.is_set()
    assert not view.top._thread.is_alive()


def test_messages_wait_until_the_terminal_is_restored(view: View) -> None:
    with view.top:
        for number in range(MAX_SAID + 5):
            view.environment.say(f"notice {number}")
        assert view.err.getvalue() == ""
    lines = view.err.getvalue().splitlines()
    assert len(lines) == MAX_SAID
    assert lines[-1].endswith(f"notice {MAX_SAID + 4}")
    assert view.environment.stderr is view.err


def test_an_error_of_the_view_is_raised_at_its_end(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    def screen(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "screen", screen)
    with pytest.raises(ZeroDivisionError), view.top:
        assert view.stopped.wait(PATIENCE)


def test_an_error_of_the_capture_takes_precedence(view: View, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def screen(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "screen", screen)

    def interrupted() -> None:
        assert view.stopped.wait(PATIENCE)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), view.top:
        interrupted()
    assert termios.tcgetattr(person.program) == person.before


def test_a_terminal_without_a_size(view: View, person: Person) -> None:
    """As on a serial line."""
    termios.tcsetwinsize(person.program, (0, 0))
    with view.top:
        person.waits_for("kafkasniff")
        assert (view.top._console.size.width, view.top._console.size.height) == module.UNKNOWN_SIZE


def test_a_terminal_that_was_resized(view: View, person: Person) -> None:
    with view.top:
        person.waits_for("kafkasniff")
        termios.tcsetwinsize(person.program, (30, 100))
        view.until(lambda: view.top._console.size.width == 100)
        assert re.search(r"\d", str(view.top._console.size.height)) is not None
