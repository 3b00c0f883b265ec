"""One run in which a client and then the broker are ended with SIGKILL while `kafkasniff live` captures.

Three client programs, each with its own listener, keep long fetches outstanding: the *victim* (kafka-python, a group
member and a separate reader), the *survivor* (librdkafka, the group's other member) and the *watcher* (kafka-python, a
reader). First the victim is killed, and the group continues without it. Then the broker is killed. The clients cannot
connect until it is restarted on the same port, and then read what the survivor produces.

The programs' own logs show when it is time to kill something. The run's results are files in one folder.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captures.record.broker import RealBroker
from captures.record.distribution import python_with
from captures.record.journal import Entry, LogParser, kafka_python_log, rdkafka_log
from captures.record.programs import CLIENTS, CONFLUENT, KAFKA_PYTHON_PACKAGES
from tests.evidence.compare import Line
from tests.integration.broker_log import Handled, handled
from tests.integration.processes import live, process, wait_for, write
from tests.integration.run import Account

FOLDER = Path(__file__).with_name("clients")

TOPIC = "vigil"
GROUP = "vigil-group"
SHORT_WAIT_MS = 2000
"""How long the broker may hold the victim's fetches as a member: a response comes during the run."""
LONG_WAIT_MS = 240_000
"""The same for the others: a response without records does not come before the broker is killed."""
QUICK_RETURN = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
"""Settings of the restarted broker: its controller refuses it until the killed broker's session has expired."""
LAST_WORD = "after the restart"

STEP_TIMEOUT_S = 60
REST_S = 0.15
"""Half the members' heartbeat interval: a member whose heartbeat was just answered sends nothing for this long."""
REFUSED_S = 1.0
"""How long nobody listens on the broker's port: a few attempts to connect, which clients repeat every 0.3 to 0.6 s."""
LAST_PACKETS_S = 0.3
"""Time for the broker to answer idle clients, and for the kernel to deliver the packets."""


Key = tuple[Any, ...]
"""A request in a client's log: client, port, node, correlation id, how many others have the same values."""


@dataclass(frozen=True, slots=True)
class Party:
    """A client program of the run; its files and its listener have its name."""

    name: str
    packages: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    """Arguments after the broker's address and the topic."""
    log: LogParser

    @property
    def listener(self) -> str:
        return self.name.upper()


VICTIM = Party(
    "victim",
    KAFKA_PYTHON_PACKAGES,
    "kafka_python_readers.py",
    (f"victim:{SHORT_WAIT_MS}:{GROUP}", f"victim-reader:{LONG_WAIT_MS}"),
    kafka_python_log,
)
SURVIVOR = Party("survivor", CONFLUENT, "librdkafka_survivor.py", ("survivor", str(LONG_WAIT_MS), GROUP), rdkafka_log)
WATCHER = Party(
    "watcher", KAFKA_PYTHON_PACKAGES, "kafka_python_readers.py", (f"watcher:{LONG_WAIT_MS}",), kafka_python_log
)
PARTIES = (VICTIM, SURVIVOR, WATCHER)

LISTENERS = tuple(party.listener for party in PARTIES)
"""Broker settings for the run."""


@dataclass(frozen=True, slots=True)
class Kills:
    """The loaded files of the run."""

    folder: Path
    ports: dict[str, int]
    """The port of each party's listener."""
    times_ns: dict[str, tuple[int, int]]
    """Wall clock (Unix nanoseconds) before and after `client-killed`, `broker-killed` and `restarted`."""
    lines: tuple[Line, ...]
    """All lines of `kafkasniff live`, in order."""
    said: str
    exit_code: int
    accounts: dict[str, Account]
    handled: tuple[Handled, ...]
    """Requests of these programs that the broker finished, from its own log."""

    @property
    def tables(self) -> Path:
        """The export of the same `kafkasniff live`."""
        return self.folder / "tables"

    @property
    def kept(self) -> Path:
        """All captured packets."""
        return self.folder / "kept.pcapng"


class _Party:
    """A running party, watched through its files."""

    def __init__(self, party: Party, folder: Path, started: subprocess.Popen[bytes]) -> None:
        self.process = started
        self._log = party.log
        self._out = folder / f"{party.name}.out"
        self._err = folder / f"{party.name}.err"

    def reports(self, kind: str) -> list[Entry]:
        """Its reports of one kind; the last line may be incomplete."""
        return [one for one in read_reports_so_far(self._out) if one["kind"] == kind]

    def fetches(self) -> set[Key]:
        """Fetches without responses in its log, including those of closed connections."""
        waiting = outstanding(self._log(self._err.read_text(encoding="utf-8", errors="replace").splitlines()))
        return {key for key, entry in waiting.items() if entry["api"] == "Fetch"}

    def wait_for_rest(self) -> None:
        """Return right after a heartbeat of this member was answered: then everything sent is logged, and the next
        request is some time away. Raises ClientError if none is answered."""
        count, looked = self._heartbeats(), time.monotonic()

        def just_answered() -> bool:
            nonlocal count, looked
            before, last = count, looked
            looked, count = time.monotonic(), self._heartbeats()
            return count > before and looked - last < REST_S

        wait_for(just_answered, "a heartbeat", STEP_TIMEOUT_S)

    def _heartbeats(self) -> int:
        logged = self._log(self._err.read_text(encoding="utf-8", errors="replace").splitlines())
        return sum(entry["kind"] == "response" and entry["api"] == "Heartbeat" for entry in logged)


def make(
    folder: Path, broker: RealBroker, wait_until_ready: Callable[[], object], wait_for_others: Callable[[], object]
) -> None:
    """Make the run with a broker that has the `LISTENERS` and has chosen its ports; waits for `others` before the
    broker is killed. Raises SetupError if something does not start, ClientError (a SetupError) if it is a client."""
    started = time.monotonic()
    times: dict[str, tuple[int, int]] = {}
    ports = {party.name: broker.port(party.listener) for party in PARTIES}
    with ExitStack() as stack:
        looking = stack.enter_context(ExitStack())
        options = ("--export", str(folder / "tables"), "--write-all", "--write", str(folder / "kept.pcapng"))
        running = looking.enter_context(live(folder, [*ports.values()], *options))
        wait_until_ready()
        ready = time.monotonic()

        def start(party: Party) -> _Party:
            command = [python_with(*party.packages), str(FOLDER / party.script)]
            command += [broker.bootstrap(party.listener), TOPIC, *party.arguments]
            environment = {"PYTHONPATH": str(CLIENTS)}
            begun = stack.enter_context(process(command, folder, party.name, stdin=subprocess.PIPE, **environment))
            return _Party(party, folder, begun)

        def timed(what: str, act: Callable[[], object]) -> None:
            before = time.time_ns()
            act()
            times[what] = before, time.time_ns()

        survivor = start(SURVIVOR)
        wait_for(lambda: _owns(survivor, [0, 1]), "the survivor to be alone", STEP_TIMEOUT_S)
        victim, watcher = start(VICTIM), start(WATCHER)

        def shared() -> bool:
            return _owns(survivor, [0]) != _owns(survivor, [1]) and len(victim.reports("assigned")) == 1

        wait_for(shared, "the victim to be a member", STEP_TIMEOUT_S)
        wait_for(lambda: len(victim.fetches()) == 2 and watcher.fetches(), "fetches", STEP_TIMEOUT_S)

        def fetch_just_begun() -> bool:
            """There is time to kill the client before its fetch is answered."""
            old = victim.fetches()
            wait_for(lambda: len(victim.fetches() | old) > 2, "a new fetch of the victim", STEP_TIMEOUT_S)
            begun = time.monotonic()
            victim.wait_for_rest()
            return time.monotonic() - begun < SHORT_WAIT_MS / 1000 / 2

        wait_for(fetch_just_begun, "the victim to be at rest in time", STEP_TIMEOUT_S)
        timed("client-killed", lambda: (victim.process.kill(), victim.process.wait()))

        wait_for(lambda: _owns(survivor, [0, 1]), "the survivor to be alone again", STEP_TIMEOUT_S)
        wait_for_others()
        stayed = (survivor, watcher)
        wait_for(lambda: all(one.fetches() for one in stayed), "fetches before the broker is killed", STEP_TIMEOUT_S)
        lost = [one.fetches() for one in stayed]
        timed("broker-killed", broker.kill)
        broker.properties.update(QUICK_RETURN)
        with _nobody_at(ports.values()):
            time.sleep(REFUSED_S)
            timed("restarted", broker.start)

        def fetch_again() -> bool:
            return all(one.fetches() - gone for one, gone in zip(stayed, lost, strict=True))

        wait_for(fetch_again, "fetches after the restart", STEP_TIMEOUT_S)
        assert survivor.process.stdin is not None
        survivor.process.stdin.write(LAST_WORD.encode() + b"\n")
        survivor.process.stdin.flush()

        def read() -> bool:
            return len(survivor.reports("consumed")) == 2 and len(watcher.reports("consumed")) == 1

        wait_for(read, "the records produced after the restart", STEP_TIMEOUT_S)
        wait_for(fetch_again, "fetches at the end", STEP_TIMEOUT_S)
        # What the clients do after the capture has ended does not matter.
        survivor.wait_for_rest()
        for one in stayed:
            one.process.send_signal(signal.SIGSTOP)
        time.sleep(LAST_PACKETS_S)
        looking.close()
        exit_code = running.returncode
    seconds = {"all": time.monotonic() - started, "set-up": ready - started}
    facts = {"ports": ports, "times_ns": times, "exit_code": exit_code, "seconds": seconds}
    write(folder / "run.json", facts)


def load(folder: Path, broker_log: Path) -> Kills:
    """Load the files of the run."""
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    lines = tuple(json.loads(line) for line in (folder / "live.out").read_bytes().splitlines())
    accounts = {}
    for party in PARTIES:
        end = f":{facts['ports'][party.name]}"
        stderr = (folder / f"{party.name}.err").read_text(encoding="utf-8", errors="replace")
        accounts[party.name] = Account(
            party.name,
            tuple(read_reports_so_far(folder / f"{party.name}.out")),
            tuple(party.log(stderr.splitlines())),
            stderr,
            tuple(line for line in lines if line["type"] != "problem" and line["broker"].endswith(end)),
        )
    return Kills(
        folder,
        facts["ports"],
        {name: (before, after) for name, (before, after) in facts["times_ns"].items()},
        lines,
        (folder / "live.err").read_text(encoding="utf-8"),
        facts["exit_code"],
        accounts,
        tuple(one for one in handled(broker_log) if one.listener in LISTENERS),
    )


@contextmanager
def _nobody_at(ports: Iterable[int]) -> Iterator[None]:
    """Keep ports from being assigned to other sockets: a client whose local port is the one it connects to would talk
    to itself. The ports refuse connections, and a broker can listen on them."""
    with ExitStack() as stack:
        for port in ports:
            placeholder = stack.enter_context(socket.socket())
            placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            placeholder.bind(("127.0.0.1", port))
        yield


def outstanding(logged: Iterable[Entry]) -> dict[Key, Entry]:
    """Requests in a log without responses."""
    waiting: dict[Key, list[Entry]] = defaultdict(list)
    for entry in logged:
        key = (entry.get("client_id"), entry.get("client_port"), entry["node"], entry["correlation_id"])
        if entry["kind"] == "request":
            waiting[key].append(entry)
        elif waiting[key]:
            # A client that has restarted its correlation ids gets no more responses to older requests.
            waiting[key].pop()
    return {(*key, place): entry for key, entries in waiting.items() for place, entry in enumerate(entries)}


def read_reports_so_far(file: Path) -> list[Entry]:
    """All complete reports; a killed process may leave an incomplete line."""
    whole, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


def _owns(member: _Party, partitions: list[int]) -> bool:
    reports = member.reports("assigned")
    return bool(reports) and reports[-1]["partitions"] == partitions
