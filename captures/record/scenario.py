"""One scenario: a broker, a client program, a capture between them, and what is written down about it."""

from __future__ import annotations

import datetime
import fcntl
import functools
import gzip
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

from .acting import END_OF_ACT, ActingClient
from .broker import LOGGER, Listener, RealBroker
from .distribution import DEFAULT_VERSION, SetupError, class_path, java
from .journal import Entry, LogParser, count_requests, java_log, read_reports, write_sidecar
from .programs import attach_agent
from .registry import RealRegistry, registered, write_schemas
from .sniffer import Sniffer, SniffOptions, put_in_secrets
from .terminator import TlsTerminator

DUMPED = (".log", ".snapshot")
"""Files that kafka-dump-log is given."""
CAPTURES = Path(__file__).resolve().parents[1]
CLIENT_TIMEOUT_S = 120
FORMATS = {b"\xd4\xc3\xb2\xa1": "pcap", b"\x4d\x3c\xb2\xa1": "pcap, nanoseconds", b"\x0a\x0d\x0d\x0a": "pcapng"}
COMMAND = "python -m captures.record"
REQUEST_LOG = (
    f"{LOGGER}.log.kafka.request.logger=debug",
    f"{LOGGER}.dateTimeFormat=[yyyy-MM-dd HH:mm:ss,SSS]",
    f"{LOGGER}.showThreadName=false",
    "-Duser.timezone=UTC",
)
"""Options of a broker that logs its requests, in lines such as those of Kafka's own configuration."""
KEY_LOG = "keys.log"
"""Where secrets of TLS are logged, in the folder where the client runs."""


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
    java_options: Callable[[], Sequence[str]] = list
    """Makes further options of the brokers' JVMs."""
    logs_secrets: bool = False
    """An agent that is attached to the running brokers logs the secrets of TLS."""


Run = Callable[..., list[Entry]]


@dataclass(frozen=True, slots=True)
class Play:
    """A capture in several acts: nodes come and go, the client program is run between.

    Everything that the nodes say is recorded, as with ``internal``.
    """

    nodes: Callable[[Path], list[RealBroker]]
    """Makes the nodes, none of them running, with their folders below the given one."""
    acts: Callable[[list[RealBroker], Run], None]
    """Starts and stops nodes; the function it is given runs the client program once, with further arguments, and
    returns what that run reports. Nodes that still run at the end are stopped, the last one first."""
    before: Callable[[list[RealBroker]], None] | None = None
    """What comes before the recording; no node runs when it ends."""
    log: LogParser = java_log
    """Reads requests and responses from the logs of the nodes."""
    one_program: bool = False
    """The client program is started once, and gets the arguments of each act as a line of its stdin."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A capture to be: its file name, what it shows, and who runs."""

    file: str
    shows: str
    command: Callable[[], Sequence[str]]
    """Creates the client program's command line (fetching or compiling it if needed); the addresses of the broker's
    listeners are appended in order."""
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
    play: Play | None = None
    """Several acts instead of one run of the client; ``broker`` then only names the release."""
    folder: str = ""
    """Folder below ``captures``, with its own manifest; ``captures`` itself if empty."""
    key_log: bool = False
    """The secrets of TLS that were logged go into the capture, which becomes a pcapng."""
    registry: bool = False
    """There is a schema registry: its addresses follow those of the broker, Confluent's API first. Its schemas are kept
    in a folder beside the capture."""
    request_log: bool = False
    """The broker's request log of the listener is kept beside the capture."""
    client_log: bool = False
    """What the client logged is kept beside the capture."""
    data_folder: str = ""
    """Folder below `captures` for the broker's data folder, and for what Kafka's kafka-dump-log says of its files."""
    terminator: Path | None = None
    """Certificate and key of a TLS terminator in front of the listener: what clients say to it is recorded."""


def record(scenario: Scenario, directory: Path) -> dict[str, Any]:
    """Run a scenario, write its capture and sidecar into ``directory``, return its entry for the manifest.

    Raises ``SetupError`` if the broker, the client or the recording failed; then nothing is written.
    """
    command, environment = list(scenario.command()), scenario.environment()
    work = Path(tempfile.mkdtemp(prefix="kafkasniff-record-"))
    capture = work / scenario.file
    options = scenario.broker
    try:
        brokers = scenario.play.nodes(work) if scenario.play else _brokers(scenario, work)
        internal = scenario.internal or scenario.play is not None
        for broker in brokers:
            broker.choose_ports()
        ports = [
            port
            for broker in brokers
            for name, port in broker.choose_ports().items()
            if internal or name in broker.listeners
        ]
        if scenario.play and scenario.play.before:
            scenario.play.before(brokers)
            for broker in brokers:
                broker.log_file.unlink(missing_ok=True)  # it logs what is not recorded
        schemas: dict[str, Any] = {}
        with ExitStack() as stack:
            if internal:
                stack.enter_context(Sniffer(capture, ports, scenario.sniff))
            if scenario.play:
                for broker in brokers:
                    stack.callback(broker.stop)
                run: Run
                if scenario.play.one_program:
                    run = stack.enter_context(ActingClient(command, work, environment)).act
                else:
                    run = functools.partial(_run_play, command, work, environment)
                scenario.play.acts(brokers, run)
            else:
                if scenario.terminator:
                    name = options.listeners[0].name
                    front = TlsTerminator(work, brokers[0].port(name), scenario.terminator, work / KEY_LOG)
                    stack.enter_context(front)
                    brokers[0].advertised_ports[name] = front.port
                    ports = [front.port]
                for broker in brokers:
                    stack.enter_context(broker)
                    if options.logs_secrets and broker.pid is not None:
                        attach_agent(broker.pid, work / KEY_LOG)
                addresses = [brokers[0].bootstrap(listener.name) for listener in options.listeners]
                if scenario.registry:
                    registry = stack.enter_context(RealRegistry(work / "registry"))
                    addresses += [registry.url, registry.own_url]
                if not internal:
                    stack.enter_context(Sniffer(capture, ports, scenario.sniff))
                _run_client([*command, *addresses], work, environment)
                if scenario.registry:
                    schemas |= registry.schemas()
        entries = [entry for entry in read_reports(work / "stdout") if entry["kind"] != END_OF_ACT]
        client = next((entry for entry in entries if entry["kind"] == "client"), None)
        if client is None:
            raise SetupError("the client program did not say what it is")
        if scenario.log is not None:
            entries += scenario.log((work / "stderr").read_text(encoding="utf-8", errors="replace").splitlines())
        if internal:
            parse = scenario.play.log if scenario.play else java_log
            for broker in brokers:
                entries += parse(broker.log_file.read_text(encoding="utf-8", errors="replace").splitlines())
        if scenario.key_log:
            put_in_secrets(capture, work / KEY_LOG)
        kept: list[Path] = []
        if scenario.client_log:
            kept.append(work / f"{capture.stem}.client.log.gz")
            kept[-1].write_bytes(gzip.compress((work / "stderr").read_bytes(), mtime=0))
        if scenario.data_folder:
            _keep_data(brokers[0], CAPTURES / scenario.data_folder)
        if scenario.request_log:
            kept.append(work / f"{capture.stem}.request.log.gz")
            name = f'"listener":"{options.listeners[0].name}"'.encode()
            lines = brokers[0].log_file.read_bytes().splitlines(keepends=True)
            kept[-1].write_bytes(gzip.compress(b"".join(line for line in lines if name in line), mtime=0))
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
            "requests_complete": (scenario.log or scenario.play) is not None and scenario.log_is_complete,
        }
        for file in (capture, sidecar, *kept):
            shutil.copyfile(file, directory / file.name)
        schemas |= registered(entries)
        if schemas:
            write_schemas(directory / f"{capture.stem}.registry", schemas)
    except BaseException:
        print(f"what the processes wrote is kept in {work}")
        raise
    shutil.rmtree(work)
    return entry


def _keep_data(broker: RealBroker, folder: Path) -> None:
    """Copy the data folder of a broker that has stopped, without the partitions of internal topics."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(broker.data_directory, folder, ignore=shutil.ignore_patterns("__[!c]*", "__co*", ".*", "*index"))
    files = sorted(str(one.relative_to(folder)) for one in folder.glob("[!_]*/*") if one.suffix in DUMPED)
    # Later releases need a jar for it that nothing else needs.
    classes = class_path("3.4.1")
    command = [java(), "-cp", classes, "kafka.tools.DumpLogSegments", "--print-data-log", "--files", ",".join(files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    (folder / "kafka-dump-log.txt").write_text(done.stdout, encoding="utf-8")


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
            java_options=[
                *([f"{LOGGER}.log.org.apache.kafka.clients.NetworkClient=debug"] if scenario.internal else ()),
                *options.java_options(),
                *(REQUEST_LOG if scenario.request_log else ()),
            ],
            jars=[options.plugin()] if options.plugin else (),
            node_id=number,
            controller=brokers[0] if brokers else None,
        )
        brokers.append(broker)
    return brokers


def _run_client(command: list[str], work: Path, environment: dict[str, str]) -> list[Entry]:
    told_before = len(read_reports(work / "stdout")) if (work / "stdout").exists() else 0
    with (work / "stdout").open("ab") as out, (work / "stderr").open("ab") as log:
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
    return read_reports(work / "stdout")[told_before:]


def _run_play(command: list[str], work: Path, environment: dict[str, str], *more: str) -> list[Entry]:
    return _run_client([*command, *more], work, environment)


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
