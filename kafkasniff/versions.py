"""Versions of APIs as small numbers, as columns have them, and what is known of each."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.message_plan import Plan, request_plan, response_plan
from kafkasniff.native.feed import VERSIONS

__all__ = ["Version", "client_id_text", "distinct", "version_of"]


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


def distinct(codes: NDArray[np.int64]) -> list[int]:
    """Each of these codes once. `np.unique` sorts, and imports for 30 ms."""
    found: list[int] = np.flatnonzero(np.bincount(codes)).tolist()
    return found
