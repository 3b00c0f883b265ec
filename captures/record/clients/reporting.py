"""What a client program says it did: one JSON object per line on stdout."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any


def plain(value: Any) -> Any:
    """Bytes as text where they are UTF-8, else as ``{"base64": …}``; containers likewise."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def report(kind: str, **fields: Any) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps({"kind": kind, **plain(fields)}, ensure_ascii=False) + "\n")
    sys.stdout.flush()
