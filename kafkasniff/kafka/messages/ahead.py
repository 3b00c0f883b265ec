"""Bodies of messages of whole exchanges, decoded in groups by the native kernel.

A call of the kernel costs a microsecond, more than decoding most bodies does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.kafka.schema.body_forms import BodyWithErrors, RenderedBody
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Body, Direction
from kafkasniff.native.caller import ITEM, Program
from kafkasniff.native.library import Kernel

__all__ = ["Ahead", "BodyMaker", "Programs"]

MAX_KINDS: Final = 4096
"""Maximum number of message kinds with a program; versions come from the wire."""

Made = RenderedBody | BodyWithErrors | Body | None


class BodyMaker(Protocol):
    """Makes bodies: JSON (`rendered.Renderer`) or dicts (`packed_bodies.PackedBodies`)."""

    at_once: int
    """Number of bodies decoded ahead."""
    memory: int
    """Approximate memory of the last group of bodies, in bytes."""

    def use(self, options: DecodeOptions) -> bool:
        """Use these options from now on; returns whether any bodies are decoded ahead."""

    def program(self, key: int, version: int, direction: Direction) -> Program | None:
        """The program for bodies of a kind; None if they are decoded one by one."""

    def bodies(self, data: bytes, items: NDArray[np.void], bases: list[int]) -> list[Any]:
        """Some bodies, in the order of `items` (`caller.ITEM`); None for those that are decoded one by one.

        `bases`: where their messages begin. Returns at least one.
        """


class Programs:
    """Programs by the kind of messages; `make`: returns the program of a plan, None if there is none."""

    def __init__(self, kernel: Kernel, make: Callable[[MessagePlan], bytes | None]) -> None:
        self._kernel = kernel
        self._make = make
        self._programs: dict[tuple[int, int, Direction], Program | None] = {}
        self.kept: dict[int, tuple[Program, MessagePlan]] = {}
        """By address, which pending bodies refer to: at most one per known version, direction, and setting of
        show_secrets."""

    def clear(self) -> None:
        """Forget all programs: the options have changed."""
        self._programs.clear()

    def get(self, key: int, version: int, direction: Direction) -> Program | None:
        """The program for bodies of a kind."""
        kind = key, version, direction
        try:
            return self._programs[kind]
        except KeyError:
            plan = request_plan(key, version) if direction == "request" else response_plan(key, version)
            code = self._make(plan)
            found = None if code is None else Program(self._kernel, code)
            if found is not None:
                self.kept[found.address] = found, plan
            if len(self._programs) >= MAX_KINDS:
                self._programs.clear()
            self._programs[kind] = found
            return found


class Ahead:
    """The bodies of messages that are reported one after the other, decoded in groups.

    `programs`: addresses, 0 for a body that is decoded alone; `base`, `start`, `end`: bounds of messages and their
    bodies; `order`: the indices of those that are reported, in that order.
    """

    __slots__ = ("_bases", "_data", "_items", "_made", "_maker", "_order", "_rank", "memory")

    def __init__(  # noqa: PLR0917 - columns
        self,
        maker: BodyMaker,
        data: bytes,
        programs: NDArray[np.uint64],
        base: NDArray[np.int64],
        start: NDArray[np.int64],
        end: NDArray[np.int64],
        order: NDArray[np.int64],
    ) -> None:
        items = np.zeros(len(start), ITEM)
        items["program"], items["start"], items["end"] = programs, start, end
        self._maker = maker
        self._data = data
        self._items = items
        self._bases = base
        self._order = order
        rank = np.zeros(len(start), np.int64)
        rank[order] = np.arange(len(order))
        self._rank: list[int] = rank.tolist()
        self._made: dict[int, Made] = {}
        self.memory = 0
        """Approximate memory of decoded bodies, in bytes, for the caller to subtract."""

    def take(self, index: int) -> Made:
        """The body of an item; None if it has to be decoded alone. Hot."""
        try:
            return self._made.pop(index)
        except KeyError:
            self._make(self._rank[index])
            return self._made.pop(index)

    def _make(self, first: int) -> None:
        """Decode the next group to be reported, from here on."""
        chosen = self._order[first : first + self._maker.at_once]
        items = np.ascontiguousarray(self._items[chosen])
        bodies = self._maker.bodies(self._data, items, self._bases[chosen].tolist())
        self._made = dict(zip(chosen.tolist(), bodies, strict=False))
        self.memory += self._maker.memory
