"""Definitions of APIs from a folder of the user: all of them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis.dissectors import Api, definition_of
from kafkasniff.kafka.schema.data_files import files_of, sorted_files
from kafkasniff.kafka.schema.definition import with_inner
from kafkasniff.kafka.schema.enums import enum_by_name
from kafkasniff.kafka.schema.program import program_of

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["CheckedDefinitions", "check_definitions"]

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
