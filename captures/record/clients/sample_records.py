"""The records that the Python clients produce: one of each kind that the format distinguishes."""

from __future__ import annotations

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

BASE_TIMESTAMP = 1_700_000_000_000
"""Timestamp of the first record, in ms; a fixed one, so that the sidecars of two runs are alike."""

Header = tuple[str, bytes | None]
Record = tuple[bytes | None, bytes | None, list[Header]]

RECORDS: tuple[Record, ...] = (
    (b"key-0", b"value-0 " + b"lorem ipsum dolor sit amet " * 6, []),
    (None, b"no key", [("trace", b"a1b2"), ("trace", b"second of the same name")]),
    (b"tombstone", None, [("reason", None)]),
    (b"", b"", [("empty", b"")]),
    (b"\xff\xfe\x00binary", bytes(range(0, 256, 5)), [("bin", b"\x00\x80\xff")]),
    ("schlüssel".encode(), "größe 數據 ✓".encode(), [("kopf-ü", "wért".encode())]),
)


def timestamp(index: int) -> int:
    """Timestamp of a record in ms: not rising evenly, so that deltas differ."""
    return BASE_TIMESTAMP + index * index * 1000
