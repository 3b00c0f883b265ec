"""The dissectors: look-up of definitions by key or name, each file read on first use.

File names carry key and name (`000_produce.txt`), so nothing is parsed to find an API.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.data_files import data_folder
from kafkasniff.kafka.definition import (
    ApiDefinition,
    DataDefinition,
    MessageDefinition,
    Versions,
    parse_api,
    parse_data,
)
from kafkasniff.kafka.schema import Schema

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["Api", "api", "api_by_name", "api_keys", "data_definition", "data_definitions", "data_schema", "snake_case"]

_FILE: Final = re.compile(r"(\d{3})_([a-z0-9_]+)\.txt")


def snake_case(name: str) -> str:
    """A name of Kafka's in snake_case: an underscore in front of each capital that does not follow a capital.

    That is Kafka's own rule (toSnakeCase of org.apache.kafka.message.MessageGenerator).
    """
    return re.sub(r"(?<=[^A-Z])(?=[A-Z])", "_", name).lower()


class Api:
    """An API: what all its versions have in common, and its schemas."""

    def __init__(self, definition: ApiDefinition) -> None:
        self.definition = definition
        self.key = definition.key
        self.name = definition.name
        self.former_names = definition.former_names
        self.summary = definition.summary
        """One line on what it does."""
        self.listeners = definition.listeners
        self.min_version = definition.versions.low
        self.max_version = definition.versions.high
        self.flexible_since: int | None = (
            definition.flexible.low if definition.flexible.low <= definition.flexible.high else None
        )
        self._requests: dict[int, Schema] = {}
        self._responses: dict[int, Schema] = {}

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name}>"

    @property
    def versions(self) -> range:
        """All versions."""
        return range(self.min_version, self.max_version + 1)

    def is_flexible(self, version: int) -> bool:
        """Whether a version, also one above those known, has compact encodings and tags."""
        return self.flexible_since is not None and version >= self.flexible_since

    def request(self, version: int) -> Schema:
        """The schema of a request; raises KeyError for a version that is not known."""
        if version not in self._requests:
            self._requests[version] = self._schema(self.definition.request, version)
        return self._requests[version]

    def response(self, version: int) -> Schema:
        """The schema of a response; raises KeyError for a version that is not known."""
        if version not in self._responses:
            self._responses[version] = self._schema(self.definition.response, version)
        return self._responses[version]

    def _schema(self, message: MessageDefinition, version: int) -> Schema:
        if version not in message.versions:
            raise KeyError(f"{self.name} has no version {version}")
        return Schema(message, version)

    def request_header(self, version: int) -> int:
        """The version of the request's header."""
        exception = _exception(self.definition.request_headers, version)
        return exception if exception is not None else 2 if self.is_flexible(version) else 1

    def response_header(self, version: int) -> int:
        """The version of the response's header."""
        exception = _exception(self.definition.response_headers, version)
        # An exception for the last known version holds for later ones too (ApiVersions: brokers answer what they do not
        # know, and clients must be able to read it).
        if exception is None and version > self.max_version:
            exception = _exception(self.definition.response_headers, self.max_version)
        return exception if exception is not None else 1 if self.is_flexible(version) else 0


def _exception(headers: tuple[tuple[Versions, int], ...], version: int) -> int | None:
    return next((header for versions, header in headers if version in versions), None)


@functools.cache
def _files() -> dict[int, tuple[str, Traversable]]:
    """Key → (name in snake_case, file)."""
    found: dict[int, tuple[str, Traversable]] = {}
    for path in _sorted(data_folder()):
        if match := _FILE.fullmatch(path.name):
            key = int(match[1])
            if key in found:
                raise DefinitionError(f"{path}:1: key {key} is also in {found[key][1].name}")
            found[key] = (match[2], path)
    return found


def _sorted(folder: Traversable) -> list[Traversable]:
    """The files of a folder by name; within a zip they have no order of their own."""
    return sorted(folder.iterdir(), key=lambda path: path.name)


def _read(path: Traversable) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path}: {error}") from error


def api_keys() -> tuple[int, ...]:
    """The keys of all APIs, ascending."""
    return tuple(_files())


@functools.lru_cache(maxsize=1024)  # more than there are keys; keys that do not exist come from the wire
def api(key: int) -> Api | None:
    """The API of a key; None where it is not known. Raises DefinitionError where its file does not parse."""
    entry = _files().get(key)
    if entry is None:
        return None
    name, path = entry
    definition = parse_api(path, _read(path))
    if definition.key != key or snake_case(definition.name) != name:
        raise DefinitionError(f"{path}:1: the file is named for another API")
    return Api(definition)


def api_by_name(name: str) -> Api | None:
    """The API of a name (`ListOffsets`, `list_offsets`, any case, former names too); None where it is not known."""
    wanted = name.replace("_", "").lower()
    for key, (file_name, _) in _files().items():
        if file_name.replace("_", "") == wanted:
            return api(key)
    for key in _files():
        found = api(key)
        if found is not None and wanted in (former.lower() for former in found.former_names):
            return found
    return None


@functools.cache
def data_definitions() -> dict[str, DataDefinition]:
    """What is no request or response, by name: headers, records, embedded structures."""
    folder = data_folder()
    found: dict[str, DataDefinition] = {}
    records = (path for path in _sorted(folder / "records") if path.name.endswith(".txt"))
    for path in (folder / "headers.txt", *records):
        for definition in parse_data(path, _read(path)):
            name = definition.message.name
            if name in found:
                raise DefinitionError(f"{path}: {name} is also in {found[name].file}.txt")
            found[name] = definition
    return found


def data_definition(kind: str, number: int, file: str | None = None) -> DataDefinition | None:
    """The definition of a record type, by kind and id; None where it is not known.

    For coordinator records the file counts too, since each topic has its own ids: `group_coordinator`,
    `transaction_coordinator`, `share_coordinator`.
    """
    for definition in data_definitions().values():
        if (definition.kind, definition.id) == (kind, number) and file in (None, definition.file):
            return definition
    return None


@functools.lru_cache(maxsize=1024)
def data_schema(name: str, version: int) -> Schema | None:
    """The schema of a `data` block; None where name or version are not known."""
    definition = data_definitions().get(name)
    if definition is None or version not in definition.message.versions:
        return None
    return Schema(definition.message, version)
