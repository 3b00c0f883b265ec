"""Bodies that come again byte for byte, read once: heartbeats, questions for the same topics, answers that say "none".

Many of a cluster's small messages are the same bytes, but for the correlation id in front of them. Where all that is
done with a body is to show it, one object serves for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafkasniff.kafka.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.message_body import decode_body
from kafkasniff.kafka.message_plan import Plan
from kafkasniff.model import Body, Direction, SharedBody
from kafkasniff.versions import Version

__all__ = ["Repeats"]

MAX_LENGTH: Final = 1 << 10
"""Bytes of a body that is kept. Sinks keep many of them, and a decoded one takes many times its bytes."""
MAX_KEPT: Final = 1024
"""Bodies of a kind."""
MAX_BYTES: Final = 1 << 20
"""Encoded bytes of all that is kept."""
WORTH: Final = MAX_KEPT // 4
"""Bodies of a kind that must have come again for each `MAX_KEPT` that are new; else its bodies are kept no more."""


class _Kind(dict[bytes, SharedBody]):
    """Bodies of a version and direction by their bytes."""

    __slots__ = ("again",)

    def __init__(self) -> None:
        self.again = 0
        """How many came again since it was last emptied."""


class Repeats:
    """What was read lately; `shares` says for which key, version and direction a body may be that of several messages.

    Invariant: a body is the one that `decode_body` gives for these bytes, whose result depends on the bytes, the plan
    and the options alone; messages of which there is more to tell than a body are not kept.
    """

    __slots__ = ("_bytes", "_kinds", "_options", "_shares")

    def __init__(self, shares: Callable[[int, int, Direction], bool]) -> None:
        self._shares = shares
        self._kinds: dict[Plan, _Kind | None] = {}
        """None where nothing is kept. As many as there are versions."""
        self._bytes = 0
        self._options: DecodeOptions | None = None

    def use(self, options: DecodeOptions) -> None:
        """From here on bodies are read by these options: live capture decodes less where it is behind."""
        if options != self._options:
            self._options = options
            self._kinds.clear()
            self._bytes = 0

    def body(  # noqa: PLR0917 - as `decode_body`
        self, version: Version, plan: Plan, data: bytes, start: int, end: int, context: DecodeContext
    ) -> Body | None:
        """`decode_body`; `plan` is that of the version's request or of its response. Hot."""
        try:
            kind = self._kinds[plan]
        except KeyError:
            kind = self._begin(version, plan)
        if kind is None:
            return decode_body(plan, data, start, end, context)
        raw = data[start:end]
        body = kind.get(raw)
        if body is None:
            return self._new(kind, plan, raw, data, start, context)
        kind.again += 1
        return body

    def _begin(self, version: Version, plan: Plan) -> _Kind | None:
        direction: Direction = "request" if plan is version.request else "response"
        kept = plan.alone and not plan.reads_records and self._shares(version.key, version.version, direction)
        kind = self._kinds[plan] = _Kind() if kept else None
        return kind

    def _new(  # noqa: PLR0917 - as above
        self, kind: _Kind, plan: Plan, raw: bytes, data: bytes, start: int, context: DecodeContext
    ) -> Body | None:
        """A body that was not kept so far."""
        body = decode_body(plan, data, start, start + len(raw), context)
        if body is None or len(raw) > MAX_LENGTH:
            return body
        if len(kind) >= MAX_KEPT:
            self._bytes -= sum(map(len, kind))
            if kind.again < WORTH:
                self._kinds[plan] = None
                return body
            kind.clear()
            kind.again = 0
        if self._bytes + len(raw) > MAX_BYTES:
            for other in self._kinds.values():
                if other is not None:
                    other.clear()
            self._bytes = 0
        self._bytes += len(raw)
        shared = kind[raw] = SharedBody(body)
        return shared
