"""Numbers of the few APIs whose behaviour the code knows, beyond what a definition can express.

Rules of the dialogue concern one API each: how a client introduces itself, which request may have no response, what a
fetch session holds. Properties of fields and messages (records, payload, secrets, floats, entities, nested messages,
waits) come from the definitions instead, so that a new API needs no code.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "API_VERSIONS",
    "COMMITS",
    "FETCH",
    "HANDSHAKE",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "PRODUCE",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SHARE_ACKNOWLEDGE",
    "SHARE_FETCH",
    "TXN_OFFSET_COMMIT",
]

PRODUCE: Final = 0
"""With acks 0 it is not answered. Zeros look like one, since its key is 0."""
FETCH: Final = 1
"""Uses fetch sessions (KIP-227)."""
METADATA: Final = 3
"""In version 0, naming no topic requests all."""
OFFSET_COMMIT: Final = 8
"""Stores the offsets of a group."""
OFFSET_FETCH: Final = 9
"""Returns them."""
SASL_HANDSHAKE: Final = 17
"""Version 0 is followed by raw tokens (KIP-43)."""
API_VERSIONS: Final = 18
"""The first request of most connections. If refused, it is answered in version 0 (KIP-511)."""
TXN_OFFSET_COMMIT: Final = 28
"""Stores the offsets of a group when a transaction ends (KIP-98)."""
SASL_AUTHENTICATE: Final = 36
"""Carries the tokens since KIP-152."""

SHARE_FETCH: Final = 78
"""Fetches for a share group (KIP-932)."""
SHARE_ACKNOWLEDGE: Final = 79
"""Says what a member of a share group did with records."""

COMMITS: Final = frozenset({OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT})
"""Exchanges that show the committed offsets of a group."""
HANDSHAKE: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
"""Requests that clients may send before authentication."""
