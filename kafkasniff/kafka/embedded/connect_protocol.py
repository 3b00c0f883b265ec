"""Groups of protocol type `connect`: the workers of a Kafka Connect cluster.

`org.apache.kafka.connect.runtime.distributed`: ConnectProtocol (version 0, eager) and
IncrementalCooperativeConnectProtocol (versions 1, KIP-415, and 2, KIP-507, which differ only in the version number).
"""

from __future__ import annotations

from kafkasniff.kafka.embedded.versioned import read_versioned
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.model import Body

__all__ = ["assignment", "worker_state"]


def worker_state(data: bytes, context: DecodeContext, place: str) -> Body | None:
    """State that a worker sends when it joins: its REST address, its position in the configuration, its tasks.

    The latter, `allocation`, is an assignment as bytes, with its own version: `_allocation` is its decoded form.
    """
    found = read_versioned(data, "ConnectWorkerState", "connect", context, place)
    if found is not None:
        value = found["value"]
        allocation = value.get("allocation")
        if isinstance(allocation, bytes) and allocation:
            read = assignment(allocation, context, f"{place}.allocation")
            if read is not None:
                value["_allocation"] = read
    return found


def assignment(data: bytes, context: DecodeContext, place: str) -> Body | None:
    """What a worker has to run, and to stop; task -1 is the connector itself."""
    return read_versioned(data, "ConnectAssignment", "connect", context, place)
