"""Versions of APIs as small numbers for columns, and their properties."""

from __future__ import annotations

import functools

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.native.feed import VERSIONS


class ApiVersion(msgspec.Struct, frozen=True):
    """An API's version."""

    key: int
    version: int
    request: MessagePlan
    response: MessagePlan
    api: str | None
    flexible_response: bool
    """Responses have a byte for tagged fields before the body."""


@functools.lru_cache(maxsize=1024)
def client_id_text(raw: bytes) -> str | bytes:
    """A client id; bytes if it is not UTF-8. Cached, since every request of a connection repeats it."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


@functools.cache  # as many as there are codes
def version_of(code: int) -> ApiVersion:
    """The version that a code represents."""
    key, version = divmod(code, VERSIONS)
    plan = request_plan(key, version)
    answer = response_plan(key, version)
    return ApiVersion(key, version, plan, answer, plan.api, answer.header > 0)


def distinct(codes: NDArray[np.int64]) -> list[int]:
    """The distinct codes. `np.unique` sorts, and imports for 30 ms."""
    found: list[int] = np.flatnonzero(np.bincount(codes)).tolist()
    return found
