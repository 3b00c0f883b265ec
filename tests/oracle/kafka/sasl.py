"""Raw SASL tokens: int32 size + token without a Kafka header.

After SaslHandshake v0 (KIP-43) the tokens of the mechanism follow raw, from client and broker in turn; before KIP-43
(0.9) GSSAPI tokens come from the start. Nothing on the wire marks the end: it is the first client frame with the header
of a request, and with PLAIN and SCRAM, whose clients send a known number of tokens, the one after those. The tokens of
GSSAPI begin with 0x60 or 0x05 0x04 (RFC 2743, 3.1; RFC 4121, 4.2.6.2), unlike any API key.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.connection.events import Frame
from kafkasniff.kafka.messages.plausibility import is_likely_request

SCRAM_ANSWERS: Final = (b"r=", b"v=", b"e=")
"""Prefixes of the broker's tokens in SCRAM."""
_SCRAM: Final = (2, (b"n,", b"y,", b"p=", b"c="), SCRAM_ANSWERS)
_KNOWN: Final = {"PLAIN": (1, (b"",), (b"",)), "SCRAM-SHA-256": _SCRAM, "SCRAM-SHA-512": _SCRAM}
"""Number of tokens that a client sends; prefixes of its and the broker's. RFC 4616, section 2; RFC 5802, section 7."""


class RawSasl:
    """The state of one authentication with raw tokens."""

    def __init__(self, mechanism: str | None) -> None:
        self.mechanism = mechanism
        self._client_tokens = 0
        self._broker_tokens = 0
        self._over = False
        """The client has sent a request: it sends no more tokens."""

    def takes_request_frame(self, frame: Frame) -> bool:
        """Whether a frame of the client's stream is a token; False ends the client's part of the phase."""
        known = _KNOWN.get(self.mechanism or "")
        if known is None:
            token = True
        else:
            count, beginnings, _ = known
            token = self._client_tokens < count and frame.data.startswith(beginnings, frame.start, frame.end)
        token = token and not self._over and not is_likely_request(frame.data, frame.start, frame.end)
        self._over = not token
        self._client_tokens += token
        return token

    def takes_response_frame(self, frame: Frame) -> bool:
        """Whether the next frame of the broker's stream is a token.

        The broker answers each of the client's. For known mechanisms its prefix decides, since with two capture points
        it may precede the client's.
        """
        known = _KNOWN.get(self.mechanism or "")
        if known is None:
            token = self._broker_tokens < self._client_tokens
        elif self.mechanism == "PLAIN":
            token = frame.start == frame.end  # success says nothing, a failure closes the connection
        else:
            token = self._broker_tokens < known[0] and frame.data.startswith(known[2], frame.start, frame.end)
        self._broker_tokens += token
        return token
