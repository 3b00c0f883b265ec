"""Scenes for the tests of detectors: trouble between clients and brokers, in several clusters, and with TLS."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.analysis.detectors.scenes import heartbeat, produce, records
from tests.analysis.detectors.talks import SECOND, Talk
from tests.craft.conversation import START_NS, Conversation
from tests.craft.packet import ACK, RST, SYN
from tests.craft.samples import BROKER
from tests.tls.endpoints import Flight, Pair

OTHER = ("10.0.0.10", 9092)
TOPICS = {"topics": [{"name": "orders"}]}


def advertised(*brokers: tuple[str, int]) -> dict[str, Any]:
    """A Metadata response that names brokers."""
    return {"brokers": [{"node_id": number, "host": host, "port": port} for number, (host, port) in enumerate(brokers)]}


def asking(
    brokers: Sequence[tuple[str, int]], times: int = 4, *, address: str = "10.0.0.5", port: int = 51_334
) -> Talk:
    """A client that asks for metadata several times."""
    talk = Talk(address, port)
    heartbeat(talk)
    for _ in range(times):
        talk.ask("Metadata", 1, TOPICS, advertised(*brokers), then=1)
    return talk


class Attempt(Conversation):
    """A connection attempt that fails."""

    def __init__(
        self, number: float, *, refused: bool, broker: tuple[str, int] = OTHER, address: str = "10.0.0.5"
    ) -> None:
        super().__init__((address, 52_000 + round(number * 10)), broker)
        self.wait(round(number * SECOND))
        syn = self._add("client", SYN)
        if refused:
            self._seen["broker"] = self._next["client"]
            self._add("broker", RST | ACK)
        else:
            self.wait(SECOND)
            self.packets.append(syn.but(time_ns=self.time_ns, ident=999))


def refused() -> list[Conversation]:
    """The client learns of two brokers: it connects to one and is refused three times by the other."""
    talk = asking([BROKER, OTHER], 1)
    produce(talk, records())
    return [talk.ended(), *(Attempt(number, refused=True) for number in range(3))]


# -- brokers that disappear


def working(address: str, port: int, *, after: float = 0, seconds: float = 5) -> Talk:
    """A client that speaks Kafka for some seconds."""
    talk = Talk(address, port, after=after)
    heartbeat(talk, then=seconds / 2)
    heartbeat(talk, then=seconds / 2)
    return talk


def killed() -> list[Conversation]:
    """Three clients lose their broker at once and are refused while they retry."""
    talks: list[Conversation] = []
    for number in range(3):
        talk = working(f"10.0.0.{5 + number}", 51_000 + number, seconds=5 + number / 10)
        talk.reset()
        talks.append(talk)
    talks += [Attempt(number, refused=True, broker=BROKER) for number in (6, 7, 8)]
    return [*talks, Attempt(6.5, refused=False, broker=BROKER, address="10.0.0.6")]


def three_listeners() -> list[Conversation]:
    """A node with three listeners dies, and its other listeners' clients are refused, too; another node stays."""
    talks = killed()
    for number, listener in enumerate(((BROKER[0], 9093), (BROKER[0], 9094))):
        for client in range(3):
            talk = Talk("10.0.0.8", 54_000 + 10 * number + client, broker=listener)
            heartbeat(talk, then=2.51)
            heartbeat(talk, then=2.51 + client / 100)
            talk.reset()
            talks.append(talk)
        for turn in range(2):
            talks.append(Attempt(6 + turn + number / 5, refused=True, broker=listener, address="10.0.0.8"))
    other = Talk("10.0.0.8", 55_000, broker=OTHER)
    for _ in range(10):
        heartbeat(other, then=1)
    return [*talks, other.ended()]


def restarted_unseen() -> list[Conversation]:
    """All connections close at the same moment. The clients reconnect later, and none is refused."""
    talks: list[Conversation] = []
    for number in range(3):
        talk = working(f"10.0.0.{5 + number}", 51_000 + number, seconds=5 + number / 10)
        talk.close("broker")
        talks += [talk, working(f"10.0.0.{5 + number}", 53_000 + number, after=9).ended()]
    return talks


def clock(*said: Sequence[int], leaders: Sequence[int] = (0, 0)) -> Talk:
    """A client of another broker that requests metadata every second and is given these brokers, with BROKER as 0."""
    talk = Talk("10.0.0.9", 50_500, broker=OTHER)
    for nodes in said:
        brokers = [{"node_id": node, "host": (BROKER, OTHER)[node][0], "port": 9092} for node in nodes]
        led = [node if node in nodes else 1 for node in leaders]
        partitions = [{"partition_index": number, "leader_id": leader} for number, leader in enumerate(led)]
        named = {"brokers": brokers, "topics": [{"name": "orders", "partitions": partitions}]}
        talk.ask("Metadata", 1, TOPICS, named, then=1)
    return talk.ended()


def listed_again() -> list[Conversation]:
    """No client reconnects, but after twelve seconds the other broker's metadata lists the broker again."""
    both, one = (0, 1), (1,)
    return [clock(*([both] * 6), *([one] * 6), both, both), *killed()]


def beat(talk: Talk, node: int, epoch: int) -> None:
    """A broker's heartbeat to its controller."""
    talk.ask("BrokerHeartbeat", 0, {"broker_id": node, "broker_epoch": epoch}, {}, then=1)


def restarted_by_its_fetches() -> list[Conversation]:
    """The same with a replica's fetches, next to a consumer, which has no epoch."""
    leader, consumer = Talk("10.0.0.10", 50_600), Talk("10.0.0.5", 50_700)
    for epoch in (17, 17, 17, 40, 40):
        leader.ask("Fetch", 15, {"replica_state": {"replica_id": 2, "replica_epoch": epoch}}, {}, then=1)
        consumer.ask("Fetch", 15, {"replica_state": {"replica_id": -1, "replica_epoch": -1}}, {}, then=1)
    return [leader.ended(), consumer.ended()]


def beating() -> list[Conversation]:
    """Heartbeats of two brokers, each in its epoch."""
    controller = Talk("10.0.0.9", 50_600, broker=("10.0.0.11", 9093))
    for _ in range(5):
        beat(controller, 1, 16)
        beat(controller, 2, 40)
    return [controller.ended()]


def firewalled() -> list[Conversation]:
    """One client cannot reach the broker, others connect all the time. One client could never connect."""
    talks: list[Conversation] = [working("10.0.0.5", 51_000).ended()]
    talks += [Attempt(number, refused=False, broker=BROKER) for number in (6, 8, 10)]
    talks += [working("10.0.0.6", 51_100 + number, after=5.5 + 2 * number, seconds=1).ended() for number in range(4)]
    talks += [Attempt(number, refused=True, broker=BROKER, address="10.0.0.7") for number in (7, 9)]
    return talks


def in_a_container() -> list[Conversation]:
    return [asking([("localhost", 9092)]).ended()]


def unknown_name() -> list[Conversation]:
    return [asking([("kafka.internal", 9092)]).ended()]


def arrived() -> list[Conversation]:
    """By name: the client then produced. By address: it is already connected. Another client asked twice."""
    named = asking([("kafka.internal", 9092)])
    produce(named, records())
    there = asking([BROKER], address="10.0.0.6")
    twice = asking([("kafka.internal", 9092)], 2, address="10.0.0.7")
    return [named.ended(), there.ended(), twice.ended()]


# -- versions


Reported = dict[str, Any]


def offers(*highest: tuple[tuple[str, int], dict[int, int]], clusters: Sequence[Reported] = ()) -> list[Conversation]:
    """Each broker reports the highest versions of some APIs and, in Metadata (version and body), its cluster."""
    talks = []
    for number, (broker, versions) in enumerate(highest):
        talk = Talk(port=51_000 + number, after=number, broker=broker)
        keys = [{"api_key": key, "min_version": 0, "max_version": high} for key, high in versions.items()]
        talk.ask("ApiVersions", 0, {}, {"api_keys": keys})
        for reported in clusters[number : number + 1]:
            talk.ask("Metadata", reported["version"], {"topics": []}, reported["body"])
        talks.append(talk.ended())
    return talks


def _of(cluster_id: str | None, *brokers: tuple[str, int]) -> Reported:
    """A Metadata response; without a cluster id, in the last version before there were any."""
    listed = [{"node_id": 1 + place, "host": host, "port": port} for place, (host, port) in enumerate(brokers)]
    body: Reported = {"brokers": listed, "topics": []}
    return (
        {"version": 1, "body": body}
        if cluster_id is None
        else {"version": 2, "body": body | {"cluster_id": cluster_id}}
    )


_DIFFERENT: Final = ((BROKER, {0: 9, 1: 12, 18: 3}), (OTHER, {0: 9, 1: 16, 18: 3, 75: 0}))


def upgraded() -> list[Conversation]:
    """One broker lists both as members of one cluster."""
    return offers(*_DIFFERENT, clusters=[_of("one", BROKER, OTHER)])


def of_clusters_without_ids() -> list[Conversation]:
    """Old responses without a cluster id, each listing one broker: two clusters, or two listeners of one."""
    return offers(*_DIFFERENT, clusters=[_of(None, BROKER), _of(None, OTHER)])


def alike() -> list[Conversation]:
    """Two listeners of one release that differ in an API, and a controller, which does not offer Produce."""
    same = {0: 9, 1: 12, 18: 3}
    return offers((BROKER, same), (OTHER, {**same, 64: 0}), (("10.0.0.11", 9093), {1: 16, 18: 4}))


# -- connections


def short_lived(count: int, seconds: float) -> list[Conversation]:
    """Open `count` connections, one per second, each for a given time."""
    talks = []
    for number in range(count):
        talk = Talk(port=40_000 + number, after=number)
        heartbeat(talk, then=seconds)
        talks.append(talk.ended())
    return talks


# -- authentication and protocols


def right_password() -> list[Conversation]:
    talk = Talk()
    talk.ask("SaslHandshake", 1, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]})
    talk.ask("SaslAuthenticate", 0, {"auth_bytes": b"x"}, {})
    produce(talk, records())
    return [talk.ended()]


def closed_after_a_token() -> list[Conversation]:
    """SaslHandshake v0: tokens are sent without headers, and a broker that rejects one closes the connection."""
    talk = Talk()
    talk.ask("SaslHandshake", 0, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]})
    token = b"\0alice\0wrong"
    talk.send("client", len(token).to_bytes(4, "big") + token)
    talk.close("broker")
    return [talk]


def plain() -> Talk:
    """A client that uses the right protocol."""
    talk = Talk(port=50_000)
    heartbeat(talk, then=0.5)
    produce(talk, records())
    return talk.ended()


def old_version_that_others_use() -> list[Conversation]:
    """A broker that accepts the version closes a connection for another reason."""
    other, closed = Talk("10.0.0.6", 50_300), Talk("10.0.0.8", 45_000, after=2)
    answer = {"responses": [{"name": "orders", "partition_responses": [{"index": 0}]}]}
    other.ask("Produce", 2, {"acks": 1}, answer)
    closed.ask("Metadata", 1, TOPICS, advertised(BROKER))
    closed.ask("Produce", 2, {"acks": 1}, None)
    closed.acknowledge("broker")
    closed.close("broker")
    return [other.ended(), plain(), closed]


def nothing_but_closed() -> list[Conversation]:
    """The broker closes every connection at its first message."""
    talks: list[Conversation] = []
    for number in range(2):
        talk = Talk(port=50_000 + number, after=number)
        talk.ask("ApiVersions", 0, {}, None)
        talk.acknowledge("broker")
        talk.close("broker")
        talks.append(talk)
    return talks


# -- speed and the network


def brokers(milliseconds: tuple[float, ...], count: int = 25) -> list[Conversation]:
    """Brokers that answer Metadata, each with its own delay."""
    talks = []
    for number, time in enumerate(milliseconds):
        talk = Talk(port=51_000 + number, broker=(f"10.0.1.{number}", 9092))
        for _ in range(count):
            talk.ask("Metadata", 1, TOPICS, advertised(BROKER), wait=time / 1000)
        talks.append(talk.ended())
    return talks


def lossy(every: int, delay: float) -> list[Conversation]:
    """Every `every`-th request is retransmitted `delay` seconds later, before it is answered."""
    talk = Talk()
    for number in range(40):
        talk.ask("Metadata", 1, TOPICS, None)
        if number % every == 0:
            sent = talk.packets[-1]
            talk.pause(delay)
            talk.packets.append(sent.but(time_ns=talk.time_ns, ident=5000 + number))
        talk.acknowledge("broker")
        from tests.craft.from_layout import response_bytes

        talk.send("broker", response_bytes(3, 1, number + 1, **advertised(BROKER)))
    return [talk.ended()]


def slow_reader() -> list[Conversation]:
    """The client's receive window is closed for two seconds while the broker wants to send."""
    talk = Talk()
    heartbeat(talk)
    talk.window = 0
    talk.acknowledge("client")
    talk.pause(2)
    talk.window = 65_535
    talk.acknowledge("client")
    produce(talk, records())
    return [talk.ended()]


# -- partitions


def produced_to(*counts: int, known: int | None = None) -> list[Conversation]:
    """Batches of 100 records, with a number of records per partition.

    `known`: the number of partitions in the metadata.
    """
    talk = Talk()
    partitions = [{"partition_index": number} for number in range(known or len(counts))]
    named = {"topics": [{"name": "orders", "partitions": partitions}]}
    talk.ask("Metadata", 1, TOPICS, {**advertised(BROKER), **named})
    for partition, count in enumerate(counts):
        for _ in range(count):
            data = [{"index": partition, "records": records(100)}]
            asked = {"acks": -1, "topic_data": [{"name": "orders", "partition_data": data}]}
            answer = {"responses": [{"name": "orders", "partition_responses": [{"index": partition}]}]}
            talk.ask("Produce", 5, asked, answer)
    return [talk.ended()]


# -- brokers of one or two clusters


A, B, C = ("10.0.0.1", 9092), ("10.0.0.2", 9092), ("10.0.0.3", 9092)


def cluster(talk: Talk, name: str | None) -> None:
    """Metadata that names a cluster, if there is a name."""
    if name is not None:
        talk.ask("Metadata", 2, {"topics": []}, {"brokers": [], "topics": [], "cluster_id": name})


def sequences(*clusters: str | None) -> list[Conversation]:
    """An idempotent producer at two brokers, with the same producer id and sequence numbers."""
    talks: list[Conversation] = []
    for number, (broker, name) in enumerate(zip((A, B), clusters, strict=True)):
        talk = Talk(port=50_000 + number, after=number, broker=broker)
        cluster(talk, name)
        for base in (0, 10):
            produce(talk, records(10, producer=(1000, 0, base)))
        talks.append(talk.ended())
    return talks


def transactions(other: str) -> list[Conversation]:
    """A transaction that begins in the cluster `one`, and the end of one with the same id in `other`."""
    asked = {"transactional_id": "ledger", "producer_id": 1, "producer_epoch": 0}
    begun, ended, later = (
        Talk(port=50_001 + number, after=after, broker=broker)
        for number, (after, broker) in enumerate(((0, A), (30, B), (100, A)))
    )
    for talk, name in ((begun, "one"), (ended, other), (later, "one")):
        cluster(talk, name)
    begun.ask("AddPartitionsToTxn", 1, {f"v3_and_below_{name}": value for name, value in asked.items()}, {})
    ended.ask("EndTxn", 1, {**asked, "committed": True}, {})
    return [talk.ended() for talk in (begun, ended, later)]


def peers(other: str) -> list[Conversation]:
    """Two fast brokers of the cluster `one`, and a slow one of `other`."""
    talks: list[Conversation] = []
    places: Sequence[tuple[tuple[str, int], str, float]] = ((A, "one", 0.001), (B, "one", 0.001), (C, other, 0.2))
    for number, (broker, name, wait) in enumerate(places):
        talk = Talk(port=50_001 + number, broker=broker)
        for _ in range(25):
            talk.ask("Metadata", 2, {"topics": []}, {"brokers": [], "topics": [], "cluster_id": name}, wait=wait)
        talks.append(talk.ended())
    return talks


def leads(talk: Talk, name: str, broker: tuple[str, int], node: int) -> None:
    brokers = [{"node_id": node, "host": broker[0], "port": broker[1]}]
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "leader_id": node}]}]
    talk.ask("Metadata", 2, {"topics": []}, {"brokers": brokers, "topics": topics, "cluster_id": name}, then=1)


def moved_leader(other: str) -> list[Conversation]:
    """A leader of the cluster `one` dies; a broker of `other` leads a partition of the same name afterwards."""
    dying = Talk(port=50_001, broker=A)
    leads(dying, "one", A, 1)
    dying.reset()
    refused = [Attempt(after, refused=True, broker=A) for after in (2, 3, 4)]
    later = Talk(port=50_002, after=6, broker=B)
    leads(later, other, B, 2)
    return [dying, *refused, later.ended()]


# -- TLS that nobody can decrypt


@functools.cache
def _shaken() -> list[Flight]:
    """A handshake of OpenSSL."""
    return Pair(version=ssl.TLSVersion.TLSv1_3, kind="ecdsa").talk([], ends=False).flights


def _sealed(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2) + bytes(size)


def _talk(number: int, *, slow: float = 0, answers: int = 3) -> Conversation:
    """A client that shakes hands for `slow` seconds, asks some times, and once more without an answer."""
    talk = Conversation(("10.0.0.5", 51_000 + number), ("10.0.0.9", 9093), start_ns=START_NS + number * SECOND)
    talk.handshake()
    for place, (side, data) in enumerate(_shaken()):
        talk.wait(round(slow * SECOND) if place == 1 else 0)
        talk.send(side, data)
    for _ in range(answers):
        talk.send("client", _sealed(300))
        talk.wait(SECOND // 100)
        talk.send("broker", _sealed(60))
    talk.send("client", _sealed(300))
    return talk


def stalled(count: int, silent: float) -> Callable[[], Sequence[Conversation]]:
    """Clients that leave after waiting for an answer."""

    def scene() -> list[Conversation]:
        talks = [_talk(number) for number in range(count)]
        for talk in talks:
            talk.wait(round(silent * SECOND))
            talk.send("client", _sealed(19))
            talk.close()
        return talks

    return scene


def cut(count: int) -> Callable[[], Sequence[Conversation]]:
    """Connections that the broker resets while it owes an answer."""

    def scene() -> list[Conversation]:
        talks = [_talk(number) for number in range(count)]
        for talk in talks:
            talk.reset("broker")
        return talks

    return scene


def slow(seconds: float) -> Callable[[], Sequence[Conversation]]:
    """Six handshakes; each connection is answered to its end."""

    def scene() -> list[Conversation]:
        talks = [_talk(number, slow=seconds) for number in range(6)]
        for talk in talks:
            talk.send("broker", _sealed(60))
            talk.close()
        return talks

    return scene
