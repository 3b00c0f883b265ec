"""Inputs that are given to a family's parsers together: as a file, and one by one where one of them is looked for.

Much of what a batch of packets costs does not depend on how many there are. Families that read packets therefore have a
function `many_inputs` beside `one_input`, in which each input is a connection (or a few packets) of one capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.fuzz.families import Family
from tests.fuzz.intake import Intake

__all__ = ["ALONE", "Inputs", "crowds", "from_file", "size_of", "taker", "to_file"]

Inputs = Sequence[bytes]

ALONE: Final = 5
"""Of each chunk: inputs that go by themselves, as those of guided runs do."""


def taker(found: Family) -> Callable[[Inputs], None]:
    """What takes one input or several of this family."""
    many: Callable[[Inputs], None] | None = getattr(found, "many_inputs", None)

    def take(inputs: Inputs) -> None:
        if many is None or len(inputs) == 1:
            for data in inputs:
                found.one_input(data)
        else:
            many(inputs)

    return take


def crowds(found: Family, inputs: Inputs) -> Iterator[Inputs]:
    """Inputs as they are to be given together: some alone, the rest as many at a time as the family takes."""
    together: int = getattr(found, "TOGETHER", 1)
    alone = len(inputs) if together == 1 else min(ALONE, len(inputs))
    for data in inputs[:alone]:
        yield [data]
    for first in range(alone, len(inputs), together):
        yield inputs[first : first + together]


def size_of(inputs: Inputs) -> int:
    """Bytes of all."""
    return sum(map(len, inputs))


def to_file(inputs: Inputs) -> bytes:
    """Inputs, each behind four bytes of length."""
    return b"".join(len(data).to_bytes(4) + data for data in inputs)


def from_file(content: bytes) -> list[bytes]:
    """What `to_file` was given."""
    intake = Intake(content)
    found = []
    while len(intake):
        found.append(intake.take(intake.number(4)))
    return found
