"""Access that brokers denied, by principal, API and resource."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.kafka.schema.errors import error_by_name
from kafkasniff.model import Endpoint, Exchange

__all__ = ["MAX_DENIALS", "Denial", "Denials"]

MAX_DENIALS: Final = 1 << 14
"""Maximum number of different denials that are listed; others are only counted."""

_KINDS: Final = {
    "TOPIC_AUTHORIZATION_FAILED": "topic",
    "GROUP_AUTHORIZATION_FAILED": "group",
    "CLUSTER_AUTHORIZATION_FAILED": "cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "transactional id",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "delegation token",
}
"""Kinds of resources by error."""
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("topic_name", "_topic_name", "topic", "name", "topic_id"),
    "group": ("group_id", "group"),
    "transactional id": ("transactional_id",),
}
"""Fields beside an error, or in a struct around it, that name its resource."""
_STEP: Final = re.compile(r"([A-Za-z_0-9]+)(?:\[(\d+)\])?")


class Denial(msgspec.Struct):
    """Something that a principal may not do."""

    error: str
    kind: str
    """The kind of resource: topic, group …"""
    resource: str | None
    """Its name; None if neither message has it."""
    api: str | None
    principal: str | None
    """None: no authentication was seen."""
    client: str | None
    """The client's address."""
    client_id: str | bytes | None
    broker: Endpoint | None
    count: int = 0
    first: int | None = None
    last: int | None = None
    exchanges: list[tuple[int, int, int | None]] = []
    """connection_id, number and time of the first ones."""


class Denials:
    """Counts denials."""

    def __init__(self, kept: int) -> None:
        """`kept`: exchanges that are named for each denial."""
        self._kept = kept
        self._codes = {found.code: name for name in _KINDS if (found := error_by_name(name)) is not None}
        self.found: dict[tuple[object, ...], Denial] = {}
        self.beyond = 0
        """Denials beyond MAX_DENIALS different ones."""

    def feed(self, exchange: Exchange, principal: str | None) -> None:
        """Take an exchange of a connection with this principal."""
        response = exchange.response
        if response is None or not response.errors:
            return
        seen = {
            (one.code, self._resource(exchange, one.code, one.path))
            for one in response.errors
            if one.code in self._codes
        }
        for code, resource in sorted(seen, key=str):
            self._count(exchange, self._codes[code], resource, principal)

    def _resource(self, exchange: Exchange, code: int, path: str) -> str | None:
        """The name of the resource at an error of a response."""
        kind = _KINDS[self._codes[code]]
        assert exchange.response is not None
        found = _named(exchange.response.body, path, _NAMES.get(kind, ()))
        if found is None:
            # Errors of a whole response are about what the request names.
            named = mentions(exchange.request, exchange.response)
            names = {"topic": named.topics, "group": named.groups, "transactional id": named.transactions}.get(kind, {})
            found = next(iter(names)) if len(names) == 1 else None
        return found

    def _count(self, exchange: Exchange, error: str, resource: str | None, principal: str | None) -> None:
        seen = exchange.request or exchange.response
        assert seen is not None
        client = None if seen.client is None else seen.client.address
        key = (error, resource, seen.api_key, principal, client, seen.client_id)
        denial = self.found.get(key)
        if denial is None:
            if len(self.found) >= MAX_DENIALS:
                self.beyond += 1
                return
            denial = self.found[key] = Denial(
                error, _KINDS[error], resource, seen.api, principal, client, seen.client_id, seen.broker
            )
        denial.count += 1
        if seen.time_ns is not None:
            denial.first = seen.time_ns if denial.first is None else min(denial.first, seen.time_ns)
            denial.last = seen.time_ns if denial.last is None else max(denial.last, seen.time_ns)
        if len(denial.exchanges) < self._kept:
            denial.exchanges.append((exchange.connection_id, exchange.exchange, seen.time_ns))


def _named(body: Any, path: str, names: tuple[str, ...]) -> str | None:
    """The innermost of these fields on the way to an error's path (`topics[3].partitions[0].error_code`)."""
    found = None
    for step in path.split("."):
        if not isinstance(body, dict):
            break
        found = next((text for name in names if isinstance(text := body.get(name), str)), found)
        parsed = _STEP.fullmatch(step)
        if parsed is None:
            break
        body = body.get(parsed[1])
        if parsed[2] is not None:
            body = body[int(parsed[2])] if isinstance(body, list) and int(parsed[2]) < len(body) else None
    return found
