"""Inputs that are given to a family's parsers together, as a file, and one by one to find the one that fails.

Much of the cost of a batch of packets does not depend on their number. Families that read packets therefore have a
function `many_inputs` besides `one_input`, in which each input is a connection (or a few packets) of one capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.fuzz.families import Family
from tests.fuzz.intake import Intake

__all__ = ["ALONE", "Inputs", "crowds", "from_file", "size_of", "taker", "to_file"]

Inputs = Sequence[bytes]

ALONE: Final = 5
"""Inputs of each chunk that are given alone, like those of guided runs."""


def taker(found: Family) -> Callable[[Inputs], None]:
    """The function of this family that takes one input or several."""
    many: Callable[[Inputs], None] | None = getattr(found, "many_inputs", None)

    def take(inputs: Inputs) -> None:
        if many is None or len(inputs) == 1:
            for data in inputs:
                found.one_input(data)
        else:
            many(inputs)

    return take


def crowds(found: Family, inputs: Inputs) -> Iterator[Inputs]:
    """Inputs grouped as they are given: some alone, the rest as many at a time as the family accepts."""
    together: int = getattr(found, "TOGETHER", 1)
    alone = len(inputs) if together == 1 else min(ALONE, len(inputs))
    for data in inputs[:alone]:
        yield [data]
    for first in range(alone, len(inputs), together):
        yield inputs[first : first + together]


def size_of(inputs: Inputs) -> int:
    """Bytes of all inputs."""
    return sum(map(len, inputs))


def to_file(inputs: Inputs) -> bytes:
    """Inputs, each prefixed with its length in four bytes."""
    return b"".join(len(data).to_bytes(4) + data for data in inputs)


def from_file(content: bytes) -> list[bytes]:
    """The inputs that `to_file` was given."""
    intake = Intake(content)
    found = []
    while len(intake):
        found.append(intake.take(intake.number(4)))
    return found
