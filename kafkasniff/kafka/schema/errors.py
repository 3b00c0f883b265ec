"""The protocol's error codes, from `dissectors/errors.txt`: their names, meanings, and who has to do what."""

from __future__ import annotations

import functools
from typing import Any, Literal, get_args

import msgspec

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.schema.data_files import read_data

__all__ = ["KafkaError", "Settles", "error_by_code", "error_by_name", "error_codes", "error_meaning", "error_name"]

Settles = Literal["client", "protocol", "answer", "program", "rights", "operator", "-"]
"""Who has to act: the client library by itself, nobody, the program, who grants rights, or who runs the brokers."""


class KafkaError(msgspec.Struct, frozen=True):
    """One error code."""

    code: int
    name: str
    """Name in org.apache.kafka.common.protocol.Errors."""
    retriable: bool
    """Whether the same request may succeed later, unchanged."""
    settles: Settles
    """Who settles it, in most APIs."""
    since: str
    """First release that has it."""
    former_names: tuple[str, ...] = ()
    meaning: str | None = None
    """What it means, in a few words."""
    advice: str | None = None
    """What to do."""
    like: int | None = None
    """The code that stands for the same cause."""
    after: tuple[str, ...] = ()
    """Codes and detectors whose effect it may be, the likeliest first."""
    exceptions: dict[str, Settles] = {}
    """Who settles it in single APIs."""
    advice_by_api: dict[str, str] = {}
    """What to do in single APIs."""

    def advice_in(self, api: str | None) -> str | None:
        """What to do about it in a response of an API."""
        return self.advice_by_api.get(api or "", self.advice)

    def settled_by(self, api: str | None) -> Settles:
        """Who settles it in a response of an API."""
        return self.exceptions.get(api or "", self.settles)


@functools.cache
def _table() -> dict[int, KafkaError]:
    path, lines = read_data("errors.txt")
    table: dict[int, dict[str, Any]] = {}
    error: dict[str, Any] = {}
    for number, line in lines:
        match line.split():
            case (code, name, "retriable" | "-" as retriable, who, since, *former) if code.lstrip(
                "-"
            ).isdecimal() and who in get_args(Settles):
                error = {"code": int(code), "name": name, "retriable": retriable == "retriable", "settles": who}
                error |= {"since": since, "former_names": tuple(former), "exceptions": {}, "advice_by_api": {}}
                table[error["code"]] = error
            case ("do", *_) if error:
                error["advice"] = line.split(None, 1)[1]
            case ("like", code) if error and code.isdecimal():
                error["like"] = int(code)
            case ("after", *causes) if error and causes:
                error["after"] = tuple(causes)
            case ("in", apis, "do", *_) if error:
                advice = line.split(None, 3)[3]
                error["advice_by_api"] |= dict.fromkeys(apis.split(","), advice)
            case ("in", apis, who) if error and who in get_args(Settles):
                error["exceptions"] |= dict.fromkeys(apis.split(","), who)
            case _ if error and "meaning" not in error and line.startswith("      "):
                error["meaning"] = line.strip()
            case _:
                raise DefinitionError(
                    f"{path}:{number}: a line is: CODE NAME retriable|- WHO SINCE [FORMER NAMES], or below it a "
                    "meaning, `do ADVICE`, `like CODE`, `after CAUSE…`, `in API,API WHO`, `in API,API do ADVICE`"
                )
    return {code: KafkaError(**fields) for code, fields in table.items()}


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


def error_meaning(code: int) -> str | None:
    """The meaning of a code in a few words; None if unknown."""
    error = _table().get(code)
    return None if error is None else error.meaning
