"""A real Apache Kafka broker on loopback, for captures and for integration tests.

    with RealBroker(directory) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap()})

One process is broker and controller (KRaft); more brokers can join its controller, or several controllers make a
quorum. Clients get listeners of their own, so that a capture of a listener's port holds nothing of what brokers say to
themselves and each other.
"""

from __future__ import annotations

import base64
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .distribution import DEFAULT_VERSION, POM, SetupError, class_path, java
from .server import ServerProcess

CLUSTER_ID = "a2Fma2FzbmlmZi1jYXB0dQ"
FORMAT_TIMEOUT_S = 90.0
FIRST_DYNAMIC_QUORUM = (3, 9)
"""From this release on the storage is formatted for a quorum whose voters can change (KIP-853)."""
LOGGER = "-Dorg.slf4j.simpleLogger"

# Small and quick rather than fast: one record at a time is all that it will ever see.
_JVM = ("-Xms96m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

QUICK_PROPERTIES = {
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """Where clients connect: a name (upper case), Kafka's security protocol and a loopback address."""

    name: str = "CLIENT"
    protocol: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of this listener alone, without their ``listener.name.…`` prefix."""


class RealBroker(ServerProcess):
    """One broker process with its own data folder; a context manager, or ``start()`` and ``stop()``.

    ``properties`` are added to the server's settings, ``storage_options`` to the command that formats its storage
    (``--add-scram …``), ``java_options`` to the server's command line, ``jars`` to its class path. With ``controller``
    this is a further broker of another's cluster, without a controller of its own: ``node_id`` must differ then.

    Several controllers: all nodes of the cluster are given the same list as ``quorum``, to be filled with those that
    are controllers before the first is launched; ``roles`` says what this node is (Kafka's ``process.roles``). Releases
    before 3.9 know a static quorum only (``controller.quorum.voters``); in later ones it is dynamic (KIP-853) unless
    ``static_quorum``: a controller with ``voter=False`` then is not among its first voters. None of them is ready
    before most of them run: ``launch`` all, then ``wait_until_ready``.

    ``start`` raises ``SetupError`` with the end of the log if the broker does not come up.
    """

    _pom = POM
    _ready = b"Kafka Server started"
    """Log line of a server that is ready."""

    def __init__(
        self,
        directory: Path,
        *,
        version: str = DEFAULT_VERSION,
        listeners: Sequence[Listener] = (Listener(),),
        properties: Mapping[str, str] | None = None,
        storage_options: Sequence[str] = (),
        java_options: Sequence[str] = (),
        jars: Sequence[Path] = (),
        node_id: int = 1,
        controller: RealBroker | None = None,
        cluster_id: str = CLUSTER_ID,
        roles: Sequence[str] | None = None,
        quorum: Sequence[RealBroker] | None = None,
        voter: bool = True,
        static_quorum: bool = False,
    ) -> None:
        super().__init__("the broker", directory)
        self.version = version
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.listeners = {listener.name: listener for listener in listeners}
        self.ports: dict[str, int] = {}
        self.advertised_ports: dict[str, int] = {}
        """Ports advertised instead of a listener's own, because clients connect through a proxy."""
        self._extra = dict(properties or {})
        self._storage_options = tuple(storage_options)
        self._java_options = tuple(java_options)
        self._jars = tuple(jars)
        self.roles = tuple(roles or (("broker",) if controller else ("broker", "controller")))
        self.voter = voter
        self._quorum = quorum if quorum is not None else (controller or self,)
        self._static = static_quorum or release(version) < FIRST_DYNAMIC_QUORUM

    @property
    def properties(self) -> dict[str, str]:
        """The settings that were added; changes hold from the next start on."""
        return self._extra

    @property
    def data_directory(self) -> Path:
        """The first of the server's log folders; the metadata log is in it."""
        return self.directory / "data"

    def port(self, listener: str = "CLIENT") -> int:
        """TCP port of a listener."""
        return self.ports[listener]

    def bootstrap(self, listener: str = "CLIENT") -> str:
        """``host:port`` as clients want it in ``bootstrap.servers``."""
        port = self.advertised_ports.get(listener, self.ports[listener])
        return _address(self.listeners[listener].host, port)

    def choose_ports(self) -> dict[str, int]:
        """Ports of all listeners, also ``CONTROLLER`` and ``INTERNAL``; chosen once, by ``start`` at the latest."""
        if not self.ports:
            hosts = {"CONTROLLER": "127.0.0.1"} if "controller" in self.roles else {}
            if "broker" in self.roles:
                hosts |= {"INTERNAL": "127.0.0.1"} | {name: one.host for name, one in self.listeners.items()}
            self.ports = free_ports(hosts)
        return self.ports

    def _prepare(self) -> list[str]:
        """Choose ports, write the settings, format the storage if it is new."""
        self.choose_ports()
        settings = self.directory / "server.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        if not (self.data_directory / "meta.properties").exists():
            self._format(settings)
        return [*self._java(*self._java_options), "kafka.Kafka", str(settings)]

    def _is_ready(self) -> bool:
        return self._ready in self._said_since_launch()

    def _java(self, *options: str) -> list[str]:
        classes = os.pathsep.join([*map(str, self._jars), class_path(self.version, self._pom)])
        return [java(), *_JVM, f"{LOGGER}.showDateTime=true", *options, "-cp", classes]

    def _settings(self) -> dict[str, str]:
        addresses: dict[str, str] = {}
        protocols = {"CONTROLLER": "PLAINTEXT"}
        own: dict[str, str] = {}
        if "broker" in self.roles:
            addresses["INTERNAL"] = f"INTERNAL://127.0.0.1:{self.ports['INTERNAL']}"
            protocols["INTERNAL"] = "PLAINTEXT"
            own["inter.broker.listener.name"] = "INTERNAL"
            for name, listener in self.listeners.items():
                addresses[name] = f"{name}://{_address(listener.host, self.ports[name])}"
                protocols[name] = listener.protocol
                own |= {f"listener.name.{name.lower()}.{key}": value for key, value in listener.properties.items()}
            # Not those of the controller: releases up to 3.8 refuse them here.
            told = addresses | {name: f"{name}://{self.bootstrap(name)}" for name in self.advertised_ports}
            own["advertised.listeners"] = ",".join(told.values())
        served = [f"CONTROLLER://{self._controller_address()}"] if "controller" in self.roles else []
        return {
            **QUICK_PROPERTIES,
            "process.roles": ",".join(self.roles),
            "node.id": str(self.node_id),
            "listeners": ",".join([*served, *addresses.values()]),
            "listener.security.protocol.map": ",".join(f"{name}:{value}" for name, value in protocols.items()),
            **self._quorum_setting(),
            "log.dirs": str(self.data_directory),
            **own,
            **self._extra,
        }

    def _controller_address(self) -> str:
        return f"127.0.0.1:{self.choose_ports()['CONTROLLER']}"

    def _quorum_setting(self) -> dict[str, str]:
        if self._static:
            voters = (f"{one.node_id}@{one._controller_address()}" for one in self._quorum)
            return {"controller.quorum.voters": ",".join(voters)}
        return {"controller.quorum.bootstrap.servers": ",".join(one._controller_address() for one in self._quorum)}

    def _format(self, settings: Path) -> None:
        command = [*self._java(), "kafka.tools.StorageTool", "format", *self._first_voters(), "-t", self.cluster_id]
        command += ["-c", str(settings), *self._storage_options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise SetupError(f"formatting the storage failed: {done.stdout[-800:]}{done.stderr[-800:]}")

    def _first_voters(self) -> list[str]:
        """Options of the formatting command for a dynamic quorum."""
        if self._static:
            return []
        if "controller" not in self.roles or not self.voter:
            return ["--no-initial-controllers"]
        voters = [one for one in self._quorum if one.voter]
        if voters == [self]:
            return ["--standalone"]
        named = (f"{one.node_id}@{one._controller_address()}:{directory_id(one.node_id)}" for one in voters)
        return ["--initial-controllers", ",".join(named)]


def directory_id(node_id: int) -> str:
    """Id of the log folder of a node that is formatted as one of several voters, as Kafka prints it."""
    return base64.urlsafe_b64encode(b"log folder %5d" % node_id).decode().rstrip("=")


def release(version: str) -> tuple[int, ...]:
    """``"0.10.2.2"`` → ``(0, 10, 2, 2)``."""
    return tuple(int(part) for part in version.split("."))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def free_ports(hosts: Mapping[str, str]) -> dict[str, int]:
    """A free TCP port for each name on its host, all of them different (held open until all are found)."""
    opened: list[socket.socket] = []
    ports: dict[str, int] = {}
    try:
        for name, host in hosts.items():
            opened.append(socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET))
            ports[name] = opened[-1].getsockname()[1]
    finally:
        for one in opened:
            one.close()
    return ports
