"""Loads for live captures: captures replayed at a rate, and clients of librdkafka that talk to a broker.

Each knows how many packets it sent and how many requests and responses were in them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import re
import shutil
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.live_captures import Material, Part
from benchmarks.live_network import LISTENS, LOOPBACK, SENDS, Counters, counters, program
from captures.record.broker import RealBroker

ROOT: Final = Path(__file__).resolve().parent.parent
READY_S: Final = 60.0
"""A mock cluster is there at once; a topic of a real broker may take some seconds."""
LATE: Final = 3.0
"""A load may take this many times what it should, and `SLACK_S`, until it is given up."""
SLACK_S: Final = 30.0
READ_BYTES: Final = 1 << 24


class LoadError(Exception):
    """A load did not go through; the message says why."""


@dataclasses.dataclass(frozen=True)
class Offered:
    """What a load contained."""

    seconds: float
    packets: int
    """That reached the interface."""
    bytes: int
    lost_before: int
    """Packets that were to be sent and did not reach it, or that it dropped before anybody saw them."""
    requests: int
    responses: int
    exact: bool = True
    """Whether requests and responses are known, and not only at least."""
    records: int | None = None
    """That clients had delivered; None: not counted."""


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a load can be seen."""

    interface: str
    ports: tuple[int, ...]
    bpf: str | None = None
    """A filter, where other traffic passes the interface as well."""


class Running(ABC):
    """A load that is ready to go."""

    target: Target

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def wait(self) -> None:
        """Until it is over. Raises LoadError where that takes too long."""

    @abstractmethod
    def offered(self) -> Offered:
        """The result, after `wait`. Raises LoadError."""


@dataclasses.dataclass(frozen=True)
class Load(ABC):
    """A form at a rate."""

    form: str
    rate: float | None
    """In the form's own unit; None: as much as goes."""
    seconds: float

    unit = ""

    @property
    def name(self) -> str:
        return f"{self.form} {'as hard as they can' if self.rate is None else f'{self.rate:,g} {self.unit}'}"

    @property
    def limit_s(self) -> float:
        """It does not take longer."""
        return self.seconds * LATE + SLACK_S

    @abstractmethod
    def prepared(self, folder: Path) -> contextlib.AbstractContextManager[Running]:
        """Ready to go, and all that belongs to it, which ends with the block. `folder` is its own. Raises LoadError."""


@dataclasses.dataclass(frozen=True)
class Replay(Load):
    """A capture sent by tcpreplay; rates are packets (form C) or megabytes (form A) a second."""

    material: Material

    @property
    def unit(self) -> str:  # type: ignore[override]
        return "packets/s" if self.form == "C" else "MB/s"

    @property
    def part(self) -> Part:
        """As much of the capture as the time needs."""
        assert self.rate is not None
        if self.form == "C":
            return self.material.part(packets=self.rate * self.seconds)
        return self.material.part(size=self.rate * 1e6 * self.seconds)

    @contextlib.contextmanager
    def prepared(self, folder: Path) -> Iterator[Running]:
        assert self.rate is not None
        with self.material.path.open("rb", buffering=0) as file:
            while file.read(READ_BYTES):  # from now on it is in memory
                pass
        speed = ["--pps", f"{self.rate:g}"] if self.form == "C" else ["--mbps", f"{self.rate * 8:g}"]
        command = [program("tcpreplay"), "-i", SENDS, "--quiet", "--no-flow-stats", *speed]
        command += ["--limit", str(self.part.packets), str(self.material.path)]
        running = _Replaying(command, Target(LISTENS, tuple(self.material.ports)), self.part, self.limit_s)
        try:
            yield running
        finally:
            running.end()


class _Replaying(Running):
    def __init__(self, command: list[str], target: Target, part: Part, limit_s: float) -> None:
        self.target = target
        self._command = command
        self._part = part
        self._limit_s = limit_s
        self._process: subprocess.Popen[str] | None = None
        self._before: Counters | None = None
        self._reported = ""

    def start(self) -> None:
        self._before = counters(self.target.interface)
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def wait(self) -> None:
        assert self._process is not None
        try:
            # It says a few lines in the end.
            self._reported = self._process.communicate(timeout=self._limit_s)[0]
        except subprocess.TimeoutExpired:
            raise LoadError(f"tcpreplay was not through after {self._limit_s:.0f} s") from None
        if self._process.returncode != 0:
            raise LoadError(f"tcpreplay: {self._told[-1000:]}")

    def offered(self) -> Offered:
        assert self._before is not None
        found = re.search(r"Actual: (\d+) packets \(\d+ bytes\) sent in ([\d.]+) seconds", self._reported)
        if found is None:
            raise LoadError(f"tcpreplay does not say what it sent: {self._told[-1000:]}")
        arrived = counters(self.target.interface) - self._before
        lost = max(0, self._part.packets - arrived.packets) + arrived.dropped
        return Offered(float(found[2]), arrived.packets, arrived.bytes, lost, self._part.requests, self._part.responses)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@dataclasses.dataclass(frozen=True)
class Clients(Load):
    """Clients of librdkafka (`benchmarks.live_client`); rates are records a second."""

    python: str
    """An interpreter with confluent-kafka."""
    real_broker: bool = False
    """Apache Kafka, and not librdkafka's mock cluster."""

    unit = "records/s"

    @contextlib.contextmanager
    def prepared(self, folder: Path) -> Iterator[Running]:
        command = [self.python, "-m", "benchmarks.live_client", self.form, "--seconds", f"{self.seconds:g}"]
        if self.rate is not None:
            command += ["--rate", f"{self.rate:g}"]
        with contextlib.ExitStack() as stack:
            if self.real_broker:
                place = folder / "broker"
                stack.callback(shutil.rmtree, place, ignore_errors=True)
                broker = stack.enter_context(RealBroker(place))
                command += ["--bootstrap", broker.bootstrap()]
            running = _Talking(command, folder / "clients.log", self.limit_s)
            stack.callback(running.end)
            running.ready()
            yield running


class _Talking(Running):
    def __init__(self, command: list[str], log: Path, limit_s: float) -> None:
        self._log = log
        self._limit_s = limit_s
        self._seconds = 0.0
        self._before = Counters(0, 0, 0)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ready(self) -> None:
        """Until there is a broker, and `target` is known."""
        ports = self._next(READY_S)["ports"]
        self.target = Target(LOOPBACK, tuple(ports), " or ".join(f"tcp port {port}" for port in ports))

    def start(self) -> None:
        self._before = counters(LOOPBACK)
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        self._seconds = self._next(self._limit_s)["over"]

    def offered(self) -> Offered:
        reported = self._next(SLACK_S)
        if reported["failed"]:
            raise LoadError(f"{reported['failed']} records were not delivered")
        arrived = counters(LOOPBACK) - self._before
        return Offered(
            self._seconds,
            arrived.packets,
            arrived.bytes,
            arrived.dropped,
            reported["requests"],
            reported["responses"],
            reported["exact"],
            reported["delivered"],
        )

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _next(self, limit_s: float) -> dict[str, Any]:
        """What the clients say next."""
        deadline = time.monotonic() + limit_s
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise LoadError(f"the clients said nothing for {limit_s:.0f} s: {self._errors()}") from None
        if not line:
            raise LoadError(f"the clients ended: {self._errors()}")
        reported: dict[str, Any] = json.loads(line)
        return reported

    def _errors(self) -> str:
        return self._log.read_text(errors="replace")[-1000:]
