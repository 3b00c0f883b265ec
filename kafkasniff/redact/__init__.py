"""Captures that are safe to share: payload and secrets are blanked in place, without changing any length.

Anything that is not known to be harmless is blanked: bytes are shown only if a message was decoded and its decoder
would show them.
"""

from __future__ import annotations

from kafkasniff.redact.matching import Matching, WantedConnections, Written
from kafkasniff.redact.message import Blanker

__all__ = ["Blanker", "Matching", "WantedConnections", "Written"]
