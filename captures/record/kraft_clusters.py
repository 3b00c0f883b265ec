"""Scenarios of KRaft clusters: quorums that elect, change and fetch snapshots; replicas that come, go and move."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from .broker import LOGGER, RealBroker
from .distribution import DEFAULT_VERSION, SetupError
from .journal import Entry, java_log
from .programs import SHARE_GROUPS, java_program
from .scenario import BrokerOptions, Play, Run, Scenario

REQUESTS_LOGGED = (f"{LOGGER}.log.org.apache.kafka.clients.NetworkClient=debug",)

# A record that says nothing comes twice a second otherwise, and with it a fetch of each node.
QUIET = {"metadata.max.idle.interval.ms": "0"}

SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.max.retention.ms": "1000",
    "metadata.log.segment.ms": "2000",
}
"""Each record makes a snapshot, and the log in front of it goes with the next cleaning, which comes once a minute."""
CLEANING_TIMEOUT_S = 150.0

SETTLE_S = 1.5
"""Time for what follows by itself: an election, a registration, a replica that catches up."""


def cluster(
    work: Path,
    roles: Mapping[int, Sequence[str]],
    *,
    version: str = DEFAULT_VERSION,
    properties: Mapping[str, str] | None = None,
    storage_options: Sequence[str] = (),
    later_voters: Sequence[int] = (),
    static_quorum: bool = False,
) -> list[RealBroker]:
    """Nodes of one cluster by their ids, which log their requests; ``later_voters`` are not voters at first."""
    quorum: list[RealBroker] = []
    nodes = [
        RealBroker(
            work / f"node-{node}",
            version=version,
            properties=properties,
            storage_options=storage_options,
            java_options=REQUESTS_LOGGED,
            node_id=node,
            roles=parts,
            quorum=quorum,
            voter=node not in later_voters,
            static_quorum=static_quorum,
        )
        for node, parts in roles.items()
    ]
    quorum += [node for node in nodes if "controller" in node.roles]
    return nodes


def start_together(nodes: Sequence[RealBroker]) -> None:
    """None of a quorum's nodes is ready before most of them run."""
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_until_ready()


def stop_backwards(nodes: Sequence[RealBroker], last: RealBroker) -> None:
    """Stop all nodes, the leader as the last: those that miss it ask for it without a pause."""
    for node in [one for one in nodes if one is not last] + [last]:
        node.stop()


def answered_log(lines: Iterable[str]) -> Iterator[Entry]:
    """As ``nodes_log``, without requests that have no answer: a broker that stops logs some that it does not send."""
    entries = list(nodes_log(lines))
    answered = Counter(_exchange(entry) for entry in entries if entry["kind"] == "response")
    for entry in entries:
        if entry["kind"] == "request":
            answered[_exchange(entry)] -= 1
            if answered[_exchange(entry)] < 0:
                continue
        yield entry


def _exchange(entry: Entry) -> tuple[object, ...]:
    return tuple(entry[name] for name in ("client_id", "node", "api_key", "api_version", "correlation_id"))


def last_leader(nodes: Sequence[RealBroker]) -> RealBroker:
    """The node whose last transition by its log made it the leader. Raises ``SetupError`` if there is none."""
    for node in nodes:
        transitions = re.findall(rb"Completed transition to (\w+)", node.log_file.read_bytes())
        if transitions and transitions[-1] == b"Leader":
            return node
    raise SetupError("no node leads")


def directory_of(node: RealBroker) -> str:
    """Id of a node's log folder, which names a voter together with the node's id."""
    found = re.search(r"^directory\.id=(\S+)$", (node.data_directory / "meta.properties").read_text(), re.MULTILINE)
    if found is None:
        raise SetupError(f"the log folder of node {node.node_id} has no id")
    return found[1]


def nodes_log(lines: Iterable[str]) -> Iterator[Entry]:
    """Requests and responses of a node, with the body of the first of each kind alone: most are much the same."""
    seen = set()
    for entry in java_log(lines):
        kind = entry["kind"], entry["api_key"], entry["api_version"]
        if kind in seen:
            entry.pop("text", None)
        seen.add(kind)
        yield entry


def controllers(nodes: Sequence[RealBroker]) -> str:
    """Addresses of the controllers, for ``bootstrap.controllers``."""
    return ",".join(f"127.0.0.1:{node.port('CONTROLLER')}" for node in nodes)


# --- the quorum

OLD_LEVEL_RELEASE = "4.2"
NEW_LEVEL = "33"
"""``metadata.version``: what the storage is formatted with, and the level that the client raises it to."""


def _three_controllers(work: Path) -> list[RealBroker]:
    return cluster(
        work,
        dict.fromkeys((1, 2, 3), ("controller",)),
        properties=SNAPSHOTS,
        storage_options=("--release-version", OLD_LEVEL_RELEASE),
        later_voters=(3,),
    )


def _until_the_log_begins_later(nodes: list[RealBroker]) -> None:
    """Two voters run until the first records are in snapshots alone: who is new then has to fetch one."""
    first, second, _ = nodes
    start_together([first, second])
    deadline = time.monotonic() + CLEANING_TIMEOUT_S
    beginnings = [node.data_directory / "__cluster_metadata-0" / "00000000000000000000.log" for node in (first, second)]
    while any(file.exists() for file in beginnings):
        if time.monotonic() > deadline:
            raise SetupError("the metadata log was not cleaned")
        time.sleep(1)
    stop_backwards([first, second], last=first)
    for node in nodes:
        node.properties.update(QUIET)


def _quorum_changes(nodes: list[RealBroker], run: Run) -> None:
    first, second, third = nodes
    start_together([first, second])
    time.sleep(SETTLE_S)  # a controller serves requests before it has read the metadata
    run("upgrade", controllers([first, second]), NEW_LEVEL)
    third.start()  # fetches the snapshot
    time.sleep(SETTLE_S)
    run("add", controllers([first]), "3", directory_of(third), str(third.port("CONTROLLER")))
    leader = last_leader(nodes)
    others = [node for node in nodes if node is not leader]
    leader.stop()  # resigns
    time.sleep(SETTLE_S)
    # A voter whose name differs from the voters' records notifies the leader.
    leader.properties["advertised.listeners"] = f"CONTROLLER://localhost:{leader.port('CONTROLLER')}"
    leader.start()
    time.sleep(SETTLE_S)
    run("describe", controllers(others))
    new_leader = last_leader(others)
    gone = next(node for node in others if node is not new_leader)
    run("remove", controllers([new_leader]), str(gone.node_id), directory_of(gone))
    gone.stop()
    run("unregister", controllers([new_leader]), str(gone.node_id))
    stop_backwards(nodes, last=new_leader)


# --- three brokers

BROKERS = SHARE_GROUPS | {
    **QUIET,
    "replica.fetch.wait.max.ms": "5000",
}


def _three_brokers(work: Path) -> list[RealBroker]:
    nodes = cluster(work, {1: ("broker", "controller"), 2: ("broker",), 3: ("broker",)}, properties=BROKERS)
    for node in nodes:
        # Two folders each (JBOD): a broker reports the folder of a replica.
        node.properties["log.dirs"] = f"{node.data_directory},{_second_folder(node)}"
    return nodes


def _second_folder(node: RealBroker) -> Path:
    return node.directory / "more"


def _brokers_come_and_go(nodes: list[RealBroker], run: Run) -> None:
    first, second, third = nodes
    start_together(nodes)
    run("all", first.bootstrap(), str(_second_folder(first)))
    third.stop()
    run("two", first.bootstrap())
    third.start()
    run("again", first.bootstrap())
    stop_backwards([third, second], last=first)


# --- earlier releases, two nodes each

ERA_PROGRAMS = {"2.8.1": "3.3.2"}
"""What a release's client program is compiled against where that is not the release itself."""


def _era(version: str, levels: tuple[str, str] | None, shows: str, *, static_quorum: bool = False) -> Scenario:
    """A capture of one release, client and nodes.

    ``levels``: what the storage is formatted with, a release, and the level of metadata.version that it is raised to;
    without, only the first act is played.
    """

    def nodes(work: Path) -> list[RealBroker]:
        return cluster(
            work,
            dict.fromkeys((1, 2), ("broker", "controller")),
            version=version,
            properties=QUIET,
            storage_options=("--release-version", levels[0]) if levels else (),
            static_quorum=static_quorum,
        )

    def acts(nodes: list[RealBroker], run: Run) -> None:
        start_together(nodes)
        address = nodes[0].bootstrap()
        run("first", address, "1" if levels else "2")
        if levels:  # a second replica comes by reassignment
            run("then", address, levels[1])
        else:
            run("group", address)
        leader = last_leader(nodes)
        leader.stop()  # resigns
        for node in nodes:
            node.kill()  # alone it cannot even say good-bye

    return Scenario(
        f"kraft-{version.rpartition('.')[0]}.pcap",
        shows,
        java_program("KraftEra", version=version, sources="java-kraft-eras", compiled_with=ERA_PROGRAMS.get(version)),
        java_log,
        broker=BrokerOptions(version=version),
        play=Play(nodes, acts, log=nodes_log, one_program=True),
    )


ERAS = [
    # Not 2.8.2: since that release checks sizes before it allocates (CVE-2022-34917), its controller cannot read a
    # broker's registration back ("Tried to allocate a collection of size 2, but there are only 0 bytes remaining").
    _era("2.8.1", None, "early access KRaft: two nodes with a static quorum, replication, a group"),
    _era("3.3.2", ("3.3-IV0", "7"), "KRaft of 3.3: two nodes, a replica added, a transaction, metadata.version raised"),
    _era("3.9.2", None, "KRaft of 3.9 with a static quorum: two nodes, replication, a group", static_quorum=True),
    _era(
        "4.0.1", ("3.9-IV0", "25"), "KRaft of 4.0: two nodes, a replica added, a transaction, metadata.version raised"
    ),
]

STREAMS_GROUPS = {
    "group.streams.topology.description.plugin.class": "org.apache.kafka.server.streams."
    "InMemoryTopologyDescriptionPlugin",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
}

SCENARIOS = [
    *ERAS,
    Scenario(
        "java-4.4-streams-group.pcap",
        "streams group (KIP-1071) of one member that describes its topology (KIP-1331); described, offsets set and "
        "deleted",
        java_program("StreamsGroup", version=DEFAULT_VERSION, sources="java-4.4"),
        java_log,
        broker=BrokerOptions(properties=STREAMS_GROUPS),
    ),
    Scenario(
        "kraft-quorum.pcap",
        "three controllers: elections with pre-vote, a leader that resigns, a node that fetches a snapshot and becomes "
        "a voter, a voter that changes its address and one that is removed and unregistered, metadata.version raised",
        java_program("KraftQuorum", version=DEFAULT_VERSION, sources="java-4.4"),
        java_log,
        play=Play(
            _three_controllers, _quorum_changes, before=_until_the_log_begins_later, log=nodes_log, one_program=True
        ),
    ),
    Scenario(
        "kraft-three-brokers.pcap",
        "three brokers with two log folders each, one of them the controller: replicas that lag, move and return, a "
        "leader elected, a hanging transaction aborted, share group state, a broker unregistered and back",
        java_program("KraftBrokers"),
        java_log,
        log_is_complete=False,  # it is for what was answered
        play=Play(_three_brokers, _brokers_come_and_go, log=answered_log, one_program=True),
    ),
]
