"""The dissectors: look-up of APIs by key or name, each file read on first use.

File names carry key and name (`000_produce.txt`), so nothing is parsed to find an API.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkasniff.errors import DefinitionError, UsageError
from kafkasniff.kafka.schema.data_files import api_files, read_text
from kafkasniff.kafka.schema.definition import ApiDefinition, MessageDefinition
from kafkasniff.kafka.schema.definition_parser import parse_api
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.model import Direction
from kafkasniff.text.printable import suggestion

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = [
    "Api",
    "api",
    "api_by_name",
    "api_keys",
    "api_names",
    "definition_of",
    "find_api",
    "message_of",
    "snake_case",
    "unknown_api",
]


def snake_case(name: str) -> str:
    """A name of Kafka in snake_case: an underscore before each capital that does not follow a capital.

    That is Kafka's own rule (toSnakeCase of org.apache.kafka.message.MessageGenerator).
    """
    return re.sub(r"(?<=[^A-Z])(?=[A-Z])", "_", name).lower()


class Api:
    """An API: common properties of all its versions, and its schemas."""

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

    def request(self, version: int) -> Schema:
        """The schema of a request; raises KeyError for an unknown version."""
        if version not in self._requests:
            self._requests[version] = self._schema(self.definition.request, version)
        return self._requests[version]

    def response(self, version: int) -> Schema:
        """The schema of a response; raises KeyError for an unknown version."""
        if version not in self._responses:
            self._responses[version] = self._schema(self.definition.response, version)
        return self._responses[version]

    def _schema(self, message: MessageDefinition, version: int) -> Schema:
        if version not in message.versions:
            raise KeyError(f"{self.name} has no version {version}")
        # Imported here because looking up names and versions, as completion does, has to be quick.
        from kafkasniff.kafka.records import record_sets  # noqa: PLC0415

        return Schema(message, version, record_sets)

    def request_header(self, version: int) -> int:
        """The version of the request's header."""
        return self.definition.request.header(version)

    def response_header(self, version: int) -> int:
        """The version of the response's header."""
        return self.definition.response.header(version)


def api_keys() -> tuple[int, ...]:
    """The keys of all APIs, ascending."""
    return tuple(api_files())


@functools.lru_cache(maxsize=1024)  # more than there are keys; keys that do not exist come from the wire
def api(key: int) -> Api | None:
    """The API of a key; None if unknown. Raises DefinitionError if its file does not parse."""
    entry = api_files().get(key)
    if entry is None:
        return None
    return Api(definition_of(key, *entry))


def definition_of(key: int, name: str, path: Traversable) -> ApiDefinition:
    """The definition in a file. Raises DefinitionError if it does not parse, or if its name is of another API."""
    definition = parse_api(path, read_text(path))
    if definition.key != key or snake_case(definition.name) != name:
        raise DefinitionError(f"{path}:1: the file is named for another API")
    return definition


def message_of(key: int, direction: Direction) -> MessageDefinition | None:
    """The definition of an API's requests or responses; None if it is unknown. Raises DefinitionError as `api`."""
    found = api(key)
    return None if found is None else found.definition.message(direction)


def api_by_name(name: str) -> Api | None:
    """The API of a name (`ListOffsets`, `list_offsets`, any case, former names too); None if unknown."""
    wanted = name.replace("_", "").lower()
    for key, (file_name, _) in api_files().items():
        if file_name.replace("_", "") == wanted:
            return api(key)
    for key in api_files():
        found = api(key)
        if found is not None and wanted in (former.lower() for former in found.former_names):
            return found
    return None


def api_names() -> dict[int, str]:
    """Names of all APIs by key."""
    return {key: found.name for key in api_keys() if (found := api(key)) is not None}


def find_api(name: str) -> Api:
    """As `api_by_name`; raises UsageError with a suggestion."""
    found = api_by_name(name)
    if found is None:
        raise unknown_api(name)
    return found


def unknown_api(name: str, others: Iterable[str] = ()) -> UsageError:
    """The error for a name that is neither an API's nor one of `others`."""
    hint = suggestion(name, (*api_names().values(), *others), "`kafkasniff api` lists them")
    return UsageError(f"no API is called {name!r}{hint}")
