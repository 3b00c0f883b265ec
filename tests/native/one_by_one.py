"""An inspector whose connections Python follows, packet by packet, and what any inspector knows of its connections."""

from __future__ import annotations

from kafkasniff.engine.connection_stats import InspectedConnection
from kafkasniff.engine.inspector import Inspector

__all__ = ["OneByOne", "kept"]


class OneByOne(Inspector):
    """Takes all packets by Python."""

    _uses_kernel = False


def kept(inspector: Inspector) -> list[tuple[object, ...]]:
    """The connections that are remembered: endpoints, first packet, verdict, and whether they are over."""
    inspector._state.detail.ahead = 0
    found: list[tuple[object, ...]] = []
    for tcp in inspector.reassembler:
        assert isinstance(tcp.owner, InspectedConnection)
        found.append((tcp.endpoints, tcp.first_packet, tcp.owner.kafka.verdict, tcp.closed))
    found += [(one.endpoints, one.first_packet, one.verdict, one.ended) for one in inspector.followed]
    return sorted(found, key=repr)
