"""Waits that nobody is to blame for: what a request asks the broker to wait for, and what quotas hold back.

The definitions (`waits`, `mutes`, `enum replica_id`) say which requests ask for a wait, which field limits it, when a
throttled response is sent at once, and where a request says who sends it. Whether the broker did wait, the response
shows in part. What follows is what ReplicaManager (`DelayedFetch`, `DelayedProduce`) and the group coordinators
(`DelayedJoin`) do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final, Literal, NamedTuple

from kafkasniff.kafka import dissectors
from kafkasniff.kafka.definition import FieldDefinition
from kafkasniff.model import Message

__all__ = [
    "UNLIMITED_NS",
    "Role",
    "Turns",
    "Wait",
    "WaitReason",
    "answers_at_once",
    "reason_of",
    "role_of",
    "throttle_ns",
    "wait_of",
    "waiting_apis",
]

WaitReason = Literal["data", "members", "leader", "replicas", "operation"]
"""data: for as much as the fetch asked for at least; members: JoinGroup, for the others to join; leader: SyncGroup of a
member that does not lead, for the assignment; replicas: Produce with acks all, for the replicas in sync; operation: for
the cluster to do what was asked for (topics, partitions, leaders)."""
Role = Literal["client", "replica", "quorum"]
"""Who sends a request that has a replica id: a client; a broker that replicates partitions; a node that replicates the
metadata log of KRaft (controllers, and brokers as observers)."""


class Wait(NamedTuple):
    """A wait that a request asks for."""

    reason: WaitReason
    limit_ns: int | None
    """At most so long; None: the request does not say."""
    sure: bool
    """The response shows that the broker did wait, for all of its time but the processing. Otherwise it may have."""


REBALANCE_IN_PROGRESS: Final = 27
METADATA_LOG: Final = "__cluster_metadata"
METADATA_LOG_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Uuid.METADATA_TOPIC_ID; the same in every cluster (KIP-595)."""
ALL_REPLICAS: Final = -1
"""`acks` of a Produce request that waits for the replicas in sync."""
UNLIMITED_NS: Final = 60_000_000_000
"""How long a request without a limit may go unanswered: a SyncGroup that waits for the leader of its group, by the
rebalance timeout of Connect's workers, which is the shortest default."""


@lru_cache(maxsize=1024)  # keys come from the wire
def _definition(api_key: int) -> tuple[str | None, tuple[str, ...], range]:
    """Reason and limits of the wait, and the versions that are throttled by KIP-219."""
    api = dissectors.api(api_key)
    if api is None:
        return None, (), range(0)
    reason, limits = api.definition.waits or (None, ())
    mutes = api.definition.mutes
    # Later versions than those known are throttled in the same way.
    return reason, limits, range(mutes.low, 1 << 15 if mutes.high >= mutes.low else 0)


def reason_of(api_key: int | None) -> str | None:
    """What requests of an API may ask the broker to wait for; None: nothing."""
    return None if api_key is None else _definition(api_key)[0]


@cache
def waiting_apis() -> dict[str, WaitReason]:
    """The APIs that may ask for a wait, by name."""
    found: dict[str, WaitReason] = {}
    for key in dissectors.api_keys():
        reason = _definition(key)[0]
        api = dissectors.api(key)
        if reason is not None and api is not None:
            found[api.name] = reason  # type: ignore[assignment]  # the parser takes no others
    return found


def answers_at_once(api_key: int | None, api_version: int | None) -> bool:
    """Whether a broker that throttles must have answered at once, by the API and version of what it answered.

    Where it is false, a broker before Kafka 2.0 held the response back; a later one answers old versions at once, too.
    """
    return api_key is not None and api_version is not None and api_version in _definition(api_key)[2]


def throttle_ns(response: Message) -> int:
    """The throttle time of a response, in nanoseconds; 0 where it has none."""
    value = None if response.body is None else response.body.get("throttle_time_ms")
    return value * 1_000_000 if isinstance(value, int) and value > 0 else 0


def wait_of(
    api_key: int | None,
    request: Mapping[str, Any] | None,
    response: Mapping[str, Any] | None,
    fetched: int,
    errors: int,
) -> Wait | None:
    """The wait that a request asked for; None: none.

    `fetched`: bytes of record batches in the response; `errors`: error codes in it that are not zero. Bodies as
    decoded, or as in the JSON of the tables; what they lack makes it None. Without a response nothing is sure.
    """
    if request is None or api_key is None:
        return None
    reason, limits, _ = _definition(api_key)
    if reason is None:
        return None
    limit = next((found for name in limits if (found := _milliseconds(request.get(name)))), None)
    match reason:
        case "data":
            return _of_fetch(request, response, limit, fetched, errors)
        case "replicas":
            return Wait("replicas", limit, sure=False) if request.get("acks") == ALL_REPLICAS else None
        case "members":
            # An error may come at once, or in the end: to a member whose rebalance has failed.
            return Wait("members", limit, sure=not errors and response is not None)
        case "leader":
            if request.get("assignments") != []:
                return None
            error = None if response is None else response.get("error_code")
            return Wait("leader", None, sure=error in (0, REBALANCE_IN_PROGRESS))
        case _:
            return None if limit is None else Wait("operation", limit, sure=False)


def _of_fetch(
    request: Mapping[str, Any], response: Mapping[str, Any] | None, limit: int | None, fetched: int, errors: int
) -> Wait | None:
    least = request.get("min_bytes")
    if limit and _is_metadata_log(request.get("topics")):
        least = 1  # a controller waits until there is anything, whatever is asked for (KafkaRaftClient)
    if not limit or not isinstance(least, int) or least <= 0:
        return None
    # A fetch with an error is answered at once, or in its wait when the error comes up (a leader that moves); one
    # beyond its quota for bytes at once, with nothing, one beyond that for the broker's time in the end (KafkaApis).
    sure = response is not None and not errors and not response.get("throttle_time_ms")
    return Wait("data", limit, sure=sure and fetched < least)


def _is_metadata_log(topics: object) -> bool:
    """Whether a fetch is one of KRaft's metadata log, by name or id."""
    if not isinstance(topics, list) or not topics or not isinstance(topics[0], dict):
        return False
    return topics[0].get("topic") == METADATA_LOG or topics[0].get("topic_id") == METADATA_LOG_ID


def _milliseconds(value: object) -> int | None:
    """As nanoseconds."""
    return value * 1_000_000 if isinstance(value, int) and value > 0 else None


def role_of(api_key: int | None, request: Mapping[str, Any] | None) -> Role | None:
    """Who sends a request, by its replica id and the log that it asks for; None where it does not say."""
    if request is None or api_key is None:
        return None
    ways = _replica_ids(api_key)
    if not ways:
        return None
    if _is_metadata_log(request.get("topics")):
        return "quorum"
    for way in ways:
        value: Any = request
        for name in way:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int):
            return "replica" if value >= 0 else "client"
    # A tagged struct that is not there has its default: no replica.
    return "client" if request else None


@lru_cache(maxsize=1024)  # keys come from the wire
def _replica_ids(api_key: int) -> tuple[tuple[str, ...], ...]:
    """The ways to the fields of a request that hold the sender's replica id."""
    api = dissectors.api(api_key)
    return () if api is None else tuple(_ways(api.definition.request.fields))


def _ways(fields: tuple[FieldDefinition, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for field in fields:
        if field.enum == "replica_id":
            found.append((field.name,))
        elif field.fields and not field.array:
            found += [(field.name, *way) for way in _ways(field.fields)]
    return found


class Turns:
    """The turns of one connection's requests: how long each stood behind others, or before a muted connection.

    A broker takes the requests of a connection one after the other. After a throttled response it reads nothing for
    the throttle time (KIP-219); brokers before Kafka 2.0 held the response back instead. Give it the exchanges of a
    connection in the order in which they end.
    """

    __slots__ = ("answered", "muted_until", "open_until")

    def __init__(self) -> None:
        self.answered: int | None = None
        """The last response was complete (ns since the epoch)."""
        self.muted_until: int | None = None
        """A response told the client to be silent until then."""
        self.open_until: int | None = None
        """Until then the broker may wait before it answers a request that has no response."""

    def take(
        self, request: Message | None, response: Message | None, latency_ns: int | None, *, answerable: bool
    ) -> tuple[int | None, int | None]:
        """How long a request stood behind earlier ones, and how long a quota kept it or its response back; ns.

        Of a request without a response: how long it may have, from its last byte on. (None, None) where it cannot be
        known. `answerable`: it has no response though it should have one. Hot.
        """
        if request is None or request.time_ns is None:
            return None, None
        asked = request.time_ns
        if response is None or latency_ns is None or response.time_ns is None:
            return self._without(request, asked) if answerable else (None, None)
        first, behind, muted = asked + latency_ns, 0, 0
        answered = self.answered
        if answered is not None and answered > asked:
            behind = max(min(answered, first) - asked, 0)
        if self.muted_until is not None:
            muted = max(min(self.muted_until, first) - asked - behind, 0)
        if answered is None or response.time_ns > answered:
            self.answered = response.time_ns
        throttle = throttle_ns(response)
        if throttle:
            if not answers_at_once(request.api_key, request.api_version) and latency_ns - behind - muted >= throttle:
                muted += throttle
            else:
                self.muted_until = max(self.muted_until or 0, first + throttle)
        return behind, muted

    def _without(self, request: Message, asked: int) -> tuple[int, int]:
        behind = 0 if self.open_until is None else max(self.open_until - asked, 0)
        muted = 0 if self.muted_until is None else max(self.muted_until - asked - behind, 0)
        wait = wait_of(request.api_key, request.body, None, 0, 0)
        if wait is not None:
            limit = UNLIMITED_NS if wait.limit_ns is None else wait.limit_ns
            self.open_until = max(self.open_until or 0, asked + behind + muted + limit)
        return behind, muted
