"""The dissectors: look-up of APIs by key or name, each file read on first use; and the few APIs that the code knows.

File names carry key and name (`000_produce.txt`), so nothing is parsed to find an API.

Rules of the dialogue concern one API each: how a client introduces itself, which request may have no response, what a
fetch session holds. Properties of fields and messages (records, payload, secrets, floats, entities, nested messages,
waits) come from the definitions instead, so that a new API needs no code.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkasniff.errors import DefinitionError, UsageError
from kafkasniff.kafka.schema.codes import api_files, enum_by_name, files_of, read_text, sorted_files
from kafkasniff.kafka.schema.definition import ApiDefinition, MessageDefinition, program_of, with_inner
from kafkasniff.kafka.schema.schema import Schema, parse_api
from kafkasniff.model import Direction
from kafkasniff.text.printable import suggestion

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


PRODUCE: Final = 0
"""With acks 0 it is not answered. Zeros look like one, since its key is 0."""
FETCH: Final = 1
"""Uses fetch sessions (KIP-227)."""
METADATA: Final = 3
"""In version 0, naming no topic requests all."""
OFFSET_COMMIT: Final = 8
"""Stores the offsets of a group."""
OFFSET_FETCH: Final = 9
"""Returns them."""
SASL_HANDSHAKE: Final = 17
"""Version 0 is followed by raw tokens (KIP-43)."""
API_VERSIONS: Final = 18
"""The first request of most connections. If refused, it is answered in version 0 (KIP-511)."""
TXN_OFFSET_COMMIT: Final = 28
"""Stores the offsets of a group when a transaction ends (KIP-98)."""
SASL_AUTHENTICATE: Final = 36
"""Carries the tokens since KIP-152."""

SHARE_FETCH: Final = 78
"""Fetches for a share group (KIP-932)."""
SHARE_ACKNOWLEDGE: Final = 79
"""Says what a member of a share group did with records."""

COMMITS: Final = frozenset({OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT})
"""Exchanges that show the committed offsets of a group."""
HANDSHAKE: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
"""Requests that clients may send before authentication."""


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


ENTITIES: Final = frozenset(
    {
        *("topic_name", "broker_id", "group_id", "producer_id", "transactional_id"),
        *("software_name", "software_version"),
    }
)
"""The names that `dissectors/README.md` lists."""


class CheckedDefinitions(NamedTuple):
    """A folder's APIs by key, and sentences with file and line about the other files."""

    apis: list[Api]
    problems: list[str]


def check_definitions(folder: Traversable) -> CheckedDefinitions:
    """Read all definitions of a folder, and compile every version."""
    try:
        files = files_of(folder)
    except (OSError, DefinitionError) as error:
        return CheckedDefinitions([], [str(error)])
    named = {path.name for _, path in files.values()}
    problems = [
        f"{path}: the name is not KEY_NAME.txt, such as 500_my_api.txt"
        for path in sorted_files(folder)
        if path.name.endswith(".txt") and path.name not in named
    ]
    if not files and not problems:
        problems.append(f"{folder}: there are no definitions (KEY_NAME.txt, such as 500_my_api.txt)")
    apis = []
    for key, (name, path) in files.items():
        try:
            made = Api(definition_of(key, name, path))
            for version in made.versions:
                for schema in (made.request(version), made.response(version)):
                    program_of(schema.root)
        except DefinitionError as error:
            problems.append(str(error))
            continue
        unknown = list(_unknown(made))
        problems += [f"{path}: {one}" for one in unknown]
        if not unknown:
            apis.append(made)
    return CheckedDefinitions(apis, problems)


def _unknown(made: Api) -> Iterator[str]:
    for message in (made.definition.request, made.definition.response):
        for field in with_inner(message.fields):
            if field.enum is not None and enum_by_name(field.enum) is None:
                yield f"{field.name}: no enumeration is called {field.enum!r} (enums.txt)"
            if field.entity is not None and field.entity not in ENTITIES:
                yield f"{field.name}: {field.entity!r} is not an entity: {', '.join(sorted(ENTITIES))}"
