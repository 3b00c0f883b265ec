"""The data files, and what numbers of the protocol mean by them: error codes, enumerations; and uuids.

The files are next to the code (even in a zip), or in the folder `dissectors` of a checkout. Names, meanings and advice
come from `errors.txt` and `enums.txt`.
"""

from __future__ import annotations

import functools
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from kafkasniff.errors import DefinitionError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


_API_FILE: Final = re.compile(r"(\d{3,5})_([a-z0-9_]+)\.txt")
DEFINITIONS: Final = "KAFKASNIFF_DEFINITIONS"
"""Variable with folders of more definitions, separated as in PATH. Worker processes inherit it."""


@functools.cache
def data_folder() -> Traversable:
    """The folder with the definitions, a Path except in a zip; raises DefinitionError if there is none."""
    package = Path(__file__).parents[2]
    for folder in (package / "dissectors", package.parent / "dissectors"):
        if (folder / "headers.txt").is_file():
            return folder
    if not package.is_dir():
        # Only for a zip: the import takes longer than reading the files.
        from importlib.resources import files  # noqa: PLC0415

        zipped = files("kafkasniff") / "dissectors"
        if (zipped / "headers.txt").is_file():
            return zipped
    raise DefinitionError(f"{package / 'dissectors'}: the folder of the protocol's definitions is missing")


def read_data(name: str) -> tuple[Traversable, list[tuple[int, str]]]:
    """A table of the folder: its path, and (line number, line) of all lines but comments and empty ones."""
    path = data_folder() / name
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DefinitionError(f"{path}: {error.strerror or 'there is no such file'}") from error
    lines = enumerate(text.splitlines(), 1)
    return path, [(number, line.rstrip()) for number, line in lines if line.strip() and not line.startswith("#")]


def definition_folder(name: str) -> Traversable:
    """A folder with definitions of APIs, or that of a vendor in `dissectors/vendors`."""
    folder = Path(name)
    return folder if folder.is_dir() else data_folder() / "vendors" / name


def vendors() -> list[str]:
    """The vendors in `dissectors/vendors`."""
    return [path.name for path in sorted_files(data_folder() / "vendors")]


def added_folders() -> list[Traversable]:
    """The folders that the environment names, whose definitions have precedence."""
    return [definition_folder(name) for name in os.environ.get(DEFINITIONS, "").split(os.pathsep) if name]


@functools.cache
def api_files() -> dict[int, tuple[str, Traversable]]:
    """API key → (name in snake_case, file), by key. Raises DefinitionError if two files have one key."""
    added: dict[int, tuple[str, Traversable]] = {}
    for folder in added_folders():
        for key, (name, path) in files_of(folder).items():
            if key in added:
                raise DefinitionError(f"{path}:1: key {key} is also in {added[key][1]}")
            added[key] = name, path
    return dict(sorted({**files_of(data_folder()), **added}.items()))


def files_of(folder: Traversable) -> dict[int, tuple[str, Traversable]]:
    """`api_files` of one folder."""
    found: dict[int, tuple[str, Traversable]] = {}
    for path in sorted_files(folder):
        if match := _API_FILE.fullmatch(path.name):
            key = int(match[1])
            if key in found:
                raise DefinitionError(f"{path}:1: key {key} is also in {found[key][1].name}")
            found[key] = (match[2], path)
    return found


def sorted_files(folder: Traversable) -> list[Traversable]:
    """The files of a folder by name; a zip has its own order."""
    return sorted(folder.iterdir(), key=lambda path: path.name)


def read_text(path: Traversable) -> str:
    """The content of a file of definitions. Raises DefinitionError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path}: {error}") from error


ZERO_UUID: Final = "A" * 22
"""All bits zero: means "none" wherever a uuid is optional."""


# The same few topic, directory and member ids repeat; a hit costs a fifth of the encoding.
@functools.lru_cache(maxsize=8192)
def uuid_text(raw: bytes) -> str:
    """The text of 16 bytes."""
    return urlsafe_b64encode(raw)[:22].decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a text of 22 characters; raises ValueError for anything else."""
    raw = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a uuid as Kafka prints it")
    return raw


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
def _errors() -> dict[int, KafkaError]:
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
    return tuple(sorted(_errors()))


def error_by_code(code: int) -> KafkaError | None:
    """The error of a code; None if unknown."""
    return _errors().get(code)


def error_by_name(name: str) -> KafkaError | None:
    """The error of a name, in any case, former names included; None if unknown."""
    wanted = name.upper()
    return next((error for error in _errors().values() if wanted == error.name or wanted in error.former_names), None)


def error_name(code: int) -> str | None:
    """The name of a code; None if unknown."""
    error = _errors().get(code)
    return None if error is None else error.name


def error_meaning(code: int) -> str | None:
    """The meaning of a code in a few words; None if unknown."""
    error = _errors().get(code)
    return None if error is None else error.meaning


API_KEY: Final = "api_key"
"""The table of fields with API keys, from the names of their files."""
OPERATION_BITS: Final = "acl_operation_bits"
"""The table of fields with sets of operations."""


class EnumValue(msgspec.Struct, frozen=True):
    """One line of a table."""

    text: str
    """The value as in the table: a number, a mask, a string, a bool or a uuid."""
    name: str
    since_version: int | None = None
    """The API version that introduced it, if known."""
    levels: tuple[int, ...] = ()
    """For a feature: the levels that it can have."""


class Enum(msgspec.Struct, frozen=True):
    """A table of values."""

    name: str
    kind: str
    """code: every value is one of these; special: only these values are not plain numbers; bits: a set of these masks;
    string, bool, uuid: the value itself is in the field."""
    source: str
    """The class of Apache Kafka that defines it."""
    values: tuple[EnumValue, ...]


@functools.cache
def _enums() -> dict[str, Enum]:
    path, lines = read_data("enums.txt")
    heads: dict[str, tuple[str, str]] = {}
    values: dict[str, list[EnumValue]] = {}
    current: list[EnumValue] | None = None
    for number, line in lines:
        match line.split():
            case ("enum", name, kind, *source) if not line.startswith(" ") and name not in heads:
                heads[name] = (kind, " ".join(source))
                current = values.setdefault(name, [])
            case (text, name, "since", "version", version) if current is not None and version.isdecimal():
                current.append(EnumValue(text, name, int(version)))
            case (text, name, "levels", *levels) if current is not None and all(map(str.isdecimal, levels)):
                current.append(EnumValue(text, name, None, tuple(map(int, levels))))
            case (text, *words) if current is not None and words and line.startswith(" "):
                current.append(EnumValue(text, " ".join(words)))
            case _:
                raise DefinitionError(f"{path}:{number}: neither `enum NAME KIND CLASS` nor a value with its name")
    tables = {name: Enum(name, *heads[name], tuple(values[name])) for name in heads}
    return {**tables, API_KEY: _api_keys()}


def _api_keys() -> Enum:
    """The APIs by key: each has its own file."""
    names = [EnumValue(str(key), name.title().replace("_", "")) for key, (name, _) in api_files().items()]
    return Enum(API_KEY, "code", "org.apache.kafka.common.protocol.ApiKeys", tuple(names))


def enum_by_name(name: str) -> Enum | None:
    """A table; None if there is none of that name."""
    return _enums().get(name)


def enum_names(name: str) -> dict[object, str] | None:
    """The names of single values by the table `name`; None for sets and unknown tables."""
    table = _enums().get(name)
    return None if table is None or table.kind == "bits" else _names(name)


@functools.cache
def _names(name: str) -> dict[object, str]:
    table = _enums()[name]
    if table.kind in ("code", "special", "bits"):
        return {int(value.text, 0): value.name for value in table.values}
    if table.kind == "bool":
        return {value.text == "true": value.name for value in table.values}
    if table.kind == "uuid":
        return {uuid_text(bytes.fromhex(value.text.replace("-", ""))): value.name for value in table.values}
    return {value.text: value.name for value in table.values}


def enum_text(name: str, value: object) -> str | None:
    """The name of a value by the table `name`; bits as `READ|WRITE`; None if the table does not name it.

    A set with an unnamed bit gives None too, as does the value for "not requested" (only bit 31).
    """
    table = _enums().get(name)
    if table is None or isinstance(value, dict | list):
        return None
    names = _names(name)
    if table.kind != "bits":
        return names.get(value)
    if not isinstance(value, int) or value < 0:
        return None
    masks = {bit: text for bit, text in names.items() if isinstance(bit, int)}
    if value & ~functools.reduce(int.__or__, masks, 0):
        return None
    return "|".join(text for bit, text in masks.items() if value & bit)
