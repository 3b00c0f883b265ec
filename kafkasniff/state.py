"""The state of an inspector between two runs, as bytes.

A run that ends, or a micro-batch of a stream, keeps what its connections have not finished: segments held back, the
beginning of a frame, requests without a response. What is loaded again goes on as if there had been no end.

The bytes are a pickle behind a header that names the version of kafkasniff which wrote them; no other version reads
them, since classes change. They may come from a folder that others can write to: nothing but the classes that an
inspector consists of is ever made from them, so that no pickle can call anything else, and no instructions are obeyed
but those that a state is written with (`state_opcodes`).
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final, TypeVar

import kafkasniff
from kafkasniff.errors import UsageError
from kafkasniff.inspector import Inspector
from kafkasniff.state_opcodes import refusal

__all__ = ["dump", "dump_inspector", "load", "load_inspector"]

_Kind = TypeVar("_Kind")

_MAGIC: Final = b"kafkasniff state "
_MODULES: Final = frozenset(
    {
        "kafkasniff.accounts",
        "kafkasniff.enrich.catalog",
        "kafkasniff.enrich.enricher",
        "kafkasniff.enrich.sessions",
        "kafkasniff.enrich.tellings",
        "kafkasniff.exports.carried",
        "kafkasniff.inspector",
        "kafkasniff.model",
        "kafkasniff.memory_limits",
        "kafkasniff.rows.sessions",
        "kafkasniff.streams",
        "kafkasniff.kafka.boundaries",
        "kafkasniff.kafka.connection",
        "kafkasniff.kafka.context",
        "kafkasniff.kafka.detail",
        "kafkasniff.kafka.dialogue",
        "kafkasniff.kafka.early",
        "kafkasniff.kafka.embedded.envelope",
        "kafkasniff.kafka.events",
        "kafkasniff.kafka.exchange",
        "kafkasniff.kafka.framing",
        "kafkasniff.kafka.memory",
        "kafkasniff.kafka.message",
        "kafkasniff.kafka.opening",
        "kafkasniff.kafka.record_batch",
        "kafkasniff.kafka.sasl",
        "kafkasniff.kafka.search",
        "kafkasniff.kafka.trial",
        "kafkasniff.tcp.connection",
        "kafkasniff.tcp.reassembly",
        "kafkasniff.tcp.stream",
        "kafkasniff.tls.clear",
        "kafkasniff.tls.gate",
        "kafkasniff.tls.half",
        "kafkasniff.tls.handshake",
        "kafkasniff.tls.keylog",
        "kafkasniff.tls.negotiation",
        "kafkasniff.tls.protection",
        "kafkasniff.tls.record",
        "kafkasniff.tls.session",
    }
)
"""Modules whose classes may be in a state; none of them does anything when it is made."""
_CONTAINERS: Final = frozenset(
    {("collections", "OrderedDict"), ("collections", "deque"), ("builtins", "set"), ("builtins", "frozenset")}
)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CONTAINERS:
            return super().find_class(module, name)
        # A dotted name would reach what a module imports.
        found = super().find_class(module, name) if module in _MODULES and "." not in name else None
        if not isinstance(found, type) or found.__module__ != module:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a state")
        return found


def _header() -> bytes:
    return _MAGIC + kafkasniff.__version__.encode() + b"\n"


def dump(state: object) -> bytes:
    """The state of `state`, which may go on: an object of the modules that states consist of."""
    return _header() + pickle.dumps(state, 5)


def load(state: bytes, kind: type[_Kind]) -> _Kind:
    """The object that `dump` was given, as it was then.

    Raises UsageError where the bytes are no such state, are damaged, or were written by another version.
    """
    header = _header()
    if not state.startswith(header):
        if not state.startswith(_MAGIC):
            raise UsageError("this is no state of kafkasniff")
        other = state[len(_MAGIC) :].split(b"\n", 1)[0][:40].decode("utf-8", "backslashreplace")
        raise UsageError(f"this state was written by kafkasniff {other}, not {kafkasniff.__version__}: start anew")
    refused = refusal(state, len(header))
    if refused is not None:
        raise UsageError(f"this state is damaged ({refused}): start anew")
    try:
        loaded = _Unpickler(io.BytesIO(memoryview(state)[len(header) :])).load()
    except Exception as error:  # a damaged pickle may raise anything
        raise UsageError(f"this state is damaged ({type(error).__name__}): start anew") from error
    if not isinstance(loaded, kind):
        raise UsageError(f"this is no state of an {kind.__name__.lower()}: start anew")
    return loaded


def dump_inspector(inspector: Inspector) -> bytes:
    """The state of `inspector`, which may go on."""
    return dump(inspector)


def load_inspector(state: bytes) -> Inspector:
    """The inspector that `dump_inspector` was given, as it was then. Raises UsageError as `load` does."""
    return load(state, Inspector)
