"""Where a recording plays: brokers that stop by themselves, one recorder, and a note on the origin."""

from __future__ import annotations

import datetime
import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..broker import RealBroker
from ..distribution import DEFAULT_VERSION, SetupError
from ..scenario import digest
from ..sniffer import Sniffer, SniffOptions

COMMAND = "python -m captures.record.faults"
LARGEST_BYTES = 300_000
CLIENT_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A capture to record: its file name, what it shows, and the function that plays it."""

    file: str
    shows: str
    """What happened: the known cause, not what the capture shows."""
    play: Callable[[Stage], None]
    looks_like: str = ""
    """File name of the recording of trouble that this one only looks like."""
    sniff: SniffOptions = field(default_factory=SniffOptions)
    version: str = DEFAULT_VERSION
    """Release of brokers whose release does not matter to the function."""


class Stage:
    """Passed to the function that plays a recording. What it starts is stopped at the end, the last one first."""

    def __init__(self, fault: Fault, work: Path, stack: ExitStack) -> None:
        self.work = work
        """Empty folder for the files of clients and brokers; deleted afterwards."""
        self.capture = work / fault.file
        self.clients: list[str] = []
        """Names and versions of the clients, for the note on the origin."""
        self.brokers: list[RealBroker] = []
        self._fault = fault
        self._stack = stack

    def broker(self, start: bool = True, **options: Any) -> RealBroker:
        """A broker (options as of ``RealBroker``), started unless ``start`` is false."""
        number = len(self.brokers) + 1
        broker = RealBroker(
            self.work / f"broker-{number}", **{"node_id": number, "version": self._fault.version, **options}
        )
        broker.choose_ports()
        self.brokers.append(broker)
        self._stack.callback(broker.stop)
        if start:
            broker.start()
        return broker

    def recording(self, *ports: int, within: Sequence[str] = ()) -> AbstractContextManager[Sniffer]:
        """Packets from and to these ports are recorded in the ``with`` block; once per recording.

        ``within`` precedes the sniffer's command, to record in another network namespace.
        """
        return Sniffer(self.capture, list(ports), self._fault.sniff, within)

    def run(self, command: Sequence[str], *, fails: bool = False, timeout: float = CLIENT_TIMEOUT_S) -> str:
        """Run a client to its end; returns its stdout. Raises ``SetupError`` if it fails and must not."""
        done = subprocess.run(
            list(command),
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0 and not fails:
            raise SetupError(f"the client ended with {done.returncode}: {done.stderr[-1500:]}")
        return done.stdout

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a client that runs beside what follows; it is killed at the end if it still runs."""
        number = sum(1 for _ in self.work.glob("client-*.log"))
        with (self.work / f"client-{number}.log").open("wb") as log:
            process = subprocess.Popen(list(command), cwd=self.work, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._stack.callback(_end, process)
        return process

    @staticmethod
    def free_port() -> int:
        """A TCP port of loopback that nobody listens to."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def record(fault: Fault, directory: Path) -> dict[str, Any]:
    """Play a recording; write its capture and the note on its origin (``FILE.json``) into ``directory``.

    Raises ``SetupError`` if a part fails or the capture is too large; then nothing is written.
    """
    work = Path(tempfile.mkdtemp(prefix="kafkasniff-fault-"))
    try:
        with ExitStack() as stack:
            stage = Stage(fault, work, stack)
            fault.play(stage)
        size = stage.capture.stat().st_size
        if size > LARGEST_BYTES:
            raise SetupError(f"{fault.file} has {size} bytes, more than {LARGEST_BYTES}")
        origin = {
            "file": fault.file,
            "shows": fault.shows,
            "looks_like": fault.looks_like,
            "clients": stage.clients,
            "brokers": [f"Apache Kafka {broker.version}" for broker in stage.brokers],
            "broker_ports": [port for broker in stage.brokers for port in broker.ports.values()],
            "recorded": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "command": f"{COMMAND} {fault.file}",
            "bytes": size,
            "sha256": digest(stage.capture),
        }
        shutil.copyfile(stage.capture, directory / fault.file)
        (directory / f"{fault.file}.json").write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
        return origin
    finally:
        shutil.rmtree(work)
