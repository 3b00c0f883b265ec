"""Regular messages as rows; `kernel/feed_found.zig` has the same structure."""

from __future__ import annotations

from typing import Final

import numpy as np

KEYS: Final = 128
VERSIONS: Final = 32
"""Limits of API keys and versions that are looked up."""
NONE: Final = 0xFFFF_FFFF
"""No index."""
REQUEST: Final = 1
ARENA: Final = 2
TAGS: Final = 4
SILENT: Final = 8
ENDED: Final = 16
"""Flags of a message."""

MAX_FRAME: Final = 4 << 20
"""Maximum size of a regular message (`streams.MAX_REGULAR`)."""
MESSAGE: Final = np.dtype(
    [
        ("order", np.int64),
        ("start", np.uint64),
        *(
            (name, np.int64)
            for name in (
                "first_packet",
                "last_packet",
                "packet",
                "first_time",
                "time",
                "latency",
                "duration",
                "ordinal",
            )
        ),
        ("connection", np.uint32),
        ("size", np.uint32),
        ("pair", np.uint32),
        ("correlation", np.int32),
        ("body", np.uint32),
        ("code", np.uint16),
        ("client_id", np.int16),
        ("step", np.uint32),
        ("flags", np.uint8),
        ("mark", np.uint8),
        ("retransmits", np.uint16),
        ("position", np.int64),
        ("number", np.int64),
        ("behind", np.int64),
        ("muted", np.int64),
    ],
    align=True,
)
"""A message (`feed.Message`). `number`: of its exchange, 0 if it has none yet. The kernel leaves it and `mark` at 0."""
