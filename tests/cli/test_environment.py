"""Signals in the middle of output, exit codes, colours, messages, and outputs that end."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkasniff.cli.environment import EXIT_CODES, EXIT_ORDER, Exit, Interrupted, Interrupts
from kafkasniff.cli.output import Output
from kafkasniff.errors import OutputError
from tests.cli.console import environment

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def handling() -> Iterator[Interrupts]:
    """Handlers of this test, with SIGHUP honoured as on a terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        interrupts = Interrupts()
        with interrupts.installed():
            yield interrupts
    finally:
        signal.signal(signal.SIGHUP, before)


def send(signum: int) -> None:
    signal.raise_signal(signum)


def interrupted(action: Callable[[Interrupts], object]) -> Interrupted:
    """The exception that ends an action."""
    with handling() as interrupts, pytest.raises(Interrupted) as raised:
        action(interrupts)
    raised.value.accept()
    return raised.value


def wait() -> None:
    """Long enough for any signal."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_interrupts(signum: int) -> None:
    found = interrupted(lambda _: send(signum))
    assert found.signum == signum
    assert found.code == 128 + signum


@pytest.mark.parametrize(("second", "waits"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGHUP, True)])
def test_a_second_signal_does_not_wait(second: int, waits: bool) -> None:
    """A block that hangs can be interrupted. A closing terminal and systemd send SIGHUP after another one."""
    finished = []

    def hang(interrupts: Interrupts) -> None:
        with interrupts.held():
            send(signal.SIGINT)
            send(second)
            finished.append(True)

    assert interrupted(hang).signum == (signal.SIGINT if waits else second)
    assert bool(finished) is waits


def test_the_first_signal_stops_a_run_without_an_end() -> None:
    stopped: list[bool] = []
    with handling() as interrupts, interrupts.stopping(lambda: stopped.append(True)):
        send(signal.SIGINT)
        assert stopped == [True]
        with pytest.raises(Interrupted) as raised:
            send(signal.SIGINT)
        raised.value.accept()
    with handling() as interrupts:
        with interrupts.stopping(lambda: stopped.append(True)):
            pass
        with pytest.raises(Interrupted) as raised:
            send(signal.SIGINT)
        raised.value.accept()
    assert stopped == [True]


class Loses:
    """Python drops exceptions in destructors."""

    def __del__(self) -> None:
        send(signal.SIGTERM)


def clear() -> None:
    """As an extension module does that clears every exception."""
    with contextlib.suppress(BaseException):
        send(signal.SIGTERM)


@pytest.mark.parametrize("lose", [Loses, clear])
def test_a_lost_exception_is_raised_again(lose: Callable[[], object]) -> None:
    def work(_: Interrupts) -> None:
        lose()
        wait()

    assert interrupted(work).signum == signal.SIGTERM


def test_an_accepted_exception_is_not_lost() -> None:
    lost: list[int] = []
    one = Interrupted(signal.SIGINT, lost.append)
    one.accept()
    del one
    assert lost == []
    Interrupted(signal.SIGINT, lost.append)
    assert lost == [signal.SIGINT]


def test_exit_codes_by_precedence() -> None:
    """Findings hide a damaged capture; an internal error hides everything."""
    order = list(Exit)
    assert order[0] == Exit.INTERNAL
    assert order[-1] == Exit.OK == 0
    assert order.index(Exit.FINDINGS) < order.index(Exit.BROKEN)
    assert len({int(code) for code in Exit}) == len(order)
    assert all(0 <= code < 256 for code in Exit)
    # What the help and the manual say about them.
    assert sorted(int(one) for codes, _ in EXIT_CODES for one in codes.split(", ")) == sorted(set(map(int, Exit)))
    assert sorted(map(int, re.findall(r"\d+", EXIT_ORDER))) == sorted(int(code) for code in Exit if code)


@pytest.mark.parametrize(
    ("wanted", "tty", "environ", "coloured"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {}, False),
    ],
)
def test_colours(wanted: str, tty: bool, environ: dict[str, str], coloured: bool) -> None:
    assert environment(stdout_tty=tty, environ=environ).colour(wanted) is coloured
    # Into a file only on request.
    to_file = environment(stdout_tty=tty, environ=environ).colour(wanted, to_stdout=False)
    assert to_file is (wanted == "always")


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file")])
def test_messages_that_nobody_reads(error: Exception) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise error

    environment(stderr=Closed()).say("anything")


def test_a_reader_that_closed_is_not_an_output_error() -> None:
    class Gone(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError), Output(environment(stdout=Gone())) as output:
        output.write(b"x")


def test_a_file_left_by_an_exception_is_reported_as_incomplete(tmp_path: Path) -> None:
    err, path = io.StringIO(), tmp_path / "out"

    def fail_midway() -> None:
        with Output(environment(stderr=err), str(path)) as output:
            output.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_midway()
    assert err.getvalue() == f"kafkasniff: {path} is incomplete\n"
    assert path.read_bytes() == b"half"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux only")
def test_a_disk_that_fills_up_at_the_last_moment() -> None:
    err = io.StringIO()
    with pytest.raises(OutputError, match="No space"), Output(environment(stderr=err), "/dev/full") as output:
        output.write(b"x")
    assert err.getvalue() == "kafkasniff: /dev/full is incomplete\n"
