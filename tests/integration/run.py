"""One run without failures: three kinds of clients at once, each on its own listener, with a real broker; `kafkasniff
live` decodes and tcpdump saves the packets. All results are files in one folder."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from captures.record.broker import LOGGER, RealBroker
from captures.record.distribution import (
    COVERED_VERSION,
    SetupError,
    class_path,
    go_program,
    java,
    kafka_jars,
    python_with,
)
from captures.record.journal import Entry, LogParser, java_log, kafka_python_log, rdkafka_log, read_reports
from captures.record.programs import CLIENTS, CONFLUENT, KAFKA_PYTHON_PACKAGES, python_program
from captures.record.registry import registry_program
from captures.record.sniffer import Sniffer, SniffOptions
from tests.evidence.compare import Line
from tests.evidence.kafka_classes import RELEASES
from tests.integration.processes import ClientError, finished, live, process, write
from tests.spark.delta import delta_jars, spark_for_delta

FOLDER = Path(__file__).with_name("clients")
JAVA_PROGRAM = "JavaWorkload"

RELEASE = COVERED_VERSION
"""Version of the broker and the Java client: the one that the definitions cover."""

ENVIRONMENTS = (CONFLUENT, KAFKA_PYTHON_PACKAGES)
"""Packages of the Python clients, pinned because the formats of their logs are not stable."""

UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""JVM options that skip the verification of Kafka's classes, which takes a good part of the start."""

CLIENT_TIMEOUT_S = 180
COMPILE_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Program:
    """A client program: the name of its files and its listener, and its command line without the broker's address."""

    name: str
    command: Callable[[Path], Sequence[str]]
    """Called with the folder of the compiled Java classes."""
    log: LogParser
    """Reads the requests and responses in the client's own log."""

    @property
    def listener(self) -> str:
        return self.name.upper()


PROGRAMS = (
    Program(
        "java",
        lambda classes: [
            *(java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *UNVERIFIED),
            *(f"{LOGGER}.defaultLogLevel=warn", f"{LOGGER}.showDateTime=true"),
            f"{LOGGER}.log.org.apache.kafka.clients.NetworkClient=debug",
            *("-cp", f"{classes}{os.pathsep}{class_path(RELEASE)}", JAVA_PROGRAM),
        ],
        java_log,
    ),
    Program("librdkafka", lambda _: python_program(CONFLUENT, "librdkafka_group.py", "classic")(), rdkafka_log),
    Program(
        "python",
        lambda _: python_program(KAFKA_PYTHON_PACKAGES, "kafka_python_client.py", "codecs")(),
        kafka_python_log,
    ),
)

LISTENERS = tuple(program.listener for program in PROGRAMS)
"""Broker settings for a run."""


@dataclass(frozen=True, slots=True)
class Account:
    """What one client program reports, and what kafkasniff decoded on its listener's port."""

    name: str
    reports: tuple[Entry, ...]
    """The program's own reports."""
    logged: tuple[Entry, ...]
    """Requests and responses in the client's own log."""
    lines: tuple[Line, ...]
    """The lines of `kafkasniff live`."""


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path
    ports: dict[str, int]
    lines: tuple[Line, ...]
    """All lines of `kafkasniff live`, in order."""
    said: str
    """Its stderr."""
    exit_code: int
    accounts: tuple[Account, ...]

    def account(self, name: str) -> Account:
        return next(one for one in self.accounts if one.name == name)

    @property
    def capture(self) -> Path:
        """The packets of tcpdump; a `manifest.json` beside the file gives the broker's ports (tests.evidence.wire)."""
        return self.folder / "beside.pcap"


def fetch() -> None:
    """Fetch what tests take from the cache of `captures.record`, with downloads if necessary. Raises SetupError.

    A Go program is built only where there is Go: the tests that run it say that it is missing.
    """
    for release in {RELEASE, *RELEASES}:
        kafka_jars(release)
    for packages in ENVIRONMENTS:
        python_with(*packages)
    registry_program()
    delta_jars()
    spark_for_delta()
    if shutil.which("go"):
        go_program(CLIENTS / "go_load")


def make(folder: Path, broker: RealBroker, wait_until_ready: Callable[[], object]) -> None:
    """Make a run with a broker that has the `LISTENERS` and has chosen its ports. Raises SetupError with the process's
    output if something does not start or fails, ClientError (a SetupError) if it is the client."""
    started = time.monotonic()
    classes = folder / "classes"
    ports = {program.name: broker.port(program.listener) for program in PROGRAMS}
    write(folder / "manifest.json", {"captures": [{"file": "beside.pcap", "broker_ports": [*ports.values()]}]})
    with process(_compiler(classes), folder, "javac") as compiling:
        with ExitStack() as captures:
            listening = captures.enter_context(live(folder, [*ports.values()]))
            captures.enter_context(Sniffer(folder / "beside.pcap", [*ports.values()], SniffOptions(nanoseconds=True)))
            finished(compiling, folder, "javac", COMPILE_TIMEOUT_S)
            wait_until_ready()
            ready = time.monotonic()
            _run_clients(folder, classes, broker)
            ended = time.monotonic()
        exit_code = listening.returncode
    seconds = {"all": time.monotonic() - started, "set-up": ready - started, "clients": ended - ready}
    write(folder / "run.json", {"ports": ports, "exit_code": exit_code, "seconds": seconds})


def load(folder: Path) -> Run:
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    lines = tuple(json.loads(line) for line in (folder / "live.out").read_bytes().splitlines())
    accounts = []
    for program in PROGRAMS:
        end = f":{facts['ports'][program.name]}"
        stderr = (folder / f"{program.name}.err").read_text(encoding="utf-8", errors="replace")
        reports = tuple(read_reports(folder / f"{program.name}.out"))
        own = tuple(line for line in lines if line["type"] != "problem" and line["broker"].endswith(end))
        accounts.append(Account(program.name, reports, tuple(program.log(stderr.splitlines())), own))
    said = (folder / "live.err").read_text(encoding="utf-8")
    return Run(folder, facts["ports"], lines, said, facts["exit_code"], tuple(accounts))


def _compiler(classes: Path) -> list[str]:
    """The program and the classes of the recorded programs that it uses."""
    command = [str(Path(java()).with_name("javac")), "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]
    command += ["-d", str(classes), "-cp", class_path(RELEASE)]
    return [*command, "-sourcepath", str(CLIENTS / "java"), str(FOLDER / f"{JAVA_PROGRAM}.java")]


def _run_clients(folder: Path, classes: Path, broker: RealBroker) -> None:
    """Run all programs at once, because each of them is idle much of the time."""
    commands = {program.name: [*program.command(classes), broker.bootstrap(program.listener)] for program in PROGRAMS}
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(process(command, folder, name, PYTHONPATH=str(CLIENTS)))
            for name, command in commands.items()
        }
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        for name, client in running.items():
            try:
                finished(client, folder, name, max(0.0, deadline - time.monotonic()))
            except SetupError as error:
                raise ClientError(str(error)) from None
