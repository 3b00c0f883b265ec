"""An inspector without the kernel's feed, and all that one keeps of its connections: to hold the two ways equal.

Bytes in a list are a frame's parts, wherever they were parted. The order of a plain dict is nobody's business.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from operator import itemgetter

from kafkasniff.engine.inspector import Inspector
from kafkasniff.tcp.connection import TcpConnection

__all__ = ["OneByOne", "kept"]

_ELSEWHERE = ("owner", "place", "unreported_ignored", "unreported_repeated")
"""What of a connection is not a state of its streams, and what is counted a batch later where nothing else happens."""


class OneByOne(Inspector):
    """Takes all packets by Python."""

    _uses_kernel = False


def kept(inspector: Inspector) -> object:
    """All that is kept of the connections, as plain values; what is counted anew with each batch is not."""
    inspector._state.detail.ahead = 0
    connections = sorted(inspector.reassembler._table.items(), key=itemgetter(0))
    return [(key, _owner(tcp), _streams(tcp)) for key, tcp in connections]


def _owner(tcp: TcpConnection) -> object:
    """Without the memory that it was last seen to take: connections in step are counted together."""
    owner = tcp.owner
    return [(name, _plain(getattr(owner, name), set())) for name in type(owner).__slots__ if name != "held"]


def _streams(tcp: TcpConnection) -> object:
    for stream in tcp.streams:
        stream.take_recent()
    return [(name, _plain(getattr(tcp, name), set())) for name in tcp.__slots__ if name not in _ELSEWHERE]


def _plain(thing: object, seen: set[int]) -> object:
    """All that an object holds, as plain values."""
    if isinstance(thing, (str, bytes, int, float, bool, type(None), type)) or callable(thing):
        return thing
    if id(thing) in seen:
        return "…"
    seen = seen | {id(thing)}
    if isinstance(thing, dict):
        found = [(_plain(key, seen), _plain(value, seen)) for key, value in thing.items()]
        return found if isinstance(thing, OrderedDict) else sorted(found, key=repr)
    if isinstance(thing, list) and all(isinstance(one, bytes) for one in thing):
        return b"".join(thing)
    if isinstance(thing, (set, frozenset)):
        return sorted(map(repr, thing))
    if isinstance(thing, Iterable):
        return [_plain(one, seen) for one in thing]
    names = [
        *getattr(thing, "__slots__", ()),
        *getattr(thing, "__struct_fields__", ()),
        *getattr(thing, "__dict__", ()),
    ]
    return [(name, _plain(getattr(thing, name), seen)) for name in names if hasattr(thing, name)]
