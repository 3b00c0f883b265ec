"""What a sink made of bodies that messages share, to be used for each of them."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from kafkasniff.model import SharedBody

__all__ = ["MAX_KEPT", "MadeOfShared"]

MAX_KEPT: Final = 2048
"""Bodies of which is kept what was made of them; none has more than `repeats.MAX_LENGTH` bytes on the wire."""

_Made = TypeVar("_Made")


class MadeOfShared(Generic[_Made]):
    """By the identity of a body, `id(body)`, which no other has as long as it is kept here."""

    __slots__ = ("_bodies", "made")

    def __init__(self) -> None:
        self.made: dict[int, _Made] = {}
        """For a look-up without a call."""
        self._bodies: list[SharedBody] = []

    def keep(self, body: SharedBody, made: _Made) -> _Made:
        """From now on `made` has it."""
        if len(self.made) >= MAX_KEPT:
            self.made.clear()
            self._bodies.clear()
        self._bodies.append(body)
        self.made[id(body)] = made
        return made
