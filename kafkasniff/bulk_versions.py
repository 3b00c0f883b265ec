"""Versions of APIs as small numbers, by which columns tell them, and what is known of each; for bulk.py."""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.bulk_frames import Ints
from kafkasniff.kafka.message_plan import Plan, request_plan, response_plan

__all__ = ["KEYS", "NO_CODE", "VERSIONS", "Version", "client_id_text", "header_kinds", "version_of", "versions"]

KEYS: Final = 128
VERSIONS: Final = 32
"""API keys and versions below these are looked at; there are none above."""
NO_CODE: Final = KEYS * VERSIONS
_UNKNOWN: Final = -1


class Version(NamedTuple):
    """An API's version."""

    key: int
    version: int
    request: Plan
    response: Plan
    api: str | None
    flexible: bool
    """A byte for tagged fields stands in front of a request's body."""
    flexible_response: bool
    """Likewise in front of a response's."""


@functools.lru_cache(maxsize=1024)
def client_id_text(raw: bytes) -> str | bytes:
    """A client id; bytes where it is not UTF-8. They repeat in every request of a connection."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


@functools.cache  # as many as there are codes
def version_of(code: int) -> Version:
    """What the code of an entry stands for."""
    key, version = divmod(code, VERSIONS)
    plan = request_plan(key, version)
    answer = response_plan(key, version)
    return Version(key, version, plan, answer, plan.api, plan.header > 1, answer.header > 0)


def versions(codes: Ints) -> dict[int, Version | None]:
    """The same for each of these codes; None for those below zero."""
    return {code: None if code < 0 else version_of(code) for code in (_distinct(codes + 1) - 1).tolist()}


def _distinct(codes: Ints) -> Ints:
    """Each of these codes once. `np.unique` sorts, and imports for 30 ms."""
    found: Ints = np.flatnonzero(np.bincount(codes))
    return found


_KINDS: Final[NDArray[np.int8]] = np.full(NO_CODE + 1, _UNKNOWN, np.int8)
_KINDS[NO_CODE] = 0


def header_kinds(code: Ints) -> NDArray[np.int8]:
    """Version of the header of requests with these codes; 0 where they cannot be taken in bulk."""
    kinds: NDArray[np.int8] = _KINDS[code]
    unknown = kinds == _UNKNOWN
    if unknown.any():
        for one in _distinct(code[unknown]).tolist():
            key, version = divmod(one, VERSIONS)
            plan = request_plan(key, version)
            # What is said of a connection has to be read before what comes behind it, also of the same batch.
            is_independent = plan.known_version and not plan.asks_connection and not plan.needed
            _KINDS[one] = plan.header if is_independent else 0
        kinds = _KINDS[code]
    return kinds
