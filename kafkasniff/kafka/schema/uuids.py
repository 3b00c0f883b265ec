"""Uuids as Kafka prints them: 22 characters of base64url without padding (org.apache.kafka.common.Uuid.toString)."""

from __future__ import annotations

import functools
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

__all__ = ["ZERO_UUID", "uuid_bytes", "uuid_text"]

ZERO_UUID: Final = "A" * 22
"""All bits zero: means "none" wherever a uuid is optional."""


# The same few topic, directory and member ids repeat; a hit costs a fifth of the encoding.
@functools.lru_cache(maxsize=8192)
def uuid_text(raw: bytes) -> str:
    """The text of 16 bytes."""
    return urlsafe_b64encode(raw)[:22].decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a text of 22 characters; raises ValueError for anything else."""
    raw = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a uuid as Kafka prints it")
    return raw
