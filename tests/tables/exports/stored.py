"""Helpers for tests of exports in an object store: a store in memory, what is in it, and one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from kafkasniff.runtime import object_store
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.object_store import ObjectStore
from tests.object_store import bucket

__all__ = ["KilledError", "bucket", "fetched", "killed_after", "memory", "objects", "place"]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address `s3://…{}` whose objects are in this process."""
    store = pytest.importorskip("obstore.store").MemoryStore()
    monkeypatch.setattr(object_store, "_client", lambda _: store)
    return "s3://captures/{}"


@pytest.fixture(params=["memory", pytest.param("S3", marks=pytest.mark.extended)])
def place(request: pytest.FixtureRequest) -> str:
    """A folder in memory, and a bucket of an S3 server."""
    return request.getfixturevalue("memory" if request.param == "memory" else "bucket")


def objects(address: str) -> dict[str, bytes]:
    """All objects below an address, by their path in it."""
    store = ObjectStore(Location.of(address))
    return {path: store.get(path).data for path in store.names("")}


def fetched(address: str, into: Path) -> Path:
    """The export as a folder of this machine."""
    for path, data in objects(address).items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (into / path).write_bytes(data)
    return into


class KilledError(BaseException):
    """The process ends here. Code that catches it has no effect, since all later requests fail, too."""


@contextmanager
def killed_after(requests: int, *, answered: bool) -> Iterator[Callable[[], int]]:
    """A process that is killed at its request number `requests`, from 0: before the store gets it, or after.

    Yields a function that returns how many requests are left: less than none if it was killed.
    """
    lock, left, real = Lock(), requests, object_store._translated

    def translated(call: Callable[[], Any]) -> Any:
        nonlocal left
        with lock:
            left -= 1
            last = left == -1
        if left < 0:
            if last and answered:
                real(call)
            raise KilledError
        return real(call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_store, "_translated", translated)
        yield lambda: left
