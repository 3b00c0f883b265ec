"""Requests between brokers and controllers: not sent by clients, and upgraded with the cluster."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from kafkasniff.kafka.apis.dissectors import HANDSHAKE, api, api_by_name

# Client ids that brokers use: ReplicaFetcherManager (the thread's name up to 0.10.2), KafkaRaftManager,
# TransactionMarkerChannelManager, AddPartitionsToTxnManager, PersisterStateManager, NetworkPartitionMetadataClient.
_OWN_NAME: Final = re.compile(
    r"broker-\d+-(fetcher-\d+|txn-marker-sender)|ReplicaFetcherThread-\d+-\d+|raft-client-\d+"
    r"|(AddPartitionsManager|Persister|NetworkPartitionMetadataClient)-client-\d+",
    re.ASCII,
)
_NUMBER: Final = re.compile(r"\d+", re.ASCII)
"""The client id of ControllerChannelManager and NodeToControllerChannelManager is the number of their broker."""


def is_between_brokers(key: int) -> bool:
    """Whether an API is never needed by clients; False for an unknown one."""
    found = api(key)
    return found is not None and (found.definition.from_brokers or "broker" not in found.listeners)


def is_broker(client_id: str | None, keys: Collection[int]) -> bool:
    """Whether a sender with this client id and these APIs is a broker or a controller.

    A name that only brokers use is sufficient. A number is, too, if the sender uses an API between brokers, and any
    name if it uses nothing else.
    """
    if client_id is not None and _OWN_NAME.fullmatch(client_id):
        return True
    if not any(map(is_between_brokers, keys)):
        return False
    if client_id is not None and _NUMBER.fullmatch(client_id):
        return True
    return all(key in HANDSHAKE or is_between_brokers(key) for key in keys)


@lru_cache(maxsize=1024)
def is_for_controllers(name: str | None) -> bool:
    """Whether requests of this name, with its sender (`waits.with_sender`), only go to controllers."""
    if name is None:
        return False
    found = api_by_name(name)
    return name.startswith("quorum ") or (found is not None and tuple(found.listeners) == ("controller",))


@lru_cache(maxsize=1024)
def is_forwarded(name: str | None) -> bool:
    """Whether brokers pass requests of this name to the controller (KIP-590). They describe most things themselves."""
    if name is None or (name.startswith("Describe") and name != "DescribeQuorum"):
        return False
    found = api_by_name(name)
    return found is not None and found.definition.administers and {"broker", "controller"} <= {*found.listeners}


@lru_cache(maxsize=1024)  # names come from the tables
def is_work(name: str | None) -> bool:
    """Whether an API moves records, offsets, members or transactions; an unknown one may."""
    found = None if name is None else api_by_name(name)
    return found is None or not (found.definition.administers or is_between_brokers(found.key))
