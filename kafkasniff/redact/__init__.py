"""Captures that are safe to share: payload and secrets are blanked in place, without changing any length.

Anything that is not known to be harmless is blanked: bytes are shown only if a message was decoded and its decoder
would show them.
"""

# Imports nothing: every command needs `redact.payload`, few need the rest, and start-up is faster without it.
