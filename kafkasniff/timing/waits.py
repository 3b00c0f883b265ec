"""Waits that nobody is to blame for: what a request asks the broker to wait for, and what quotas hold back.

How long a broker may have waited stands in the request; whether it did, partly in the response. What follows is what
ReplicaManager (`DelayedFetch`, `DelayedProduce`) and the group coordinators (`DelayedJoin`) do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

__all__ = ["WAITING_APIS", "Wait", "WaitReason", "answers_at_once", "wait_of"]

WaitReason = Literal["data", "members", "leader", "replicas"]
"""data: for as much as the fetch asked for at least; members: JoinGroup, for the others to join; leader: SyncGroup of a
member that does not lead, for the assignment; replicas: Produce with acks all, for the replicas in sync."""


class Wait(NamedTuple):
    """A wait that a request asks for."""

    reason: WaitReason
    limit_ns: int | None
    """At most so long; None: the request does not say."""
    sure: bool
    """The response shows that the broker did wait, for all of its time but the processing. Otherwise it may have."""


PRODUCE: Final = 0
FETCH: Final = 1
JOIN_GROUP: Final = 11
SYNC_GROUP: Final = 14
SHARE_FETCH: Final = 78
WAITING_APIS: Final = {
    "Produce": PRODUCE,
    "Fetch": FETCH,
    "JoinGroup": JOIN_GROUP,
    "SyncGroup": SYNC_GROUP,
    "ShareFetch": SHARE_FETCH,
}
"""The APIs that have such waits."""
REBALANCE_IN_PROGRESS: Final = 27
METADATA_LOG: Final = "__cluster_metadata"
METADATA_LOG_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Uuid.METADATA_TOPIC_ID; the same in every cluster (KIP-595)."""

# The first version of each API that only brokers know which, when they throttle, answer at once and do not read from
# the connection for the throttle time (KIP-219, Kafka 2.0): `shouldClientThrottle` of the classes in
# org.apache.kafka.common.requests, Kafka 4.3. OffsetForLeaderEpoch is none of those, but its version 2 is of Kafka 2.1.
_SINCE: Final[Mapping[int, int]] = {
    0: 6,
    1: 8,
    2: 3,
    3: 6,
    8: 4,
    9: 4,
    10: 2,
    11: 3,
    12: 2,
    13: 2,
    14: 2,
    15: 2,
    16: 2,
    18: 2,
    19: 3,
    20: 2,
    21: 1,
    22: 1,
    23: 2,
    24: 1,
    25: 1,
    26: 1,
    28: 1,
    29: 1,
    30: 1,
    31: 1,
    32: 2,
    33: 1,
    34: 1,
    35: 1,
    37: 1,
    38: 1,
    39: 1,
    40: 1,
    41: 1,
    42: 1,
}


FIRST_SINCE: Final = 43
"""ElectLeaders; this API and those with higher keys are younger than Kafka 2.0."""


def answers_at_once(api_key: int | None, api_version: int | None) -> bool:
    """Whether a broker that throttles must have answered at once, by the API and version of what it answered.

    Where it is false, a broker before Kafka 2.0 held the response back; a later one answers old versions at once, too.
    """
    if api_key is None or api_version is None:
        return False
    return api_key >= FIRST_SINCE or api_version >= _SINCE.get(api_key, 1 << 15)


def wait_of(
    api_key: int | None,
    request: Mapping[str, Any] | None,
    response: Mapping[str, Any] | None,
    fetched: int,
    errors: int,
) -> Wait | None:
    """The wait that an answered request asked for; None: none.

    `fetched`: bytes of record batches in the response; `errors`: error codes in it that are not zero. Bodies as
    decoded, or as in the JSON of the tables; what they lack makes it None.
    """
    if request is None:
        return None
    match api_key:
        case 1 | 78:
            return None if errors else _of_fetch(request, response, fetched)
        case 0:
            limit = _milliseconds(request.get("timeout_ms"))
            return Wait("replicas", limit, sure=False) if request.get("acks") == -1 else None
        case 11:
            limit = _milliseconds(request.get("rebalance_timeout_ms", request.get("session_timeout_ms")))
            return None if errors else Wait("members", limit, sure=True)
        case 14:
            error = None if response is None else response.get("error_code")
            if request.get("assignments") == [] and error in (0, REBALANCE_IN_PROGRESS):
                return Wait("leader", None, sure=True)
    return None


def _of_fetch(request: Mapping[str, Any], response: Mapping[str, Any] | None, fetched: int) -> Wait | None:
    limit, least = _milliseconds(request.get("max_wait_ms")), request.get("min_bytes")
    if limit and _is_metadata_log(request.get("topics")):
        least = 1  # a controller waits until there is anything, whatever is asked for (KafkaRaftClient)
    if not limit or not isinstance(least, int) or least <= 0:
        return None
    if response is not None and response.get("throttle_time_ms"):
        return None  # beyond its quota a fetch is answered at once, with nothing (KafkaApis.handleFetchRequest)
    return Wait("data", limit, sure=fetched < least)


def _is_metadata_log(topics: object) -> bool:
    """Whether a fetch is one of KRaft's metadata log, by name or id."""
    if not isinstance(topics, list) or not topics or not isinstance(topics[0], dict):
        return False
    return topics[0].get("topic") == METADATA_LOG or topics[0].get("topic_id") == METADATA_LOG_ID


def _milliseconds(value: object) -> int | None:
    """As nanoseconds."""
    return value * 1_000_000 if isinstance(value, int) and value > 0 else None
