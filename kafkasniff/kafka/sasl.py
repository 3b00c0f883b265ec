"""Raw SASL tokens: int32 size + token without a Kafka header.

After SaslHandshake v0 (KIP-43) the tokens of the mechanism follow raw, client and broker in turn; before KIP-43 (0.9)
GSSAPI tokens come from the start. Nothing on the wire marks the end. PLAIN and SCRAM have a known number of client
tokens; with other mechanisms the phase ends with the first client frame that is a request to its last byte.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.framing import Frame
from kafkasniff.kafka.search import is_exact_request

__all__ = ["RawSasl"]

_CLIENT_TOKENS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""RFC 4616, section 2; RFC 5802, section 5."""


class RawSasl:
    """The state of one authentication with raw tokens."""

    __slots__ = ("_broker_tokens", "_client_tokens", "mechanism")

    def __init__(self, mechanism: str | None) -> None:
        self.mechanism = mechanism
        self._client_tokens = 0
        self._broker_tokens = 0

    def takes_request_frame(self, frame: Frame) -> bool:
        """Whether a frame of the client's stream is a token; False ends the client's part of the phase."""
        known = _CLIENT_TOKENS.get(self.mechanism or "")
        if known is not None:
            token = self._client_tokens < known
        else:
            token = not is_exact_request(frame.data, frame.start, frame.end)
        self._client_tokens += token
        return token

    def takes_response_frame(self) -> bool:
        """Whether the next frame of the broker's stream is a token: the broker answers each of the client's."""
        token = self._broker_tokens < self._client_tokens
        self._broker_tokens += token
        return token
