"""Data that is only shown on request.

Fields that are always secret are marked `secret` in the definitions; configuration values are secret by their names.

The patterns follow Apache Kafka's declarations of ConfigDef.Type.PASSWORD (passwords and keys of key and trust stores,
JAAS configuration, password encoder and delegation token keys, OAuth client secrets), under any prefix, such as
`listener.name.internal.`, and common names in connectors. They err on the side of hiding: `password.encoder.iterations`
is hidden too. Whatever its name, a value with a password in it is hidden: in a URL or in the configuration of a login
module.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["CONNECT_MARKS", "is_sensitive", "is_sensitive_name", "may_be_misread", "redact_config", "redacted"]

SENSITIVE_NAMES: Final = re.compile(
    r"password|passphrase|passwd|secret|credentials"
    r"|jaas\.config"
    r"|keystore\.key|keystore\.certificate\.chain|truststore\.certificates"
    r"|(master|private|secret|api|access|encryption)[._-]?key"
    r"|basic\.auth\.user\.info|(^|[._-])token$",
    re.IGNORECASE,
)
CONNECT_MARKS: Final = (b"session-key", b'"properties":')
"""Byte patterns of uncompressed Kafka Connect records with secrets (`embedded.connect_configs`)."""

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
