"""Secrets in the topic that the workers of Kafka Connect keep their configurations in.

The topic has no name of its own (`config.storage.topic`), so its records are known by what they are
(`org.apache.kafka.connect.storage.KafkaConfigBackingStore`): the record `session-key` holds the key that workers sign
their requests to each other with (KIP-507), the records `connector-NAME` and `task-NAME-N` hold all settings of a
connector, passwords among them. Values are JSON without a schema, as Connect's internal converter writes them.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.secrets import is_sensitive, redacted

__all__ = ["CONNECT_KEYS", "told_of_secrets", "withhold_secrets"]

CONNECT_KEYS: Final = (b"session-key", b"connector-", b"task-")
"""What the keys of records that may hold a secret begin with."""

_SESSION_KEY: Final = CONNECT_KEYS[0]
_NO_SECRETS: Final = ("algorithm", "creation-timestamp")
_FORMAT: Final = "connect-config"


def withhold_secrets(records: dict[str, Any], context: DecodeContext) -> None:
    """Redact values in a decoded `records` field, and put beside them as `_value` what they hold besides secrets.

    Hot: sees every record.
    """
    if context.options.show_secrets:
        return
    for batch in records["batches"]:
        for record in batch.get("records") or ():
            key = record["key"]
            if key.__class__ is bytes and key.startswith(CONNECT_KEYS):
                value = record["value"]
                told = told_of_secrets(key, value)
                if told is not None:
                    record["value"] = redacted(value)
                    record["_value"] = {"format": _FORMAT, "value": told["value"]}


def told_of_secrets(key: bytes, value: object) -> dict[str, Any] | None:
    """What may be shown of a record's value that holds a secret: `{"value"}`, None where it cannot be read.

    None where the value holds none. `key` begins with one of `CONNECT_KEYS`.
    """
    if not isinstance(value, bytes) or (key != _SESSION_KEY and b'"properties"' not in value):
        return None
    try:
        return _told(key, msgspec.json.decode(value))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # It is no JSON, or nested too deep to be read, or to be written again.
        return {"value": None}


def _told(key: bytes, told: object) -> dict[str, Any] | None:
    """The same of a value as it was read. Raises RecursionError where it is nested too deep."""
    if not isinstance(told, dict):
        return {"value": None}
    if key == _SESSION_KEY:
        return {"value": {name: _shown(one, secret=name not in _NO_SECRETS) for name, one in told.items()}}
    settings = told.get("properties")
    if not isinstance(settings, dict):
        return {"value": None}
    secret = {name for name, one in settings.items() if one is not None and is_sensitive(name, one)}
    if not secret:
        return None
    return {"value": {"properties": {name: _shown(one, secret=name in secret) for name, one in settings.items()}}}


def _shown(value: object, *, secret: bool) -> object:
    """A setting, which is a string, or a number of 64 bits; what else it is stands for itself no more than a secret."""
    if not secret and (value is None or isinstance(value, str) or (isinstance(value, int) and abs(value) < 1 << 63)):
        return value
    return redacted(value if isinstance(value, str) else json.dumps(value))
