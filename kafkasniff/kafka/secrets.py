"""What must not be shown unless asked for.

Fields that are always secret are marked `secret` in the definitions; configuration values are secret by their names.

The patterns follow what Apache Kafka declares as ConfigDef.Type.PASSWORD (passwords and keys of key and trust stores,
JAAS configuration, password encoder and delegation token keys, OAuth client secrets), under any prefix, such as
`listener.name.internal.`. They err on the side of hiding: `password.encoder.iterations` is hidden too.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

__all__ = ["is_sensitive_name", "redact_config", "redacted"]

SENSITIVE_NAMES: Final = re.compile(
    r"password|passphrase|passwd|secret|credentials"
    r"|jaas\.config"
    r"|keystore\.key|keystore\.certificate\.chain|truststore\.certificates"
    r"|(master|private|secret|api|access|encryption)[._-]?key"
    r"|basic\.auth\.user\.info|bearer\.auth\.token|sasl\.mechanism\.\w+\.token",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=4096)
def is_sensitive_name(name: str | bytes | None) -> bool:
    """Whether a configuration entry of this name may hold a secret; a name that cannot be read counts as one."""
    return not isinstance(name, str) or SENSITIVE_NAMES.search(name) is not None


def redacted(value: str | bytes) -> dict[str, int]:
    """What stands for a secret: its length in bytes."""
    return {"redacted": len(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)}


def redact_config(config: dict[str, Any], complete: bool = True) -> None:
    """Hide the value of a configuration entry (fields `name`, `value`, perhaps `is_sensitive` and `synonyms`).

    `complete` is False where the message ended within the entry: then what would tell is missing, and the value goes.
    """
    if not complete or config.get("is_sensitive") or is_sensitive_name(config.get("name")):
        for entry in (config, *(config.get("synonyms") or ())):
            value = entry.get("value")
            if isinstance(value, str | bytes):
                entry["value"] = redacted(value)
