"""Helpers for tests of exports in an object store: what is in it, and a store that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from kafkasniff.runtime import object_store
from tests.object_store import boto3_client


def objects(bucket: str, folder: str) -> dict[str, bytes]:
    """All objects below a folder, by their path in it."""
    client = boto3_client(bucket)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="captures", Prefix=f"{folder}/")
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
    return {
        key.removeprefix(f"{folder}/"): client.get_object(Bucket="captures", Key=key)["Body"].read() for key in keys
    }


def copy_objects(bucket: str, folder: str, into: str) -> None:
    """Copy all objects below a folder to another one."""
    client = boto3_client(bucket)
    for path, data in objects(bucket, folder).items():
        client.put_object(Bucket="captures", Key=f"{into}/{path}", Body=data)


def fetched(bucket: str, folder: str, into: Path) -> Path:
    """The export as a folder of this machine."""
    for path, data in objects(bucket, folder).items():
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
