"""Brokers of before Kafka 4 with the ZooKeeper that keeps their cluster: Kafka 0.8.2 to 3.9 on a Java of today.

    with RealZooKeeper(directory, version) as zookeeper:
        with ZooKeeperBroker(directory, zookeeper, version=version) as broker:
            …

ZooKeeper's own traffic is not Kafka's, and is not recorded.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .broker import LOGGER, QUICK_PROPERTIES, Listener, RealBroker, free_ports, release
from .distribution import SetupError, class_path, java
from .server import ServerProcess

ZOOKEEPER_POM = Path(__file__).with_name("kafka-zookeeper-pom.xml")
LOG4J = Path(__file__).with_name("log4j.properties")

FIRST_LISTENERS = (0, 9)
"""From this release on a broker may have several listeners, one for each security protocol (KIP-2)."""
FIRST_NAMED_LISTENERS = (0, 10, 2)
"""From this release on listeners have names, so brokers can have one of their own (KIP-103)."""
FIRST_READY_WITHOUT_COMMA = (1, 0)
"""Before this release a server says "[Kafka Server 1], started"."""
COMMAND_TIMEOUT_S = 60


class RealZooKeeper(ServerProcess):
    """A lone ZooKeeper server of the release that a Kafka release brings along; a context manager.

    ``start`` raises ``SetupError`` with the end of the log if it does not come up.
    """

    def __init__(self, directory: Path, version: str) -> None:
        super().__init__("ZooKeeper", directory)
        self.version = version
        self.port = 0

    @property
    def log_file(self) -> Path:
        """The server's log."""
        return self.directory / "zookeeper.log"

    @property
    def address(self) -> str:
        """``host:port`` as brokers want it in ``zookeeper.connect``."""
        return f"127.0.0.1:{self.port}"

    def _prepare(self) -> list[str]:
        self.port = free_ports({"zookeeper": "127.0.0.1"})["zookeeper"]
        settings = self.directory / "zookeeper.properties"
        lines = [f"dataDir={self.directory / 'data'}", "clientPortAddress=127.0.0.1", f"clientPort={self.port}"]
        lines += ["tickTime=500", "maxClientCnxns=0", "admin.enableServer=false"]
        settings.write_text("\n".join(lines) + "\n")
        return [
            *(java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-Dlog4j.configuration={LOG4J.as_uri()}", "-cp", class_path(self.version, ZOOKEEPER_POM)),
            *("org.apache.zookeeper.server.ZooKeeperServerMain", str(settings)),
        ]

    def _is_ready(self) -> bool:
        """Whether it accepts connections; its log does not report that."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


class ZooKeeperBroker(RealBroker):
    """A broker that has its cluster in ZooKeeper; settings and methods are those of ``RealBroker``.

    Up to 0.10.1 brokers talk on the listener of the clients; from 0.10.2 on they have one of their own, ``INTERNAL``.
    ``log_dirs`` is the number of folders for partitions. The broker's log names
    all requests that it served (``journal_brokers``).
    """

    _pom = ZOOKEEPER_POM

    def __init__(
        self,
        directory: Path,
        zookeeper: RealZooKeeper,
        *,
        version: str,
        listeners: Sequence[Listener] = (Listener(),),
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        node_id: int = 1,
        log_dirs: int = 1,
    ) -> None:
        # Its full request log is at debug from 1.1 on; before, where log4j writes it, log4j.properties says trace.
        options = [f"{LOGGER}.log.kafka.request.logger=debug", f"-Dlog4j.configuration={LOG4J.as_uri()}"]
        super().__init__(
            directory,
            version=version,
            listeners=listeners,
            properties=properties,
            java_options=[*options, "-Dzookeeper.sasl.client=false", *java_options],
            node_id=node_id,
            roles=("broker",),
        )
        self.zookeeper = zookeeper
        self._release = release(version)
        self._log_dirs = log_dirs
        server = (
            f"[Kafka Server {node_id}]," if self._release < FIRST_READY_WITHOUT_COMMA else f"[KafkaServer id={node_id}]"
        )
        self._ready = f"{server} started".encode()

    def choose_ports(self) -> dict[str, int]:
        """Ports of all listeners, from 0.10.2 on also ``INTERNAL``; chosen once, by ``start`` at the latest."""
        if not self.ports:
            own = {"INTERNAL": "127.0.0.1"} if self._release >= FIRST_NAMED_LISTENERS else {}
            self.ports = free_ports(own | {name: one.host for name, one in self.listeners.items()})
        return self.ports

    def run_tool(self, main: str, *arguments: str) -> None:
        """Run one of Kafka's own command line programs (``kafka.admin.ConfigCommand``) of this release to its end.

        Raises ``SetupError`` if it fails.
        """
        command = [java(), "-cp", class_path(self.version, self._pom), main, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise SetupError(f"{main} failed: {done.stdout[-800:]}{done.stderr[-800:]}")

    def _settings(self) -> dict[str, str]:
        folders = [self.data_directory, *(self.directory / f"data-{n}" for n in range(2, self._log_dirs + 1))]
        return {
            **{name: value for name, value in QUICK_PROPERTIES.items() if not name.startswith("controller.")},
            "broker.id": str(self.node_id),
            "zookeeper.connect": self.zookeeper.address,
            "controlled.shutdown.enable": "true",
            # Records of these captures are years old: none is to be deleted for it.
            "log.retention.check.interval.ms": "86400000",
            "log.dirs": ",".join(map(str, folders)),
            **self._listener_settings(),
            **self._extra,
        }

    def _listener_settings(self) -> dict[str, str]:
        if self._release < FIRST_LISTENERS:
            (listener,) = self.listeners.values()
            return {"host.name": listener.host, "port": str(self.ports[listener.name])}
        addresses = {name: f"{one.host}:{self.ports[name]}" for name, one in self.listeners.items()}
        if self._release < FIRST_NAMED_LISTENERS:
            served = [f"{one.protocol}://{addresses[name]}" for name, one in self.listeners.items()]
            return {"listeners": ",".join(served)}
        addresses["INTERNAL"] = f"127.0.0.1:{self.ports['INTERNAL']}"
        protocols = {"INTERNAL": "PLAINTEXT"} | {name: one.protocol for name, one in self.listeners.items()}
        return {
            "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{value}" for name, value in protocols.items()),
            "inter.broker.listener.name": "INTERNAL",
        }

    def _format(self, settings: Path) -> None:
        """Nothing to do: only KRaft's storage is formatted."""
