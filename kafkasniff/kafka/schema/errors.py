"""The protocol's error codes, from `dissectors/errors.txt`, and their meanings, from `error_meanings.txt`."""

from __future__ import annotations

import functools

import msgspec

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.schema.data_files import read_data

__all__ = ["KafkaError", "error_by_code", "error_by_name", "error_codes", "error_meaning", "error_name"]


class KafkaError(msgspec.Struct, frozen=True):
    """One error code."""

    code: int
    name: str
    """Name in org.apache.kafka.common.protocol.Errors."""
    retriable: bool
    """Whether the same request may succeed later, unchanged."""
    since: str
    """First release that has it."""
    former_names: tuple[str, ...] = ()


@functools.cache
def _table() -> dict[int, KafkaError]:
    path, lines = read_data("errors.txt")
    table: dict[int, KafkaError] = {}
    for number, line in lines:
        match line.split():
            case (code, name, "retriable" | "-" as retriable, since, *former) if code.lstrip("-").isdecimal():
                table[int(code)] = KafkaError(int(code), name, retriable == "retriable", since, tuple(former))
            case _:
                raise DefinitionError(f"{path}:{number}: a line is: CODE NAME retriable|- SINCE [FORMER NAMES]")
    return table


def error_codes() -> tuple[int, ...]:
    """All codes, ascending."""
    return tuple(sorted(_table()))


def error_by_code(code: int) -> KafkaError | None:
    """The error of a code; None if unknown."""
    return _table().get(code)


def error_by_name(name: str) -> KafkaError | None:
    """The error of a name, in any case, former names included; None if unknown."""
    wanted = name.upper()
    return next((error for error in _table().values() if wanted == error.name or wanted in error.former_names), None)


def error_name(code: int) -> str | None:
    """The name of a code; None if unknown."""
    error = _table().get(code)
    return None if error is None else error.name


@functools.cache
def _meanings() -> dict[int, str]:
    path, lines = read_data("error_meanings.txt")
    meanings: dict[int, str] = {}
    for number, line in lines:
        code, _, meaning = line.strip().partition(" ")
        if not code.lstrip("-").isdecimal() or not meaning:
            raise DefinitionError(f"{path}:{number}: a line is: CODE MEANING")
        meanings[int(code)] = meaning.strip()
    return meanings


def error_meaning(code: int) -> str | None:
    """The meaning of a code in a few words; None if unknown."""
    return _meanings().get(code)
