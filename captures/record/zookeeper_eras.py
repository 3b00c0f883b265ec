"""Scenarios of brokers with ZooKeeper, 0.8.2 to 3.9, each with the Java client of its release.

The programs of an era are in ``clients/java_<first release that has what they use>``; they use those of eras before.
Single brokers are their own controllers: their captures also have the requests that they send to themselves.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .broker import Listener, RealBroker
from .distribution import SetupError, class_path, java
from .journal import Entry
from .journal_brokers import broker_log
from .programs import CLIENTS
from .scenario import BrokerOptions, Play, Scenario
from .zookeeper import ZOOKEEPER_POM, RealZooKeeper, ZooKeeperBroker

Client = Callable[..., list[Entry]]

ERAS = ("java_0.8", "java_0.9", "java_0.10", "java_0.11", "java_1.1", "java_2.0", "java_2.4", "java_2.8")


@functools.cache
def _classes(version: str, source: str) -> str:
    """Folder with a program, and what it uses of its own and earlier eras, compiled against one release."""
    folder = tempfile.mkdtemp(prefix="kafkasniff-classes-")
    atexit.register(shutil.rmtree, folder)
    command = [str(Path(java()).with_name("javac")), "-d", folder, "-cp", class_path(version, ZOOKEEPER_POM)]
    command += ["-sourcepath", ":".join(str(CLIENTS / era) for era in ERAS), str(CLIENTS / source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"javac: {done.stderr[-2000:]}")
    return folder


def era_program(version: str, source: str) -> Callable[[], Sequence[str]]:
    """Makes the command line of ``clients/<source>`` with the jars of one release."""
    return lambda: [
        java(),
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{_classes(version, source)}:{class_path(version, ZOOKEEPER_POM)}",
        Path(source).stem,
    ]


def _one_run(brokers: list[ZooKeeperBroker], client: Client) -> None:
    """All brokers start, the client is run once with the addresses of the first and of ZooKeeper, all brokers stop."""
    for broker in brokers:
        broker.start()
    client(*(brokers[0].bootstrap(name) for name in brokers[0].listeners), brokers[0].zookeeper.address)


def _with_users(brokers: list[ZooKeeperBroker], client: Client) -> None:
    """As ``_one_run``; ZooKeeper holds the SCRAM credentials of bob before the broker starts."""
    credentials = "SCRAM-SHA-256=[iterations=4096,password=bob-secret]"
    where = ("--zookeeper", brokers[0].zookeeper.address, "--entity-type", "users", "--entity-name", "bob")
    brokers[0].run_tool("kafka.admin.ConfigCommand", *where, "--alter", "--add-config", credentials)
    _one_run(brokers, client)


def _one_goes(brokers: list[ZooKeeperBroker], client: Client, first_act: str = "both") -> None:
    """The second broker stops in a controlled way and comes back; the client is run before, between and after."""
    first, second = brokers
    first.start()  # and becomes the controller
    second.start()
    address, zookeeper = first.bootstrap(), first.zookeeper.address
    client(first_act, address, zookeeper)
    second.stop()
    client("alone", address, zookeeper)
    second.start()
    client("again", address, zookeeper)


def _scenario(
    file: str,
    shows: str,
    version: str,
    source: str,
    *,
    brokers: int = 1,
    listeners: Sequence[Listener] = (Listener(),),
    properties: dict[str, str] | None = None,
    java_options: Callable[[Path], Sequence[str]] = lambda _: (),
    log_dirs: int = 1,
    acts: Callable[[list[ZooKeeperBroker], Client], None] = _one_run,
) -> Scenario:
    """Brokers of one release and its client; requests come from the brokers' own request logs."""
    made: list[ZooKeeperBroker] = []

    def nodes(work: Path) -> list[RealBroker]:
        zookeeper = RealZooKeeper(work / "zookeeper", version)
        made[:] = [
            ZooKeeperBroker(
                work / f"broker-{number}",
                zookeeper,
                version=version,
                listeners=listeners,
                properties=properties,
                java_options=java_options(work),
                node_id=number,
                log_dirs=log_dirs,
            )
            for number in range(1, brokers + 1)
        ]
        return list(made)

    def play(_: list[RealBroker], client: Client) -> None:
        with made[0].zookeeper:
            acts(made, client)
            for broker in reversed(made):
                broker.stop()  # before ZooKeeper, or they would not find their way out

    return Scenario(
        file,
        shows,
        era_program(version, source),
        None,
        log_is_complete=False,  # not what an authenticator reads, nor what was asked when a connection ended
        broker=BrokerOptions(version=version, listeners=listeners),
        play=Play(nodes, play, log=broker_log),
    )


# Topics are made on first use: clients before 0.11 had no other way.
_ON_USE = {"auto.create.topics.enable": "true", "num.partitions": "1"}

SASL = Listener("SASL", "SASL_PLAINTEXT")
_SASL = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}


def _log_ins(work: Path) -> list[str]:
    """Java options with which a broker knows its users; the way of before 1.1, which every later release knows too."""
    file = work / "jaas.conf"
    security = "org.apache.kafka.common.security"
    file.write_text(
        "KafkaServer {\n"
        f'  {security}.plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret";\n'
        f"  {security}.scram.ScramLoginModule required;\n"
        "};\n"
    )
    return [f"-Djava.security.auth.login.config={file}"]


def _authorizer(name: str) -> dict[str, str]:
    return {"authorizer.class.name": name, "super.users": "User:ANONYMOUS;User:alice"}


# Two brokers that say little while nothing happens. What they keep for themselves has two copies where it can.
_CLUSTER = {
    "replica.fetch.wait.max.ms": "4000",
    "replica.lag.time.max.ms": "30000",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.max.retries": "1",
    "delete.topic.enable": "true",
}

SCENARIOS = [
    _scenario(
        "zookeeper-2.8-cluster.pcap",
        "all listeners of two brokers with ZooKeeper: replicas, transaction markers, a reassignment, a broker that "
        "stops in a controlled way and comes back, a topic deleted",
        "2.8.2",
        "java_2.8/Cluster.java",
        brokers=2,
        properties=_CLUSTER,
        acts=_one_goes,
    ),
    _scenario(
        "zookeeper-3.9-cluster.pcap",
        "all listeners of two brokers of the last release with ZooKeeper: as with 2.8, AlterPartition, "
        "AllocateProducerIds",
        "3.9.2",
        "java_2.8/Cluster.java",
        brokers=2,
        properties=_CLUSTER,
        acts=functools.partial(_one_goes, first_act="few"),
    ),
    _scenario(
        "java-0.8.2.pcap",
        "message format 0 in all codecs, commits in ZooKeeper and by the broker, all clients of its time; "
        "the controller",
        "0.8.2.2",
        "java_0.8/Java08.java",
        properties={**_ON_USE, "message.max.bytes": "2000", "replica.fetch.max.bytes": "2000"},
    ),
    _scenario(
        "java-0.9.pcap",
        "message format 0 in all codecs, a group: a second member joins and leaves, commits; the controller",
        "0.9.0.1",
        "java_0.9/Java09.java",
        properties={**_ON_USE, "num.partitions": "2", "message.max.bytes": "2000", "replica.fetch.max.bytes": "2000"},
    ),
    _scenario(
        "java-0.10.2.pcap",
        "message format 1 in all codecs, offsets by time, raw SASL PLAIN and SCRAM, topics made and deleted; "
        "the controller",
        "0.10.2.2",
        "java_0.10/Java010.java",
        listeners=[Listener(), SASL],
        properties={**_SASL, "delete.topic.enable": "true"},
        java_options=_log_ins,
        acts=_with_users,
    ),
    _scenario(
        "zookeeper-0.10.2-cluster.pcap",
        "all listeners of two brokers with ZooKeeper: replicas, a broker that stops in a controlled way and comes "
        "back, a topic deleted",
        "0.10.2.2",
        "java_0.10/Cluster010.java",
        brokers=2,
        properties={**_CLUSTER, "auto.leader.rebalance.enable": "true", "leader.imbalance.check.interval.seconds": "1"},
        acts=_one_goes,
    ),
    _scenario(
        "java-0.11.pcap",
        "message format 2 with headers by an idempotent producer, transactions; topics, settings, ACLs by the first "
        "AdminClient; the controller",
        "0.11.0.3",
        "java_0.11/Java011.java",
        properties={**_authorizer("kafka.security.auth.SimpleAclAuthorizer"), "delete.topic.enable": "true"},
    ),
    _scenario(
        "java-1.1.pcap",
        "partitions added, records deleted, a replica moved to another folder, SaslAuthenticate, transactions; "
        "the controller",
        "1.1.1",
        "java_1.1/Java11.java",
        listeners=[Listener(), SASL],
        properties=_SASL,
        java_options=_log_ins,
        log_dirs=2,
    ),
    _scenario(
        "java-2.0.pcap",
        "a group: a second member joins and leaves, described and deleted; prefixed ACLs, a delegation token made, "
        "used, renewed and expired; the controller",
        "2.0.1",
        "java_2.0/Java20.java",
        listeners=[Listener(), SASL],
        properties={
            **_SASL,
            **_authorizer("kafka.security.auth.SimpleAclAuthorizer"),
            "delegation.token.master.key": "secret-of-the-tokens",
        },
        java_options=_log_ins,
    ),
    _scenario(
        "java-2.4.pcap",
        "zstd, a cooperative group, a static member removed, offsets deleted, single settings, elections, "
        "reassignments, transactions; the controller",
        "2.4.1",
        "java_2.4/Java24.java",
        properties=_authorizer("kafka.security.authorizer.AclAuthorizer"),
    ),
]
