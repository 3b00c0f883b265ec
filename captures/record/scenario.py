"""One scenario: a broker, a client program, a capture between them, and what is written down about it."""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .broker import LOGGER, Listener, RealBroker
from .distribution import DEFAULT_VERSION, SetupError
from .journal import LogParser, count_requests, java_log, read_reports, write_sidecar
from .sniffer import Sniffer, SniffOptions

CLIENT_TIMEOUT_S = 120
FORMATS = {b"\xd4\xc3\xb2\xa1": "pcap", b"\x4d\x3c\xb2\xa1": "pcap, nanoseconds", b"\x0a\x0d\x0d\x0a": "pcapng"}
COMMAND = "python -m captures.record"


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """What a scenario wants of its broker; the arguments of ``RealBroker``."""

    version: str = DEFAULT_VERSION
    listeners: Sequence[Listener] = (Listener(),)
    properties: dict[str, str] = field(default_factory=dict)
    storage_options: Sequence[str] = ()
    brokers: int = 1
    plugin: Callable[[], Path] | None = None
    """Makes a folder of classes that the brokers load."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A capture to be: its file name, what it shows, and who runs."""

    file: str
    shows: str
    command: Callable[[], Sequence[str]]
    """Makes the client program's command line (fetching or compiling it if need be); the addresses of the broker's
    listeners are put behind it, in their order."""
    log: LogParser | None
    """Reads requests and responses from the client's stderr; None if the client does not log them."""
    log_is_complete: bool = True
    """Whether every request of the capture is in that log."""
    broker: BrokerOptions = field(default_factory=BrokerOptions)
    sniff: SniffOptions = field(default_factory=SniffOptions)
    internal: bool = False
    """Record what brokers and controller say to each other too, from before their start until after their end; the
    brokers' own logs of their requests go into the sidecar."""
    environment: Callable[[], dict[str, str]] = dict


def record(scenario: Scenario, directory: Path) -> dict[str, Any]:
    """Run a scenario, write its capture and sidecar into ``directory``, return its entry for the manifest.

    Raises ``SetupError`` if the broker, the client or the recording failed; then nothing is written.
    """
    command, environment = list(scenario.command()), scenario.environment()
    work = Path(tempfile.mkdtemp(prefix="kafkasniff-record-"))
    capture = work / scenario.file
    options = scenario.broker
    try:
        brokers = _brokers(scenario, work)
        for broker in brokers:
            broker.choose_ports()
        client_ports = [broker.port(listener.name) for broker in brokers for listener in options.listeners]
        addresses = [brokers[0].bootstrap(listener.name) for listener in options.listeners]
        ports = (
            [port for broker in brokers for port in broker.choose_ports().values()]
            if scenario.internal
            else client_ports
        )
        with ExitStack() as stack:
            if scenario.internal:
                stack.enter_context(Sniffer(capture, ports, scenario.sniff))
            for broker in brokers:
                stack.enter_context(broker)
            if not scenario.internal:
                stack.enter_context(Sniffer(capture, ports, scenario.sniff))
            _run_client([*command, *addresses], work, environment)
        entries = read_reports(work / "stdout")
        client = next((entry for entry in entries if entry["kind"] == "client"), None)
        if client is None:
            raise SetupError("the client program did not say what it is")
        if scenario.log is not None:
            entries += scenario.log((work / "stderr").read_text(encoding="utf-8", errors="replace").splitlines())
        if scenario.internal:
            for broker in brokers:
                entries += java_log(broker.log_file.read_text(encoding="utf-8", errors="replace").splitlines())
        sidecar = work / f"{capture.stem}.log.jsonl"
        write_sidecar(sidecar, entries)
        entry = {
            "file": capture.name,
            "shows": scenario.shows,
            "client": f"{client['name']} {client['version']}",
            "broker": f"Apache Kafka {options.version}",
            "broker_ports": ports,
            "recorded": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "command": f"{COMMAND} {capture.name}",
            "format": FORMATS[capture.read_bytes()[:4]],
            "packets": _packets(capture),
            "bytes": capture.stat().st_size,
            "sha256": digest(capture),
            "sidecar": sidecar.name,
            "sidecar_sha256": digest(sidecar),
            "requests": count_requests(entries),
            "requests_complete": scenario.log is not None and scenario.log_is_complete,
        }
        for file in (capture, sidecar):
            shutil.copyfile(file, directory / file.name)
    except BaseException:
        print(f"what the processes wrote is kept in {work}")
        raise
    shutil.rmtree(work)
    return entry


def _brokers(scenario: Scenario, work: Path) -> list[RealBroker]:
    options = scenario.broker
    brokers: list[RealBroker] = []
    for number in range(1, options.brokers + 1):
        broker = RealBroker(
            work / f"broker-{number}",
            version=options.version,
            listeners=options.listeners,
            properties=options.properties,
            storage_options=() if brokers else options.storage_options,
            java_options=[f"{LOGGER}.log.org.apache.kafka.clients.NetworkClient=debug"] if scenario.internal else (),
            jars=[options.plugin()] if options.plugin else (),
            node_id=number,
            controller=brokers[0] if brokers else None,
        )
        brokers.append(broker)
    return brokers


def _run_client(command: list[str], work: Path, environment: dict[str, str]) -> None:
    with (work / "stdout").open("wb") as out, (work / "stderr").open("wb") as log:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            cwd=work,
            timeout=CLIENT_TIMEOUT_S,
            check=False,
            env={**os.environ, **environment},
        )
    if done.returncode != 0:
        said = (work / "stderr").read_text(encoding="utf-8", errors="replace")
        raise SetupError(f"the client ended with {done.returncode}: {said[-1500:]}")


def _packets(capture: Path) -> int:
    """Number of packets by capinfos, which is not ours."""
    done = subprocess.run(
        ["capinfos", "-M", "-c", "-T", "-r", str(capture)], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split("\t")[-1])


def digest(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def manifest_lock(directory: Path) -> Iterator[None]:
    """Held while the manifest is read and written: recorders may run side by side."""
    with (directory / "manifest.json").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_manifest(directory: Path) -> dict[str, dict[str, Any]]:
    """Entries of ``manifest.json`` by file name."""
    file = directory / "manifest.json"
    if not file.exists():
        return {}
    return {entry["file"]: entry for entry in json.loads(file.read_text(encoding="utf-8"))["captures"]}


def write_manifest(directory: Path, entries: dict[str, dict[str, Any]]) -> None:
    """Write ``manifest.json``, ordered by file name."""
    captures = [entries[name] for name in sorted(entries)]
    text = json.dumps({"captures": captures}, indent=1, ensure_ascii=False)
    (directory / "manifest.json").write_text(text + "\n", encoding="utf-8")
