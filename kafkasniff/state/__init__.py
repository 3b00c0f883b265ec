"""The state of an inspector between two runs, as bytes.

A run that ends, or a micro-batch of a stream, keeps what its connections have not finished: segments held back, the
beginning of a frame, requests without a response. What is loaded again goes on as if there had been no end.

The bytes may come from a folder that others can write to. They are data and nothing else (`graph`): MessagePack, of
the types that `layouts` lists, checked field by field. In front stands a line:

    kafkasniff-state FORMAT LAYOUT VERSION

The format's number rises where the same fields mean something else; the layout's is made of the classes and their
fields; both have to be those of the program. The version, of the kafkasniff that wrote it, is for people.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, TypeVar

import kafkasniff
from kafkasniff.errors import UsageError
from kafkasniff.inspector import Inspector
from kafkasniff.state.wire import DamagedError

if TYPE_CHECKING:
    from kafkasniff.state.graph import Graph

__all__ = ["WAY_OUT", "dump", "dump_inspector", "load", "load_inspector"]

_Kind = TypeVar("_Kind")

FORMAT: Final = 1
MAX_HEADER: Final = 200
"""Bytes of the line in front."""
WAY_OUT: Final = "start afresh with --discard-state"

_MAGIC: Final = b"kafkasniff-state "
_PICKLED: Final = b"kafkasniff state "
"""How states began that were pickles, up to version 0.1."""
_HEADER: Final = re.compile(rb"kafkasniff-state (\d{1,9}) ([0-9a-f]{16}) ([!-~]{1,40})\n")


@functools.cache
def _graph() -> Graph:
    # What it is made of imports who dumps and loads; and most runs do neither.
    from kafkasniff.state.graph import Graph  # noqa: PLC0415
    from kafkasniff.state.layouts import layouts  # noqa: PLC0415

    return Graph(layouts())


def dump(state: object) -> bytes:
    """The state of `state`, which may go on: an object of a class that states may hold (else TypeError)."""
    graph = _graph()
    header = _MAGIC + f"{FORMAT} {graph.fingerprint} {kafkasniff.__version__}\n".encode()
    return header + graph.dump(state)


def load(state: bytes, kind: type[_Kind]) -> _Kind:
    """The object that `dump` was given, as it was then. Nothing else is changed, whatever the bytes hold.

    Raises UsageError where the bytes are no such state, are damaged, or are of another layout.
    """
    graph = _graph()
    header = _HEADER.match(state[:MAX_HEADER])
    if header is None:
        if state.startswith(_PICKLED):
            raise UsageError(f"this state is of an older kafkasniff, in a form that is not read any more: {WAY_OUT}")
        raise UsageError(f"this is no state of kafkasniff: {WAY_OUT}")
    form, layout, version = (one.decode() for one in header.groups())
    if (int(form), layout) != (FORMAT, graph.fingerprint):
        raise UsageError(
            f"this state was written by kafkasniff {version}, which keeps other things than {kafkasniff.__version__} "
            f"does: {WAY_OUT}"
        )
    try:
        loaded = graph.load(memoryview(state)[header.end() :], kind)
    except DamagedError as error:
        raise UsageError(f"this state is damaged ({_line(error)}): {WAY_OUT}") from error
    if loaded is None:
        raise UsageError(f"this is no state of an {kind.__name__.lower()}: {WAY_OUT}")
    return loaded


def _line(error: DamagedError) -> str:
    """Why, in one line; what was read may be part of it."""
    return ascii(str(error))[1:-1][:MAX_HEADER]


def dump_inspector(inspector: Inspector) -> bytes:
    """The state of `inspector`, which may go on."""
    return dump(inspector)


def load_inspector(state: bytes) -> Inspector:
    """The inspector that `dump_inspector` was given, as it was then. Raises UsageError as `load` does."""
    return load(state, Inspector)
