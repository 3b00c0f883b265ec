"""What `benchmarks.growth` measures, and the arithmetic on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

FIRST: Final = (0.25, 0.5)
"""By what was written: the part of a run whose memory stands for what it had come to by then."""


class Step(msgspec.Struct):
    """`decode` on a beginning of a capture: medians."""

    form: str
    bytes: int
    packets: int
    cpu_s: float
    resident: float


class Sample(msgspec.Struct):
    """A look at a process: seconds since its start, bytes that were written to it, bytes resident."""

    after_s: float
    fed: int
    resident: int


class Endless(msgspec.Struct):
    """A run over traffic from stdin."""

    name: str
    bytes: int
    packets: int
    connections: int
    requests: int
    cpu_s: float
    wall_s: float
    samples: list[Sample]

    @property
    def peak(self) -> int:
        return max((sample.resident for sample in self.samples), default=0)

    def resident_at(self, share: float) -> int | None:
        """The peak until this share of all bytes was written; None if there is no earlier sample."""
        return max((sample.resident for sample in self.samples if sample.fed <= share * self.bytes), default=None)

    def growth(self) -> float | None:
        """How far the peak of the second half is above that of the second quarter; None without samples."""
        low, high = (edge * self.bytes for edge in FIRST)
        first = max((one.resident for one in self.samples if low <= one.fed < high), default=None)
        second = max((one.resident for one in self.samples if one.fed >= high), default=None)
        return None if first is None or second is None else second / first - 1


def exponent(steps: Sequence[Step]) -> float | None:
    """The e of CPU time ≈ c · packets^e, start-up taken off: least squares over the logarithms.

    The first step, which is next to empty, is what starting up takes. None for fewer than two others.
    """
    start, *rest = steps
    usable = [(step.packets, step.cpu_s - start.cpu_s) for step in rest if step.cpu_s > start.cpu_s]
    if len(usable) < 2:
        return None
    sizes, times = zip(*usable, strict=True)
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
