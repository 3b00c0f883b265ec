"""Several interfaces as one timeline.

The kernel releases packets in blocks, each up to some time after its first packet; until then it is unknown which
packets of another interface come first. So packets wait that time and are then ordered by their times. Within one
interface the order stays that of capture, whatever its clock does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.live.frames import Frames
from kafkasniff.model import NO_TIME

__all__ = ["MAX_PENDING", "TimeMerge"]

MAX_PENDING: Final = 64 << 20
"""Maximum size in bytes of waiting packets; beyond it, the oldest are emitted although some interfaces were silent."""


class _Part(NamedTuple):
    frames: Frames
    keys: NDArray[np.int64]
    """The packet clock of its interface at each packet."""
    taken: float


class TimeMerge:
    """Frames of several captures in, in the kernel's order; out in order of time.

    `wait`: seconds after which all packets before a given one have arrived.
    """

    def __init__(self, captures: int, wait: float) -> None:
        self._wait = wait
        self._parts: list[_Part] = []
        self._clock = [NO_TIME] * captures
        self._pending = 0

    def add(self, frames: Frames, now: float) -> None:
        """Packets of one capture (at least one), taken at `now` (seconds, monotonic)."""
        capture = int(frames.packets.capture[0])
        keys = np.maximum.accumulate(np.maximum(frames.packets.time_ns, self._clock[capture]))
        self._clock[capture] = int(keys[-1])
        self._parts.append(_Part(frames, keys, now))
        self._pending += len(frames.packets.buffer)

    def due_in(self, now: float) -> float | None:
        """Seconds until something is due; None if nothing waits."""
        return None if not self._parts else max(0.0, self._parts[0].taken + self._wait - now)

    def due(self, now: float, unread: Collection[int] = ()) -> Frames | None:
        """The packets that can be emitted; `unread` are captures with more available data, to be read first."""
        waited = [part for part in self._parts if now - part.taken >= self._wait]
        if self._pending > MAX_PENDING and not waited:
            waited = self._parts[:1]
        if not waited:
            return None
        horizon = max(int(part.keys[-1]) for part in waited)
        if self._pending <= MAX_PENDING:
            horizon = min([horizon, *(self._clock[capture] for capture in unread)])
        return self._up_to(horizon)

    def rest(self) -> Frames | None:
        """All waiting packets."""
        return self._up_to(None)

    def _up_to(self, horizon: int | None) -> Frames | None:
        ready: list[_Part] = []
        left: list[_Part] = []
        for part in self._parts:
            count = len(part.keys) if horizon is None else int(np.searchsorted(part.keys, horizon, "right"))
            if count == len(part.keys):
                ready.append(part)
                continue
            if count:
                ready.append(part._replace(frames=part.frames.pick(np.arange(count)), keys=part.keys[:count]))
            rest = part.frames.pick(np.arange(count, len(part.keys))) if count else part.frames
            left.append(part._replace(frames=rest, keys=part.keys[count:]))
        self._parts = left
        self._pending = sum(len(part.frames.packets.buffer) for part in left)
        if not ready:
            return None
        keys = np.concatenate([part.keys for part in ready])
        return Frames.merge([part.frames for part in ready], np.argsort(keys, kind="stable"))
