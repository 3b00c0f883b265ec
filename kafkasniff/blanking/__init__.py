"""Captures that may be handed on: bytes of payload and secrets blanked where they stand, every length as it was.

What is not known to be harmless is blank: bytes are shown where a message was decoded and its decoder would show them.
"""

from __future__ import annotations

from kafkasniff.blanking.matching import Matching, Wanted, Written
from kafkasniff.blanking.message import Blanker

__all__ = ["Blanker", "Matching", "Wanted", "Written"]
