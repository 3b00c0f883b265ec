"""Waits that do not show a slow broker: those that a request asks for, and those due to quotas.

The definitions (`waits`, `mutes`, `enum replica_id`) say which requests ask for a wait, which field limits it, when a
throttled response is sent immediately, and which field identifies the sender. Whether the broker did wait follows in
part from the response. The rules are those of ReplicaManager (`DelayedFetch`, `DelayedProduce`) and the group
coordinators (`DelayedJoin`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final, Literal

import msgspec

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.entities import METADATA_TOPIC, METADATA_TOPIC_ID
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.model import Message

WaitReason = Literal["data", "members", "leader", "replicas", "operation"]
"""data: for the minimum bytes of a fetch; members: JoinGroup, for the others to join; leader: SyncGroup of a member
that does not lead, for the assignment; replicas: Produce with acks all, for the replicas in sync; operation: for the
cluster to complete the request (topics, partitions, leaders)."""
LONG_POLLS: Final[tuple[WaitReason, ...]] = ("data", "members", "leader")
"""Waits for something other than work of the cluster."""
Role = Literal["client", "replica", "quorum"]
"""Sender of a request that has a replica id: a client; a broker that replicates partitions; a node that replicates the
metadata log of KRaft (controllers, and brokers as observers)."""


class Wait(msgspec.Struct, frozen=True):
    """A wait that a request asks for."""

    reason: WaitReason
    limit_ns: int | None
    """Upper limit; None: the request does not set one."""
    sure: bool
    """The response shows that the broker did wait, for all of its time but the processing. Otherwise it may have."""


REBALANCE_IN_PROGRESS: Final = 27
ALL_REPLICAS: Final = -1
"""`acks` of a Produce request that waits for the replicas in sync."""
UNLIMITED_NS: Final = 60_000_000_000
"""Limit for a request without one of its own: a SyncGroup that waits for the leader of its group, by the rebalance
timeout of Connect's workers, which is the shortest default."""


class WaitPlan(msgspec.Struct, frozen=True):
    """Waits that requests of an API may ask for, and where they identify their senders."""

    reason: WaitReason | None
    limits: tuple[str, ...]
    """Fields that limit the wait, in milliseconds; the first positive one counts."""
    replica_id: str | None
    """Field of the request with the sender's replica id, in the versions in which it is not in a struct."""
    replica_ids: tuple[tuple[str, ...], ...]
    """All paths to such a field."""


@lru_cache(maxsize=1024)  # keys come from the wire
def wait_plan(api_key: int | None) -> WaitPlan | None:
    """The plan of an API, over all versions; None if its requests ask for no wait and do not identify senders."""
    api = None if api_key is None else dissectors.api(api_key)
    if api is None:
        return None
    reason, limits = api.definition.waits or (None, ())
    paths = tuple(_replica_id_paths(api.definition.request.fields))
    if reason is None and not paths:
        return None
    return WaitPlan(
        reason,  # type: ignore[arg-type]  # the parser takes no others
        limits,
        next((path[0] for path in paths if len(path) == 1), None),
        paths,
    )


@lru_cache(maxsize=1024)  # keys come from the wire
def _throttled_at_once(api_key: int) -> range:
    """The versions of an API that are throttled by KIP-219."""
    api = dissectors.api(api_key)
    if api is None:
        return range(0)
    mutes = api.definition.mutes
    # Later versions than the known ones are throttled in the same way.
    return range(mutes.low, 1 << 15 if mutes.high >= mutes.low else 0)


@cache
def waiting_apis() -> dict[str, WaitReason]:
    """The APIs that may ask for a wait, by name."""
    found: dict[str, WaitReason] = {}
    for key in dissectors.api_keys():
        plan, api = wait_plan(key), dissectors.api(key)
        if plan is not None and plan.reason is not None and api is not None:
            found[api.name] = plan.reason
    return found


@cache
def long_poll_apis() -> frozenset[str]:
    """The APIs whose requests may be long polls, by name."""
    return frozenset(api for api, reason in waiting_apis().items() if reason in LONG_POLLS)


def answers_at_once(api_key: int | None, api_version: int | None) -> bool:
    """Whether a broker that throttles must have answered immediately, by API and version of the request.

    If false, a broker before Kafka 2.0 held the response back; a later one answers old versions immediately, too.
    """
    return api_key is not None and api_version is not None and api_version in _throttled_at_once(api_key)


def throttle_ns(response: Message) -> int:
    """The throttle time of a response, in nanoseconds; 0 if it has none."""
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

    `fetched`: bytes of record batches in the response; `errors`: its non-zero error codes. Bodies as decoded, or as in
    the JSON of the tables; None if they lack the needed fields. Without a response nothing is certain.
    """
    plan = None if request is None else wait_plan(api_key)
    if plan is None or plan.reason is None or request is None:
        return None
    limit = asked_limit_ns(plan, request)
    if limit == 0:
        return None
    match plan.reason:
        case "data":
            least = 1 if _is_metadata_log(request.get("topics")) else request.get("min_bytes", 1)
            # A fetch with an error is answered immediately, or during its wait when the error occurs (a leader that
            # moves); one beyond its quota for bytes immediately, with nothing, one beyond that for the broker's time at
            # its end (KafkaApis).
            sure = response is not None and not errors and not response.get("throttle_time_ms") and fetched < least
        case "members":
            # An error may come immediately, or at the end: to a member whose rebalance has failed.
            sure = not errors and response is not None
        case "leader":
            error = None if response is None else response.get("error_code")
            sure = error in (0, REBALANCE_IN_PROGRESS)
        case _:
            sure = False
    return Wait(plan.reason, limit, sure)


def asked_limit_ns(plan: WaitPlan, request: Mapping[str, Any]) -> int | None:
    """Longest wait that a request asks for, in nanoseconds; 0: none; None: it sets no limit. Hot.

    `plan`: that of its API, which has a reason.
    """
    reason, limit = plan.reason, None
    if reason == "replicas" and request.get("acks") != ALL_REPLICAS:
        return 0
    for name in plan.limits:
        value = request.get(name)
        if isinstance(value, int) and value > 0:
            limit = value * 1_000_000
            break
    if reason == "data":
        if limit is None:
            return 0
        least = request.get("min_bytes")
        if isinstance(least, int) and least > 0:
            return limit
        # A controller waits until there is data, whatever the request says (KafkaRaftClient). A request that is cut
        # before its topics may be one to it.
        topics = request.get("topics")
        return limit if topics is None or _is_metadata_log(topics) else 0
    if reason == "leader":
        return limit if request.get("assignments") == [] else 0
    if reason == "operation":
        return limit or 0
    return limit


def _is_metadata_log(topics: object) -> bool:
    """Whether a fetch is one of KRaft's metadata log, by name or id."""
    if not isinstance(topics, list) or not topics or not isinstance(topics[0], dict):
        return False
    return topics[0].get("topic") == METADATA_TOPIC or topics[0].get("topic_id") == METADATA_TOPIC_ID


def role_of(api_key: int | None, request: Mapping[str, Any] | None) -> Role | None:
    """Sender of a request, by its replica id and the requested log; None if it does not say."""
    plan = None if request is None else wait_plan(api_key)
    return None if plan is None or request is None else planned_role(plan, request)


def planned_role(plan: WaitPlan, request: Mapping[str, Any]) -> Role | None:
    """Sender of a request, by the plan of its API. Hot."""
    if not plan.replica_ids:
        return None
    if _is_metadata_log(request.get("topics")):
        return "quorum"
    value: Any = request.get(plan.replica_id) if plan.replica_id is not None else None
    if isinstance(value, int):
        return "replica" if value >= 0 else "client"
    for path in plan.replica_ids:
        value = request
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int):
            return "replica" if value >= 0 else "client"
    # A missing tagged struct has its default, no replica; tagged fields are at the end of a request.
    return "client" if request.get("topics") is not None else None


def _replica_id_paths(fields: tuple[FieldDefinition, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for field in fields:
        if field.enum == "replica_id":
            found.append((field.name,))
        elif field.fields and not field.array:
            found += [(field.name, *path) for path in _replica_id_paths(field.fields)]
    return found


def delays_without(
    request: Message | None, open_until: int | None, muted_until: int | None
) -> tuple[int | None, int | None, int | None]:
    """The possible delays of a request that should have a response and has none, from its last byte on; ns.

    How long earlier requests without a response, and a quota, may have delayed it, and until when it may delay later
    ones, like `open_until`. (None, None, `open_until`) if nothing is known of it.
    """
    asked = None if request is None else request.time_ns
    if request is None or asked is None:
        return None, None, open_until
    behind = 0 if open_until is None else max(open_until - asked, 0)
    muted = 0 if muted_until is None else max(muted_until - asked - behind, 0)
    wait = wait_of(request.api_key, request.body, None, 0, 0)
    if wait is not None:
        limit = UNLIMITED_NS if wait.limit_ns is None else wait.limit_ns
        open_until = max(open_until or 0, asked + behind + muted + limit)
    return behind, muted, open_until
