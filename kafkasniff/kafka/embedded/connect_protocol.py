"""Groups of protocol type `connect`: the workers of a Kafka Connect cluster.

`org.apache.kafka.connect.runtime.distributed`: ConnectProtocol (version 0, eager) and
IncrementalCooperativeConnectProtocol (versions 1, KIP-415, and 2, KIP-507, which differ in what the version says
alone).
"""

from __future__ import annotations

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.embedded.versioned import read_versioned
from kafkasniff.model import Body

__all__ = ["assignment", "worker_state"]


def worker_state(data: bytes, context: DecodeContext, place: str) -> Body | None:
    """What a worker says when it joins: its REST address, how far it read the configuration, what it runs.

    The latter, `allocation`, is an assignment in bytes, with its own version: `_allocation` stands beside it.
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
    """What a worker is to run, and to stop; task -1 is the connector itself."""
    return read_versioned(data, "ConnectAssignment", "connect", context, place)
