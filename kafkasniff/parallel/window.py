"""What a shard and the coordinator tell each other about one window."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.enrich.apart import SessionAnswer, SessionStep, TopicTold
from kafkasniff.model import Summary

__all__ = ["NOWHERE", "BrokerEndpoint", "Found", "Given", "Integers", "Told"]

Integers = NDArray[np.int64]

BrokerEndpoint = tuple[int, int, int]
"""Address high half, low half, port."""

NOWHERE = -1
"""Place of the connection of an event that concerns none."""

Told = list[tuple[int, TopicTold]]
"""What is told of topics, each before or with the event at an index."""


class Found(msgspec.Struct):
    """What a shard found in a window. Events are those of the shard, in capture order, by index from 0."""

    opened: Integers
    """Order of the packet that opened it, of each connection that begins."""
    orders: Integers
    """Order of the packet at which it became known, of each event."""
    places: Integers
    """Of the event's connection among the shard's, from 1; NOWHERE where it concerns none."""
    begun: Integers
    """Indices of the events at which exchanges begin."""
    told: Told
    brokers: list[tuple[int, BrokerEndpoint]]
    """Endpoints that turned out to speak Kafka, with the index of the event."""
    steps: list[tuple[int, SessionStep]]
    """What happens to fetch sessions; `exchange` counts within the shard."""
    summary: Summary
    """What is counted when packets are read."""


class Given(msgspec.Struct):
    """What the coordinator answers."""

    connections: Integers
    """Numbers of the connections that begin."""
    exchanges: Integers
    """Numbers of the exchanges that begin."""
    told: Told
    """By other shards, with the index of the first event behind it."""
    brokers: list[tuple[int, BrokerEndpoint]]
    """Likewise."""
    sessions: dict[int, SessionAnswer]
    """By index of the event."""
