"""The state that a run hands on to the next one, and the same as bytes.

At the end of a run, or of a stream's micro-batch, the unfinished state of its connections is saved: segments held back,
partial frames, requests without a response. The next run, or the same one if it is killed and resumed, continues as if
there had been no interruption.

The bytes may come from a folder that others can write to. They are data only (`graph`): MessagePack, of the types that
`layouts` lists, checked field by field. They begin with a line:

    kafkasniff-state FORMAT LAYOUT VERSION

The format's number is increased when the same fields change their meaning; the layout is a fingerprint of the classes
and their fields. Both have to match the program's. The version, of the kafkasniff that wrote it, is informational.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

import kafkasniff
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.tables.checkpoint.wire import DamagedError
from kafkasniff.tables.rows.connections import Logins
from kafkasniff.tables.rows.sessions import Sessions

if TYPE_CHECKING:
    from kafkasniff.tables.checkpoint.graph import Graph

_Kind = TypeVar("_Kind")

FORMAT: Final = 1
MAX_HEADER: Final = 200
"""Size of the header line in bytes."""
WAY_OUT: Final = "start afresh with --discard-state"

_MAGIC: Final = b"kafkasniff-state "
_HEADER: Final = re.compile(rb"kafkasniff-state (\d{1,9}) ([0-9a-f]{16}) ([!-~]{1,40})\n")


class ShardState(msgspec.Struct):
    """The state of one process: the connections of its share."""

    inspector: Inspector
    enricher: Enricher
    """Its catalog, and the names that it missed; its summary is the inspector's."""
    selected: set[int]
    start_ns: int | None = None
    """Time of the first packet, for relative filters."""
    logins: Logins | None = None
    """The authentication of open connections, for the table `connections`; None without it."""

    def limit_memory(self, size: int, processes: int = 1, whole: int | None = None) -> None:
        """From here on keep at most about this many bytes in all of `processes`, which share them evenly.

        `whole`: the run's budget, which bounds each message, if `size` is a part of it.
        """
        self.inspector.limit_memory(size // processes)
        # The bounds of names and of a message must not depend on the number of processes.
        self.inspector.limit_messages(size if whole is None else whole)
        self.enricher.limit_memory(size)
        self.inspector.count_beside(self.enricher)


class Carried(msgspec.Struct):
    """The state of all processes. By default that before the first run."""

    shards: list[bytes] = []
    """Dumped `ShardState`s."""
    sessions: Sessions = msgspec.field(default_factory=Sessions)
    learned_facts: LearnedFacts = msgspec.field(default_factory=LearnedFacts)
    """The summary of all shards."""
    order: int = 0
    """Number of packets so far; later packets are counted from there."""


@functools.cache
def _graph() -> Graph:
    # Building it imports a lot, which most runs do not need.
    from kafkasniff.tables.checkpoint.graph import Graph  # noqa: PLC0415
    from kafkasniff.tables.checkpoint.layouts import layouts  # noqa: PLC0415

    return Graph(layouts())


def dump(state: object) -> bytes:
    """The state of `state`, which remains usable: an object of a class that states may contain (else TypeError)."""
    graph = _graph()
    header = _MAGIC + f"{FORMAT} {graph.fingerprint} {kafkasniff.__version__}\n".encode()
    return graph.dump(state, header)


def load(state: bytes, kind: type[_Kind]) -> _Kind:
    """The object that was given to `dump`. Nothing else is changed, whatever the bytes contain.

    Raises UsageError if the bytes are not such a state, are damaged, or have another layout.
    """
    graph = _graph()
    header = _HEADER.match(state[:MAX_HEADER])
    if header is None:
        raise UsageError(f"this is not a state of kafkasniff: {WAY_OUT}")
    form, layout, version = (group.decode() for group in header.groups())
    if (int(form), layout) != (FORMAT, graph.fingerprint):
        raise UsageError(
            f"this state was written by kafkasniff {version}, in a format that {kafkasniff.__version__} does not "
            f"support: {WAY_OUT}"
        )
    try:
        loaded = graph.load(memoryview(state)[header.end() :], kind)
    except DamagedError as error:
        raise UsageError(f"this state is damaged ({_line(error)}): {WAY_OUT}") from error
    if loaded is None:
        raise UsageError(f"this is not the state of an {kind.__name__.lower()}: {WAY_OUT}")
    return loaded


def _line(error: DamagedError) -> str:
    """The reason in one line; it may contain input."""
    return ascii(str(error))[1:-1][:MAX_HEADER]
