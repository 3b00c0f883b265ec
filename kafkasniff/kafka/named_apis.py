"""Numbers of the few APIs that the code knows by what they do, beyond what a definition can say.

Rules of the dialogue are about one API each: how a client introduces itself, which request may go without a response,
what a fetch session holds. Properties of fields and messages (records, payload, secrets, floats, entities, nested
messages, waits) are read off the definitions instead, so that a new API needs no code.
"""

from __future__ import annotations

from typing import Final

__all__ = ["API_VERSIONS", "FETCH", "HANDSHAKE", "METADATA", "PRODUCE", "SASL_AUTHENTICATE", "SASL_HANDSHAKE"]

PRODUCE: Final = 0
"""With acks 0 it is not answered. Zeros look like one, since its key is 0."""
FETCH: Final = 1
"""Goes by fetch sessions (KIP-227)."""
METADATA: Final = 3
"""Asks for all topics by naming none, in version 0."""
SASL_HANDSHAKE: Final = 17
"""Raw tokens follow version 0 of it (KIP-43)."""
API_VERSIONS: Final = 18
"""The first request of most connections. Refused, it is answered in version 0 (KIP-511)."""
SASL_AUTHENTICATE: Final = 36
"""Carries the tokens since KIP-152."""

HANDSHAKE: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
"""What whoever connects may send before anything else."""
