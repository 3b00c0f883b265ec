"""Groups of protocol type `consumer`: subscriptions, assignments, and the user data of well-known assignors in them.

`org.apache.kafka.clients.consumer.internals.ConsumerProtocol`; user data as written by `StickyAssignor`,
`CooperativeStickyAssignor` and, for Kafka Streams, `SubscriptionInfo` and `AssignmentInfo`. For the broker and other
members user data is opaque, and anyone may use an assignor's name: data that is not exactly what the assignor of that
name writes is left undecoded.

The members of a group only talk to each other, so a version does not determine which fields follow: kafka-go and
@platformatic/kafka write version 1 of a subscription without `owned_partitions`, pykafka an assignment without
`user_data`, faust version 4 with the fields of version 0. Bytes that end after a field are decoded up to that field.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.embedded.versioned import exact, read_versioned
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.data_schemas import data_definitions
from kafkasniff.model import Body

__all__ = ["NEWEST", "assignment", "subscription"]

NEWEST: Final = 3
"""The newest known version of both."""


def subscription(data: bytes, assignor: str | None, context: DecodeContext, place: str) -> Body | None:
    """A ConsumerProtocolSubscription with its version, in the form of `versioned.read_versioned`."""
    found = read_versioned(data, "ConsumerProtocolSubscription", "consumer", context, place, may_lack=True)
    if found is not None:
        _add_user_data(found["value"], assignor, "SubscriptionInfoData", context)
    return found


def assignment(data: bytes, assignor: str | None, context: DecodeContext, place: str) -> Body | None:
    """A ConsumerProtocolAssignment, likewise."""
    found = read_versioned(data, "ConsumerProtocolAssignment", "consumer", context, place, may_lack=True)
    if found is not None:
        _add_user_data(found["value"], assignor, "AssignmentInfo", context)
    return found


def _add_user_data(value: Body, assignor: str | None, streams: str, context: DecodeContext) -> None:
    """Add `_user_data`; `streams`: the format of Kafka Streams applications at this place."""
    data = value.get("user_data")
    if not isinstance(data, bytes) or not data:
        return
    found: Body | None = None
    if assignor == "stream":
        found = _streams(data, streams, context)
    elif streams == "SubscriptionInfoData":
        # The other assignors send user data when they join, and none with an assignment.
        if assignor == "sticky":
            found = _sticky(data, context)
        elif assignor == "cooperative-sticky":
            generation = exact(data, "CooperativeStickyAssignorUserData", 0, context)
            found = None if generation is None else {"format": assignor, "version": 0, "value": generation}
    if found is not None:
        value["_user_data"] = found


def _sticky(data: bytes, context: DecodeContext) -> Body | None:
    """The bytes have no version: as in the assignor, the newer one is tried first."""
    for version in (1, 0):
        value = exact(data, "StickyAssignorUserData", version, context)
        if value is not None:
            return {"format": "sticky", "version": version, "value": value}
    return None


def _streams(data: bytes, name: str, context: DecodeContext) -> Body | None:
    """The version is the first field; a newer one is decoded as the newest known if that fits, else only named."""
    versions = data_definitions()[name].message.versions
    version = int.from_bytes(data[:4], "big", signed=True)
    if len(data) < 4 or version < versions.low:
        return None
    value = exact(data, name, min(version, versions.high), context, more=version > versions.high)
    if value is None and version <= versions.high:
        return None
    return {"format": "stream", "version": version, "value": value}
