"""Copies all schemas of a registry into a folder, which is a registry itself (`registries.FolderRegistry`)."""

from __future__ import annotations

import os
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kafkasniff.errors import CaptureError, OutputError
from kafkasniff.values.registries import SERIALIZED, Registry, RegistryError, file_of, path_of

__all__ = ["copy_registry"]

MAX_VERSIONS: Final = 1_000_000
"""Versions of all subjects."""


def copy_registry(registry: Registry, folder: Path) -> int:
    """Copy all versions of all subjects; returns their number. Raises CaptureError, OutputError."""
    count = 0
    try:
        for subject in _listed(registry, "subjects", str):
            for version in _listed(registry, f"subjects/{urllib.parse.quote(subject, safe='')}/versions", int):
                count += 1
                if count > MAX_VERSIONS:
                    raise RegistryError(f"{registry.name} has more than {MAX_VERSIONS:,} versions")
                _copy(registry, folder, path_of(subject, version))
    except RegistryError as error:
        raise CaptureError(str(error)) from error
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}") from error
    return count


def _listed(registry: Registry, path: str, kind: type[Any]) -> Iterator[Any]:
    """The elements of a list of the API."""
    try:
        yield from msgspec.json.decode(registry.get(path) or b"[]", type=list[kind])  # type: ignore[valid-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RegistryError(f"{registry.name}: the answer to /{path} is not a list") from None


def _copy(registry: Registry, folder: Path, path: str) -> None:
    """Copy a version, which is also the answer for its id and its GUID."""
    answer = _answer(registry, path)
    if answer is not None and answer.get("schemaType") == "PROTOBUF":
        answer = _answer(registry, path + SERIALIZED)
    if answer is None:
        return  # deleted meanwhile
    paths = [path, f"schemas/ids/{int(answer['id'])}"]
    if isinstance(answer.get("guid"), str):
        paths.append(f"schemas/guids/{urllib.parse.quote(answer['guid'], safe='')}")
    text = msgspec.json.format(msgspec.json.encode(answer))
    for one in paths:
        file = file_of(folder, one)
        if file is not None:
            _write(file, text)


def _answer(registry: Registry, path: str) -> dict[str, Any] | None:
    data = registry.get(path)
    try:
        found = None if data is None else msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RegistryError(f"{registry.name}: the answer to /{path} is not a schema") from None
    if found is not None and not isinstance(found.get("id"), int):
        raise RegistryError(f"{registry.name}: the answer to /{path} has no id")
    return found


def _write(file: Path, data: bytes) -> None:
    """Write a file that appears whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(prefix=".", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data + b"\n")
        os.chmod(aside, 0o644)
        os.replace(aside, file)
    except BaseException:
        os.unlink(aside)
        raise
