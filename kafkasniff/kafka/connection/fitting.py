"""Whether a body was decoded as the response that it is taken for."""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.messages.message import Decoded
from kafkasniff.kafka.schema.context import DecodeOptions

__all__ = ["TRIAL", "TRUNCATED", "does_not_fit"]

TRUNCATED: Final = ("body-truncated", "array-too-long")
"""Problems of a body that ends too early and is valid until then."""
TRIAL: Final = DecodeOptions(records="skip", show_secrets=True, inside=False)
"""Options for a message that may be another one."""


def does_not_fit(decoded: Decoded, *, cut: bool) -> bool:
    """Whether a body was not decoded exactly to its end (for a truncated message: to the end of its bytes)."""
    # The option for secrets does not matter here.
    kinds = {problem.kind for problem in decoded.problems} - {"body-withheld"}
    if decoded.raw is None and decoded.raw_redacted is None:
        return "trailing-bytes" in kinds or (cut and bool(kinds))
    return "version-unknown" not in kinds and not (cut and kinds.issubset(TRUNCATED))
