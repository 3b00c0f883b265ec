"""The explorer in a terminal of its own: of a pipe, and of an interface."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff import read
from tests.browse.test_serving import children, is_gone, soon
from tests.choice import in_turn
from tests.cli.real_live import STAYS, exchange
from tests.cli.terminal import terminal
from tests.conftest import ROOT

pytestmark = pytest.mark.extended
CAPTURE = ROOT / "captures" / "java-errors.pcap"
KAFKASNIFF = f"{shlex.quote(sys.executable)} -m kafkasniff"


def environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TERM": "xterm-256color", "XDG_CONFIG_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}


def test_a_pipe_is_browsed_and_keys_come_from_the_terminal(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    # The pipe stays open until somebody has written to `held`.
    command = f"(cat {shlex.quote(str(CAPTURE))} {shlex.quote(str(held))}) | {KAFKASNIFF} browse -"
    with terminal("sh", "-c", command, environ=environ(tmp_path)) as screen:
        screen.until(b"/49")
        screen.press(b"ls")
        screen.until("API↑".encode())
        screen.press(b"hsG\r")
        screen.until(b"isolation_level")
        if sys.platform == "linux":
            # With pandas and Arrow's data sets, it would need 50 MB more.
            mapped = [Path(f"/proc/{one}/maps").read_text() for one in children(screen.pid)]
            assert any("libarrow.so" in one for one in mapped)
            assert not any("/pyarrow/_dataset" in one or "/pandas/" in one for one in mapped)
        [folder] = tmp_path.glob("kafkasniff-*")
        screen.press(b"q")
        screen.until(b"\x1b[?1049l")
        held.write_bytes(b"")
        assert screen.exit_code() == 0
        assert not folder.exists()


TERMINALS = ("dumb", "screen-256color", "linux", "xterm-16color", "", "xterm-256color NO_COLOR", "linux NO_COLOR")
"""Values of TERM. The explorer needs no terminfo entry for them."""
ENDS = ("q", "\x03", "SIGTERM", "SIGHUP")
RESTORED = {
    b"\x1b[?1049l": "its screen",
    b"\x1b[?25h": "the cursor",
    b"\x1b[?1000l": "the mouse",
    b"\x1b[?2004l": "paste",
}
COLOUR = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


@pytest.mark.parametrize(("kind", "end"), in_turn(TERMINALS, ENDS, 4, with_all=4))
def test_terminals_of_all_kinds_are_left_as_they_were(kind: str, end: str, tmp_path: Path) -> None:
    name, _, no_color = kind.partition(" ")
    given = {**environ(tmp_path), "TERM": name, **({no_color: "1"} if no_color else {})}
    given.pop("COLORTERM", None)
    with terminal(sys.executable, "-m", "kafkasniff", "browse", str(CAPTURE), environ=given) as screen:
        before = screen.modes
        screen.until(b"/49")
        screen.press(b"G")
        screen.until(b"49/49")
        screen.press(b"\r")
        screen.until("▼".encode())
        screen.press(b"x")
        screen.until(b"0000  ")
        assert screen.modes != before
        begun = len(screen.shown)
        if len(end) == 1:
            screen.press(end.encode())
        else:
            os.kill(screen.pid, signal.Signals[end])
        assert screen.exit_code() == 0
        assert [what for code, what in RESTORED.items() if code not in screen.shown[begun:]] == []
        assert screen.modes == before
        colours = {*COLOUR.findall(screen.shown)}
        assert bool(colours) != bool(no_color), colours


def test_the_explorer_ends_when_its_terminal_is_gone(tmp_path: Path) -> None:
    command = f"(cat {shlex.quote(str(CAPTURE))}; sleep 60) | exec {KAFKASNIFF} browse -"
    with terminal("sh", "-c", command, environ=environ(tmp_path)) as screen:
        screen.until(b"/49")
        screen.press(b"\r")
        screen.until("▼".encode())
        own = children(screen.pid)
        [folder] = tmp_path.glob("kafkasniff-*")
        screen.hang_up()
        soon(lambda: all(map(is_gone, own)))
        assert not folder.exists()


@pytest.mark.root
@pytest.mark.parametrize("kept", [False, True])
def test_an_interface_is_browsed(kept: bool, require_root: Callable[[], None], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        written = tmp_path / "kept.pcapng"
        options = [*STAYS, "-i", "lo", *(["-w", str(written)] if kept else [])]
        command = shlex.join([sys.executable, "-m", "kafkasniff", "live", "--browse", *options, f"tcp port {port}"])
        with terminal("sh", "-c", command, environ=environ(tmp_path)) as screen:
            screen.until(b"live, ")
            with socket.create_connection(server.getsockname()) as client, server.accept()[0] as broker:
                for number in range(3):
                    exchange(client, broker, number)
                screen.until(b"1/3")
                screen.press(b"G")
                screen.until(b"3/3")
                # The list stays as it is while it is paused.
                screen.press(b"z")
                screen.until(b"paused")
                exchange(client, broker, 4)
                screen.press(b"\r")
                screen.until(b"topic_data")
                screen.press(b"z")
                # At its end, the list is followed.
                screen.until(b"4/4")
                screen.press(b"q")
                screen.until(b"\x1b[?1049l")
                assert screen.exit_code() == 0
        assert not [*tmp_path.glob("kafkasniff-*")]
        if kept:
            assert [one.request.correlation_id for one in read(written) if one.request] == [0, 1, 2, 4]


CYCLES = """
import gc
from kafkasniff.cli.running.browsing import collect_often

class Drawn:
    alive = most = 0

    def __init__(self):
        self.again = self
        Drawn.alive += 1
        Drawn.most = max(Drawn.most, Drawn.alive)

    def __del__(self):
        Drawn.alive -= 1

gc.set_threshold(400_000, 50, 100)
collect_often()
for _ in range(300_000):
    Drawn()
print(Drawn.most)
"""


def test_garbage_is_collected_often() -> None:
    done = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, check=True, text=True)
    assert int(done.stdout) < 60_000


@pytest.mark.root
def test_capturing_ends_with_an_explorer_that_is_killed(require_root: Callable[[], None], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kafkasniff", "live", "--browse", *STAYS, "-i", "lo", "tcp port 1"]
    with terminal(*command, environ=environ(tmp_path)) as screen:
        screen.until(b"live, ")
        [capturing] = children(screen.pid)
        assert b"kafkasniff\0live\0-q" in Path(f"/proc/{capturing}/cmdline").read_bytes()
        os.kill(screen.pid, signal.SIGKILL)
        # No packets arrive.
        soon(lambda: is_gone(capturing))
        [folder] = tmp_path.glob("kafkasniff-*")
        assert [one.name for one in folder.iterdir()] == ["live.pcapng"]
