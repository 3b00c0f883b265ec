"""One run: a real broker on loopback, three kinds of clients at once, and two captures of what they say.

`kafkasniff live` decodes while they run; tcpdump keeps the packets beside it. Each client program has a listener of the
broker for itself, so that the port tells which program a message belongs to. Everything ends up as files in one folder:
the run is made once, whatever number of processes tests it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captures.record.broker import LOGGER, Listener, RealBroker
from captures.record.distribution import COVERED_VERSION, SetupError, class_path, java, kafka_jars, python_with
from captures.record.journal import Entry, LogParser, java_log, kafka_python_log, rdkafka_log, read_reports
from captures.record.programs import CLIENTS, CONFLUENT, KAFKA_PYTHON_PACKAGES, QUICK_GROUPS
from captures.record.sniffer import Sniffer, SniffOptions
from tests.evidence.compare import Line
from tests.evidence.kafka_classes import RELEASES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_name("clients")
JAVA_PROGRAM = "JavaWorkload"

RELEASE = COVERED_VERSION
"""Of broker and Java client: the one that the definitions are of."""

PROPERTIES = {**QUICK_GROUPS, "group.consumer.session.timeout.ms": "30000", "log.retention.ms": "-1"}
"""Quick heartbeats, but no member is thrown out because the machine is busy. The records' timestamps are of 2023: a
broker that runs for longer than 30 s would begin to delete them."""

ENVIRONMENTS = (CONFLUENT, KAFKA_PYTHON_PACKAGES)
"""Packages of the Python clients, pinned: the formats of their logs are no interface."""

CLIENT_TIMEOUT_S = 180
LIVE_TIMEOUT_S = 30
COMPILE_TIMEOUT_S = 120


class ClientError(SetupError):
    """A client program ended by itself before it was through."""


@dataclass(frozen=True, slots=True)
class Program:
    """A client program: the name of its files and of its listener, its command line but for the broker's address."""

    name: str
    command: Callable[[Path], Sequence[str]]
    """Given the folder of the compiled Java classes."""
    log: LogParser
    """Reads the requests and responses that the client's own log names."""

    @property
    def listener(self) -> str:
        return self.name.upper()


PROGRAMS = (
    Program(
        "java",
        lambda classes: [
            *(java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *(f"{LOGGER}.defaultLogLevel=warn", f"{LOGGER}.log.org.apache.kafka.clients.NetworkClient=debug"),
            *("-cp", f"{classes}{os.pathsep}{class_path(RELEASE)}", JAVA_PROGRAM),
        ],
        java_log,
    ),
    Program("librdkafka", lambda _: [python_with(*CONFLUENT), str(FOLDER / "librdkafka_workload.py")], rdkafka_log),
    Program(
        "python",
        lambda _: [python_with(*KAFKA_PYTHON_PACKAGES), str(FOLDER / "kafka_python_workload.py")],
        kafka_python_log,
    ),
)


@dataclass(frozen=True, slots=True)
class Account:
    """What one client program tells, and what kafkasniff decoded on its listener's port."""

    name: str
    reports: tuple[Entry, ...]
    """What the program says it did."""
    logged: tuple[Entry, ...]
    """Requests and responses that the client's own log names."""
    stderr: str
    lines: tuple[Line, ...]
    """The lines of `kafkasniff live`."""


@dataclass(frozen=True, slots=True)
class Run:
    """The files of a run, read."""

    folder: Path
    ports: dict[str, int]
    lines: tuple[Line, ...]
    """All lines of `kafkasniff live`, in their order."""
    said: str
    """What it wrote to stderr."""
    exit_code: int
    accounts: tuple[Account, ...]

    def account(self, name: str) -> Account:
        """That of the program with this name."""
        return next(one for one in self.accounts if one.name == name)

    @property
    def capture(self) -> Path:
        """What tcpdump kept; a `manifest.json` beside it names the broker's ports (tests.evidence.wire)."""
        return self.folder / "beside.pcap"


def fetch() -> None:
    """Everything that tests take from the cache of `captures.record`, downloaded if need be. Raises SetupError."""
    for release in {RELEASE, *RELEASES}:
        kafka_jars(release)
    for packages in ENVIRONMENTS:
        python_with(*packages)


def make(folder: Path) -> None:
    """Make a run. Raises SetupError, with what the process said, where something does not start or fails; of these
    ClientError where it is a client."""
    started = time.monotonic()
    classes = folder / "classes"
    listeners = [Listener(program.listener) for program in PROGRAMS]
    broker = RealBroker(folder / "broker", version=RELEASE, listeners=listeners, properties=PROPERTIES)
    with ExitStack() as stack:
        compiling = stack.enter_context(_process(_compiler(classes), folder, "javac"))
        stack.enter_context(broker)
        _finished(compiling, folder, "javac", COMPILE_TIMEOUT_S)
        ports = {program.name: broker.port(program.listener) for program in PROGRAMS}
        _write(folder / "manifest.json", {"captures": [{"file": "beside.pcap", "broker_ports": [*ports.values()]}]})
        with ExitStack() as captures:
            live = captures.enter_context(_live(folder, [*ports.values()]))
            captures.enter_context(Sniffer(folder / "beside.pcap", [*ports.values()], SniffOptions(nanoseconds=True)))
            ready = time.monotonic()
            _run_clients(folder, classes, broker)
            ended = time.monotonic()
        exit_code = live.returncode
    shutil.rmtree(broker.directory / "data")
    seconds = {"all": time.monotonic() - started, "set-up": ready - started, "clients": ended - ready}
    _write(folder / "run.json", {"ports": ports, "exit_code": exit_code, "seconds": seconds})


def load(folder: Path) -> Run:
    """Read the files of a run."""
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    lines = tuple(json.loads(line) for line in (folder / "live.out").read_bytes().splitlines())
    accounts = []
    for program in PROGRAMS:
        end = f":{facts['ports'][program.name]}"
        stderr = (folder / f"{program.name}.err").read_text(encoding="utf-8", errors="replace")
        accounts.append(
            Account(
                program.name,
                tuple(read_reports(folder / f"{program.name}.out")),
                tuple(program.log(stderr.splitlines())),
                stderr,
                tuple(line for line in lines if line["type"] != "problem" and line["broker"].endswith(end)),
            )
        )
    said = (folder / "live.err").read_text(encoding="utf-8")
    return Run(folder, facts["ports"], lines, said, facts["exit_code"], tuple(accounts))


def _compiler(classes: Path) -> list[str]:
    """The program and those classes of the recorded programs that it uses."""
    command = [str(Path(java()).with_name("javac")), "-d", str(classes), "-cp", class_path(RELEASE)]
    return [*command, "-sourcepath", str(CLIENTS / "java"), str(FOLDER / f"{JAVA_PROGRAM}.java")]


@contextmanager
def _live(folder: Path, ports: Sequence[int]) -> Iterator[subprocess.Popen[bytes]]:
    """`kafkasniff live` on the ports, from the moment that it listens; stopped as Ctrl-C does when the block ends."""
    bpf = " or ".join(f"tcp port {port}" for port in ports)
    command = [sys.executable, "-m", "kafkasniff", "live", "-i", "lo", "--format", "json", bpf]
    with _process(command, folder, "live") as process:
        deadline = time.monotonic() + LIVE_TIMEOUT_S
        while "listening on lo" not in (folder / "live.err").read_text(encoding="utf-8"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SetupError(f"kafkasniff live does not listen: {_tail(folder / 'live.err')}")
            time.sleep(0.02)
        yield process
        process.send_signal(signal.SIGINT)
        process.wait(LIVE_TIMEOUT_S)


def _run_clients(folder: Path, classes: Path, broker: RealBroker) -> None:
    """All programs at once: the machine has idle time in each of them."""
    commands = {program.name: [*program.command(classes), broker.bootstrap(program.listener)] for program in PROGRAMS}
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(_process(command, folder, name, PYTHONPATH=str(CLIENTS)))
            for name, command in commands.items()
        }
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        for name, process in running.items():
            try:
                _finished(process, folder, name, max(0.0, deadline - time.monotonic()))
            except SetupError as error:
                raise ClientError(str(error)) from None


@contextmanager
def _process(command: Sequence[str], folder: Path, name: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose output goes to `NAME.out` and `NAME.err`; ended, by force if need be, when the block ends."""
    with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT, env={**os.environ, **environment}
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _finished(process: subprocess.Popen[bytes], folder: Path, name: str, timeout_s: float) -> None:
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise SetupError(f"{name} did not end: {_tail(folder / f'{name}.err')}") from None
    if code != 0:
        raise SetupError(f"{name} ended with {code}: {_tail(folder / f'{name}.err')}")


def _tail(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")[-2000:]


def _write(file: Path, facts: dict[str, Any]) -> None:
    file.write_text(json.dumps(facts, indent=1), encoding="utf-8")
