"""A live source of crafted packets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from kafkasniff.packets import PacketBatch
from tests.cli.person import PATIENCE
from tests.craft.batches import batch
from tests.craft.samples import mixed


class Wire:
    """Yields crafted packets, then empty batches, as an interface does, until it is stopped."""

    captures = ("eth0",)

    def __init__(self, left_out: int = 0) -> None:
        self.packets = mixed()[: len(mixed()) - left_out]
        self.asked: dict[str, Any] = {}
        self.stopped = threading.Event()
        self.closed = False
        self.backlog = 0.0
        self.broken = False
        self.idle_seconds: float | None = None

    def open(
        self,
        interface: str,
        *,
        bpf: str | None = None,
        idle_seconds: float | None = None,
        on_ready: Callable[[], None] | None = None,
        parent: int | None = None,
        say: Callable[[str], None],
        **more: float,
    ) -> Wire:
        assert parent is None
        self.asked = {"interface": interface, "bpf": bpf, **more}
        self.say = say
        self.idle_seconds = idle_seconds
        if on_ready is not None:
            on_ready()
        return self

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def __iter__(self) -> Iterator[PacketBatch]:
        yield batch(self.packets[:50])
        yield batch(self.packets[50:], range(50, len(self.packets)))
        deadline = time.monotonic() + PATIENCE
        while not self.stopped.wait(0.01):
            assert time.monotonic() < deadline, "nobody stopped the capture"
            yield batch([])

    def counts(self) -> list[tuple[int, int]]:
        """Packets and those that were dropped, of each interface."""
        return [(1234, 3)]

    def stop(self) -> None:
        self.stopped.set()
