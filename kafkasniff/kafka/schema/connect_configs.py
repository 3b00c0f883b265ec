"""Secrets in the topic in which Kafka Connect workers keep their configurations.

The topic has no fixed name (`config.storage.topic`), so its records are recognized by their keys
(`org.apache.kafka.connect.storage.KafkaConfigBackingStore`): the record `session-key` holds the key with which workers
sign their requests to each other (KIP-507), the records `connector-NAME` and `task-NAME-N` hold all settings of a
connector, including passwords. Values are JSON without a schema, as written by Connect's internal converter.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.secrets import is_sensitive, redacted

__all__ = ["CONNECT_KEYS", "redacted_content", "withhold_secrets"]

CONNECT_KEYS: Final = (b"session-key", b"connector-", b"task-")
"""Prefixes of the keys of records that may hold a secret."""

_SESSION_KEY: Final = CONNECT_KEYS[0]
_NO_SECRETS: Final = ("algorithm", "creation-timestamp")
_FORMAT: Final = "connect-config"


def withhold_secrets(records: dict[str, Any], context: DecodeContext) -> None:
    """Redact values in a decoded `records` field, and add their non-secret content as `_value`.

    Hot: processes every record.
    """
    if context.options.show_secrets:
        return
    for batch in records["batches"]:
        for record in batch.get("records") or ():
            key = record["key"]
            if key.__class__ is bytes and key.startswith(CONNECT_KEYS):
                value = record["value"]
                shown = redacted_content(key, value)
                if shown is not None:
                    record["value"] = redacted(value)
                    record["_value"] = {"format": _FORMAT, "value": shown["value"]}


def redacted_content(key: bytes, value: object) -> dict[str, Any] | None:
    """The displayable content of a record's value that holds a secret: `{"value"}`, None if it cannot be decoded.

    None if the value holds no secret. `key` begins with one of `CONNECT_KEYS`.
    """
    if not isinstance(value, bytes) or (key != _SESSION_KEY and b'"properties"' not in value):
        return None
    try:
        return _displayable(key, msgspec.json.decode(value))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # It is not JSON, or nested too deeply to be decoded or written again.
        return {"value": None}


def _displayable(key: bytes, decoded: object) -> dict[str, Any] | None:
    """The same of a decoded value. Raises RecursionError if it is nested too deeply."""
    if not isinstance(decoded, dict):
        return {"value": None}
    if key == _SESSION_KEY:
        return {"value": {name: _shown(one, secret=name not in _NO_SECRETS) for name, one in decoded.items()}}
    settings = decoded.get("properties")
    if not isinstance(settings, dict):
        return {"value": None}
    secret = {name for name, one in settings.items() if one is not None and is_sensitive(name, one)}
    if not secret:
        return None
    return {"value": {"properties": {name: _shown(one, secret=name in secret) for name, one in settings.items()}}}


def _shown(value: object, *, secret: bool) -> object:
    """A setting, which is a string or a 64-bit number; any other value is handled as if it were a secret."""
    if not secret and (value is None or isinstance(value, str) or (isinstance(value, int) and abs(value) < 1 << 63)):
        return value
    if isinstance(value, str):
        return redacted(value)
    import json  # noqa: PLC0415 - few captures have such a value, and every start would pay for it

    return redacted(json.dumps(value))
