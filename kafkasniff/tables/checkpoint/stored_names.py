"""Names of classes and attributes in the fingerprint of the layouts, if they have another name in the code.

Exports can only be continued by a program with the same fingerprint. So a rename or a move of a class adds a line here,
instead of changing the fingerprint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["described"]

_MODULES: Final = {
    "engine.connection_stats": "accounts",
    "engine.inspector": "inspector",
    "kafka.connection.events": "kafka.events",
    "kafka.connection.opening": "kafka.opening",
    "kafka.connection.waits": "kafka.waits",
    "kafka.messages.envelope": "kafka.embedded.envelope",
    "kafka.schema.context": "kafka.context",
    "tables.checkpoint.carried": "exports.carried",
    "tables.rows.sessions": "rows.sessions",
    "tls.items": "streams",
}
"""Stored name of a module by its name, both below `kafkasniff`."""

_CLASSES: Final[dict[str, str]] = {
    "enrich.catalog.LearnedFacts": "enrich.tellings.Tellings",
    "kafka.connection.events.Detail": "kafka.detail.Detail",
    "kafka.connection.events.LeftOut": "kafka.detail.LeftOut",
    "kafka.schema.context.ConnectionMemory": "kafka.memory.ConnectionMemory",
    "kafka.schema.context.GroupProtocol": "kafka.memory.GroupProtocol",
    "tls.half.Epoch": "tls.protection.Epoch",
    "tls.half.Negotiated": "tls.protection.Negotiated",
    "tls.record.ClientHello": "tls.handshake.ClientHello",
    "tls.record.HandshakeBuffer": "tls.handshake.HandshakeBuffer",
    "tls.record.ServerHello": "tls.handshake.ServerHello",
    "tls.session.Turns": "tls.turns.Turns",
}
"""The same of classes, each with its module."""

_ATTRIBUTES: Final[dict[str, dict[str, str]]] = {
    "enrich.catalog.Catalog": {"learned_facts": "tellings", "topics_learned": "topics_told"},
    "tables.checkpoint.carried.Carried": {"learned_facts": "tellings"},
    "tls.keylog.KeyLog": {"_flaw_count": "_told"},
    "tls.session.TlsSession": {"_problems_found": "_told"},
}
"""Stored name by name of attributes, by class."""

_CLASS: Final = re.compile(r"\bkafkasniff\.([a-z_.]+)\.(_?[A-Z]\w*)")


def described(kind: type, fields: Mapping[str, Any]) -> str:
    """A class with the names and types of its fields, under their stored names."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    stored = _ATTRIBUTES.get(name.removeprefix("kafkasniff."), {})
    listed = ", ".join(f"{stored.get(field, field)}: {of}" for field, of in fields.items())
    return _CLASS.sub(_stored_class, f"{name} {listed}")


def _stored_class(found: re.Match[str]) -> str:
    module, name = found.groups()
    renamed = _CLASSES.get(f"{module}.{name}")
    return f"kafkasniff.{renamed or f'{_MODULES.get(module, module)}.{name}'}"
