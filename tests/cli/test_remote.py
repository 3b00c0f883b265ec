"""Packets from elsewhere: capture programs through pipes, and networks of containers.

The shell pipelines of docs/remote.md are run here as processes, without ssh and containers.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import pytest

from tests.capture.network import on_own_loopback
from tests.cli.real_live import exchange

pytestmark = pytest.mark.extended
PYTHON = [sys.executable, "-m", "kafkasniff"]
DECODE = [*PYTHON, "decode", "--format", "json", "-"]
PATIENCE = 60.0
"""Seconds for what comes at once on a machine that has nothing else to do."""


class Lines:
    """Lines of a process as they arrive, each within a time limit."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._found: queue.Queue[bytes | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._found.put(line)
        self._found.put(None)

    def next(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """Raises queue.Empty if no line arrives, EOFError at the end."""
        line = self._found.get(timeout=seconds)
        if line is None:
            raise EOFError
        found: dict[str, Any] = json.loads(line)
        return found

    def rest(self) -> Iterator[dict[str, Any]]:
        """All lines up to the end."""
        with contextlib.suppress(EOFError):
            while True:
                yield self.next()


class Talk:
    """A client and a broker on loopback."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
            self._client = socket.create_connection(("127.0.0.1", self.port))
            self._broker = server.accept()[0]
        self.count = 0

    def exchange_once(self) -> None:
        """One more exchange."""
        exchange(self._client, self._broker, self.count)
        self.count += 1

    def until_captured(self, lines: Lines) -> dict[str, Any]:
        """Exchange messages until the first line shows that the capture runs."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.exchange_once()
            with contextlib.suppress(queue.Empty):
                return lines.next(0.1)
        raise TimeoutError("nobody listens")

    def close(self) -> None:
        self._client.close()
        self._broker.close()


@contextlib.contextmanager
def pipeline(first: list[str], second: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with (
        subprocess.Popen(first, stdin=null, stdout=pipe, stderr=null, process_group=0) as source,
        subprocess.Popen(second, stdin=source.stdout, stdout=pipe, stderr=pipe, process_group=source.pid) as sink,
    ):
        # Only the second process keeps the pipe open, so that the first notices when it exits.
        source.stdout.close()
        try:
            yield source, sink
        finally:
            source.kill()
            sink.kill()


def writers(port: int) -> dict[str, list[str]]:
    """Programs that write captured packets to standard output: pcap, pcapng."""
    only = f"tcp port {port}"
    return {
        "tcpdump": ["-i", "lo", "-U", "-w", "-", only],
        "tcpdump at once": ["-i", "lo", "-U", "--immediate-mode", "-w", "-", only],
        "dumpcap": ["-q", "-i", "lo", "-f", only, "-w", "-"],
        "tshark": ["-q", "-i", "lo", "-f", only, "-w", "-"],
    }


@pytest.mark.root
@pytest.mark.parametrize("which", writers(0))
def test_lines_appear_while_the_capture_runs(
    which: str, require_root: Callable[[], None], require_tool: Callable[[str], str]
) -> None:
    """Every packet in the pipe is decoded at once; an interrupt ends the run with a summary."""
    require_root()
    check_lines_appear_while_the_capture_runs(require_tool(which.split(maxsplit=1)[0]), which)


@on_own_loopback
def check_lines_appear_while_the_capture_runs(program: str, which: str) -> None:
    talk = Talk()
    command = [program, *writers(talk.port)[which]]
    with contextlib.closing(talk), pipeline(command, DECODE) as (source, sink):
        lines = Lines(sink.stdout)
        found = [talk.until_captured(lines)]
        last = talk.count
        talk.exchange_once()
        while (found[-1]["type"], found[-1].get("correlation_id")) != ("response", last):
            found.append(lines.next())
        assert source.poll() is None, "the capture ended, so that nothing is proven"
        assert sink.poll() is None

        os.killpg(source.pid, signal.SIGINT)
        assert sink.wait(PATIENCE) == 130
        assert source.wait(PATIENCE) is not None
        said = sink.stderr.read().decode()
        found += lines.rest()
    assert "kafkasniff: interrupted: " in said
    # The capture may begin between a request and its response, whose bytes are then skipped.
    skipped = [one["kind"] for one in found if one["type"] == "problem"]
    assert skipped in ([], ["stream-resync"])
    found = [one for one in found if one["type"] != "problem"]
    assert f" {len(found)} messages, {len(skipped)} problem" in said
    assert "Traceback" not in said
    assert {(one["api"], one["api_version"], one["broker"]) for one in found} == {
        ("Produce", 9, f"127.0.0.1:{talk.port}")
    }
    # The capture began in the middle of the conversation; after that nothing is missing.
    spoken = [(one["type"], one["correlation_id"]) for one in found]
    first = spoken[0][1]
    assert spoken == [(kind, number) for number in range(first, last + 1) for kind in ("request", "response")]
