"""Data that is only shown on request.

Fields that are always secret are marked `secret` in the definitions; configuration values are secret by their names.

The patterns follow Apache Kafka's declarations of ConfigDef.Type.PASSWORD (passwords and keys of key and trust stores,
JAAS configuration, password encoder and delegation token keys, OAuth client secrets), under any prefix, such as
`listener.name.internal.`, and common names in connectors. They err on the side of hiding: `password.encoder.iterations`
is hidden too. Whatever its name, a value with a password in it is hidden: in a URL or in the configuration of a login
module.

Kafka Connect workers keep their configurations in a topic without a fixed name (`config.storage.topic`), so its records
are recognized by their keys (`org.apache.kafka.connect.storage.KafkaConfigBackingStore`): the record `session-key`
holds the key with which workers sign their requests to each other (KIP-507), the records `connector-NAME` and
`task-NAME-N` hold all settings of a connector, including passwords. Values are JSON without a schema, as written by
Connect's internal converter.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kafkasniff.kafka.schema.context import DecodeContext

SENSITIVE_NAMES: Final = re.compile(
    r"password|passphrase|passwd|secret|credentials"
    r"|jaas\.config"
    r"|keystore\.key|keystore\.certificate\.chain|truststore\.certificates"
    r"|(master|private|secret|api|access|encryption)[._-]?key"
    r"|basic\.auth\.user\.info|(^|[._-])token$",
    re.IGNORECASE,
)
CONNECT_MARKS: Final = (b"session-key", b'"properties":')
"""Byte patterns of uncompressed Kafka Connect records with secrets (`withhold_secrets`)."""

_PASSWORD_INSIDE: Final = re.compile(r"://[^\s/@:]*:[^\s/@]+@|\bpassword\s*=", re.IGNORECASE)

_ENDED: Final = frozenset({"body-truncated", "array-too-long"})
_MISREAD: Final = _ENDED | {
    "bool-not-0-or-1",
    "length-negative",
    "string-not-utf8",
    "struct-mark-odd",
    "tag-size-mismatch",
    "tags-not-ascending",
    "too-many-elements",
    "trailing-bytes",
    "varint-too-long",
}
"""Problems of bodies that a wrong length may have caused."""


@functools.lru_cache(maxsize=4096)
def is_sensitive_name(name: str | bytes | None) -> bool:
    """Whether a configuration entry of this name may hold a secret; a name that cannot be decoded counts as one."""
    return not isinstance(name, str) or SENSITIVE_NAMES.search(name) is not None


def is_sensitive(name: str | bytes | None, value: object) -> bool:
    """Whether a configuration entry may hold a secret: by its name, or because its value has a password in it."""
    return is_sensitive_name(name) or (isinstance(value, str) and _PASSWORD_INSIDE.search(value) is not None)


def redacted(value: str | bytes) -> dict[str, int]:
    """The replacement of a secret: its length in bytes."""
    return {"redacted": len(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)}


def may_be_misread(kinds: Iterable[str], *, cut: bool) -> bool:
    """Whether a body with problems of these kinds may have been decoded at wrong positions.

    After a wrong length everything may be mistaken for something else, a secret for a name. If bytes are known to be
    missing at its end (`cut`), a body that just ends is right as far as it goes.
    """
    doubts = [kind for kind in kinds if kind in _MISREAD]
    return bool(doubts) and not (cut and len(doubts) == 1 and doubts[0] in _ENDED)


def redact_config(config: dict[str, Any], complete: bool = True) -> None:
    """Hide the value of a configuration entry (fields `name`, `value`, perhaps `is_sensitive` and `synonyms`).

    `complete` is False if the message ended within the entry: then the deciding fields are missing, so it is hidden.
    """
    entries = (config, *(config.get("synonyms") or ()))
    if (
        not complete
        or config.get("is_sensitive")
        or any(is_sensitive(config.get("name"), entry.get("value")) for entry in entries)
    ):
        for entry in entries:
            value = entry.get("value")
            if isinstance(value, str | bytes):
                entry["value"] = redacted(value)


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
    secret = {name for name, setting in settings.items() if setting is not None and is_sensitive(name, setting)}
    if not secret:
        return None
    return {
        "value": {"properties": {name: _shown(setting, secret=name in secret) for name, setting in settings.items()}}
    }


def _shown(value: object, *, secret: bool) -> object:
    """A setting, which is a string or a 64-bit number; any other value is handled as if it were a secret."""
    if not secret and (value is None or isinstance(value, str) or (isinstance(value, int) and abs(value) < 1 << 63)):
        return value
    if isinstance(value, str):
        return redacted(value)
    import json  # noqa: PLC0415 - few captures have such a value, and every start would pay for it

    return redacted(json.dumps(value))
