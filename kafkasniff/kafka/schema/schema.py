"""The text of definitions (`dissectors/README.md` explains the grammar), and schemas: definitions at one version.

`data_schema` finds those of structures that are not requests or responses: headers, records, embedded structures. They
contain no record sets.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final

import msgspec

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.schema.codes import data_folder, read_text, sorted_files
from kafkasniff.kafka.schema.context import DecodeContext, Ended, Odd, RecordsReader
from kafkasniff.kafka.schema.definition import (
    CAN_BE_NULL,
    HIDDEN_TYPES,
    MAX_DEPTH,
    NONE,
    SCALARS,
    WAIT_REASONS,
    ApiDefinition,
    DataDefinition,
    EntityChoice,
    FieldDefinition,
    MessageDefinition,
    Struct,
    Versions,
    cut,
    with_inner,
)
from kafkasniff.kafka.schema.walker import Span, Walk, walk
from kafkasniff.native.library import kernel

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from kafkasniff.kafka.schema.packed import Decoder


_TYPE: Final = re.compile(r"(?P<array>\[\])?(?P<scalar>[a-z][a-z0-9]*)?(?P<struct>\{\})?(?P<null>\?)?")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_TITLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
"""The name of an API or a block."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:(\+)|-([0-9]{1,9}))?")
_MARKS: Final = frozenset({"classic", "unaligned", "whole", "payload", "silences"})
"""Attributes without a value."""
_ATTRIBUTES: Final = _MARKS | {"nullable", "tag", "entity", "entity_by", "enum", "default", "secret", "nests", "tokens"}
_CHOICE: Final = re.compile(r"([a-z][a-z0-9_]*)=([0-9]{1,4}:[a-z_]+(?:,[0-9]{1,4}:[a-z_]+)*)")
"""The value of `entity_by`."""


class _Line(msgspec.Struct, frozen=True):
    number: int
    depth: int
    words: tuple[str, ...]
    comment: str


class _DefinitionLines:
    """The lines of one file, with their positions for errors."""

    def __init__(self, path: Traversable, text: str) -> None:
        self.path = path
        self.lines: list[_Line] = []
        self.index = 0
        comment: list[str] = []
        for number, raw in enumerate(text.splitlines(), 1):
            stripped = raw.strip()
            if stripped.startswith("#"):
                comment.append(stripped[1:].strip())
            elif not stripped:
                comment = []
            else:
                indent = len(raw) - len(raw.lstrip(" "))
                if raw[indent] == "\t" or indent % 2:
                    raise DefinitionError(f"{path}:{number}: indentation is two spaces per level")
                self.lines.append(_Line(number, indent // 2, tuple(stripped.split()), comment[0] if comment else ""))
                comment = []

    def fail(self, line: _Line | None, detail: str) -> DefinitionError:
        """The error for a line; without a line, for the end of the file."""
        return DefinitionError(f"{self.path}:{line.number if line else 'end'}: {detail}")

    def peek(self) -> _Line | None:
        """The next line, not consumed."""
        return self.lines[self.index] if self.index < len(self.lines) else None

    def take(self) -> _Line:
        """The next line, consumed."""
        line = self.peek()
        if line is None:
            raise self.fail(None, "the file ends too early")
        self.index += 1
        return line

    def title(self, line: _Line, text: str) -> str:
        """The name of an API or a block."""
        if _TITLE.fullmatch(text) is None:
            raise self.fail(line, f"{text!r} is not a name: letters and digits")
        return text

    def versions(self, line: _Line, text: str, within: Versions) -> Versions:
        """`3`, `3+` or `3-7`; `3+` extends to the last version of `within`, which must contain the whole range."""
        match = _RANGE.fullmatch(text)
        if match is None:
            raise self.fail(line, f"{text!r} is not a range of versions")
        low = int(match[1])
        versions = Versions(low, within.high if match[2] else int(match[3] or low))
        if versions.low > versions.high or not versions.within(within):
            raise self.fail(line, f"versions {text} are not within {within}")
        return versions

    def options(self, line: _Line, start: int, allowed: frozenset[str]) -> dict[str, str]:
        """The (name, value) pairs at the end of a line."""
        words = line.words[start:]
        if len(words) % 2:
            raise self.fail(line, f"{words[-1]!r} lacks a value")
        pairs = dict(zip(words[::2], words[1::2], strict=True))
        if unknown := sorted(pairs.keys() - allowed):
            raise self.fail(line, f"unknown option {unknown[0]!r}")
        return pairs


def parse_api(path: Traversable, text: str) -> ApiDefinition:
    """Parse a file of one API; raises DefinitionError with file and line."""
    reader = _DefinitionLines(path, text)
    line = reader.take()
    if len(line.words) < 3 or line.words[0] != "api" or not _NUMBER.fullmatch(line.words[1]):
        raise reader.fail(line, "the file starts with: api KEY NAME   versions RANGE   flexible RANGE")
    key, name, summary = int(line.words[1]), reader.title(line, line.words[2]), line.comment
    versions, flexible = _span(reader, line, reader.options(line, 3, frozenset({"versions", "flexible"})))
    listeners: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    mutes, waits, marks = NONE, None, set[str]()
    messages: dict[str, MessageDefinition] = {}
    while (top := reader.peek()) is not None:
        reader.take()
        match top.words:
            case ("listeners", *names):
                listeners = tuple(names)
            case ("formerly", *names):
                former = tuple(names)
            case ("mutes", span):
                mutes = reader.versions(top, span, versions)
            case ("reports" | "from_brokers" | "administers" as mark,) if mark not in marks:
                marks.add(mark)
            case ("waits", reason, *limits):
                waits = reason, tuple(limits)
            case ("request" | "response" as direction, *_) if direction not in messages:
                headers = _headers(reader, top, versions)
                fields = _fields(reader, 1, versions)
                _check_nested(reader, fields)
                messages[direction] = MessageDefinition(f"{name} {direction}", versions, flexible, fields, headers)
            case _:
                raise reader.fail(top, f"unknown: {' '.join(top.words)!r}")
    if messages.keys() != {"request", "response"}:
        raise reader.fail(None, "a file holds one request and one response")
    if waits is not None:
        _check_waits(reader, messages["request"], *waits)
    return ApiDefinition(
        key,
        name,
        summary,
        versions,
        flexible,
        listeners,
        former,
        messages["request"],
        messages["response"],
        mutes,
        waits,
        reports="reports" in marks,
        from_brokers="from_brokers" in marks,
        administers="administers" in marks,
    )


def _headers(reader: _DefinitionLines, line: _Line, versions: Versions) -> tuple[tuple[Versions, int], ...]:
    """The header version of each version: `headers`, and `HEADER:RANGE` for all of them in their order."""
    if line.words[1:2] != ("headers",):
        raise reader.fail(line, f"a {line.words[0]} is followed by: headers HEADER:VERSIONS")
    found: list[tuple[Versions, int]] = []
    following = versions.low
    for word in line.words[2:]:
        number, _, span = word.partition(":")
        covered = reader.versions(line, span, versions)
        if not _NUMBER.fullmatch(number) or covered.low != following:
            raise reader.fail(line, f"{word!r} is not HEADER:VERSIONS from version {following} on")
        found.append((covered, int(number)))
        following = covered.high + 1
    if following <= versions.high:
        raise reader.fail(line, f"version {following} has no header")
    return tuple(found)


def _check_nested(reader: _DefinitionLines, fields: tuple[FieldDefinition, ...]) -> None:
    """Refuse nested messages that nothing would open: a decoded one is placed next to its field in the body."""
    nested = [field for field in with_inner(fields) if field.nests is not None]
    if len(nested) > 1 or any(field.array or field not in fields for field in nested):
        raise reader.fail(None, "a message nests at most one other, in a field of its body that is not an array")


def _check_waits(reader: _DefinitionLines, request: MessageDefinition, reason: str, limits: tuple[str, ...]) -> None:
    """Refuse unknown reasons, and limits that the request does not have."""
    if reason not in WAIT_REASONS:
        raise reader.fail(None, f"{reason!r} is not a reason to wait: {', '.join(WAIT_REASONS)}")
    fields = {field.name for field in request.fields if field.type == "int32"}
    if missing := [name for name in limits if name not in fields]:
        raise reader.fail(None, f"the request has no field {missing[0]!r} that could limit a wait")


def parse_data(path: Traversable, text: str) -> tuple[DataDefinition, ...]:
    """Parse a file of `data` blocks; raises DefinitionError with file and line."""
    reader = _DefinitionLines(path, text)
    data_definitions: list[DataDefinition] = []
    while reader.peek() is not None:
        line = reader.take()
        if line.depth or len(line.words) < 2 or line.words[0] != "data":
            raise reader.fail(line, "a block starts with: data NAME   kind KIND   versions RANGE")
        options = reader.options(line, 2, frozenset({"kind", "id", "versions", "flexible", "releases"}))
        versions, flexible = _span(reader, line, options)
        if "kind" not in options or not _NUMBER.fullmatch(options.get("id", "0")):
            raise reader.fail(line, "kind is missing, or id is not a number")
        first, _, last = options.get("releases", "-").partition("-")
        title = reader.title(line, line.words[1])
        message = MessageDefinition(title, versions, flexible, _fields(reader, 1, versions))
        number = int(options["id"]) if "id" in options else None
        data_definitions.append(
            DataDefinition(
                message, line.comment, options["kind"], number, path.name.removesuffix(".txt"), (first, last)
            )
        )
    return tuple(data_definitions)


def _span(reader: _DefinitionLines, line: _Line, options: dict[str, str]) -> tuple[Versions, Versions]:
    """The versions and the flexible versions of a block's first line."""
    if "versions" not in options or options["versions"].endswith("+"):
        raise reader.fail(line, "versions are missing, or have no last one")
    versions = reader.versions(line, options["versions"], Versions(0, 0x7FFF))
    flexible = reader.versions(line, options["flexible"], versions) if "flexible" in options else NONE
    return versions, flexible


def _fields(reader: _DefinitionLines, depth: int, parent: Versions) -> tuple[FieldDefinition, ...]:
    """The fields at one depth, each with its children."""
    fields: list[FieldDefinition] = []
    while (line := reader.peek()) is not None and line.depth >= depth:
        if depth > MAX_DEPTH:
            raise reader.fail(line, f"more than {MAX_DEPTH} nested structs")
        if line.depth > depth:
            raise reader.fail(line, "only `[]` and `{}` have fields of their own")
        reader.take()
        field = _field(reader, line, depth, parent)
        if any(field.name == other.name and _overlap(field.versions, other.versions) for other in fields):
            raise reader.fail(line, f"duplicate field {field.name}")
        if field.tag is not None and any(field.tag == other.tag for other in fields):
            raise reader.fail(line, f"duplicate tag {field.tag}")
        fields.append(field)
    for field in fields:
        by = field.entity_by
        if by is not None and not any(
            (field.name, field.type, field.array) == (by.field, "int8", False) for field in fields
        ):
            raise reader.fail(
                line, f"{field.name} needs an int8 field {by.field!r} next to it that determines its kind"
            )
    return tuple(fields)


def _overlap(one: Versions, other: Versions) -> bool:
    return one.low <= other.high and other.low <= one.high


def _field(reader: _DefinitionLines, line: _Line, depth: int, parent: Versions) -> FieldDefinition:
    words = line.words
    if len(words) < 2 or not _NAME.fullmatch(words[0]):
        raise reader.fail(line, "a field is: name type [versions] [attributes]")
    match = _TYPE.fullmatch(words[1])
    if match is None or not (match["array"] or match["scalar"] or match["struct"]):
        raise reader.fail(line, f"{words[1]!r} is not a type")
    scalar, array = match["scalar"], match["array"] is not None
    if (scalar is not None and (scalar not in SCALARS or match["struct"])) or (array and match["struct"]):
        raise reader.fail(line, f"{words[1]!r} is not a type")
    if match["null"] and not array and scalar is not None and scalar not in CAN_BE_NULL:
        raise reader.fail(line, f"{scalar} has no null")
    rest = 2
    versions = parent
    if len(words) > 2 and words[2][0].isdecimal():
        versions, rest = reader.versions(line, words[2], parent), 3
    attributes = _attributes(reader, line, rest)
    nullable = versions if match["null"] else NONE
    nests = attributes.get("nests")
    if "nullable" in attributes:
        if not match["null"]:
            raise reader.fail(line, "nullable needs a type that ends in `?`")
        nullable = reader.versions(line, attributes["nullable"], versions)
    if not _NUMBER.fullmatch(attributes.get("tag", "0")):
        raise reader.fail(line, "a tag is a number")
    for mark in ("unaligned", "whole"):
        if mark in attributes and scalar != "records":
            raise reader.fail(line, f"only records are {mark}")
    secret = attributes.get("secret", "no")
    _check_hiding(reader, line, attributes, scalar)
    for mark, kinds in (("silences", {"int8", "int16", "int32"}), ("tokens", {"string"})):
        if mark in attributes and (scalar not in kinds or array or depth > 1 or "tag" in attributes):
            raise reader.fail(line, f"{mark} needs a field of the body: {' or '.join(sorted(kinds))}, no array, no tag")
    tokens = reader.versions(line, attributes["tokens"], versions) if "tokens" in attributes else NONE
    children = _fields(reader, depth + 1, versions) if scalar is None else ()
    return FieldDefinition(
        name=words[0],
        type=scalar or "struct",
        array=array,
        versions=versions,
        nullable=nullable,
        tag=int(attributes["tag"]) if "tag" in attributes else None,
        entity=attributes.get("entity"),
        entity_by=_entity_by(reader, line, attributes, scalar),
        enum=attributes.get("enum"),
        default="" if attributes.get("default") == '""' else attributes.get("default"),
        secret="config" if secret == "config" else "value" if secret == "value" else "no",
        classic="classic" in attributes,
        unaligned="unaligned" in attributes,
        whole="whole" in attributes,
        payload="payload" in attributes,
        nests=None if nests is None else "request" if nests == "request" else "response",
        silences="silences" in attributes,
        tokens=tokens,
        fields=children,
    )


def _entity_by(
    reader: _DefinitionLines, line: _Line, attributes: dict[str, str], scalar: str | None
) -> EntityChoice | None:
    if "entity_by" not in attributes:
        return None
    match = _CHOICE.fullmatch(attributes["entity_by"])
    if match is None:
        raise reader.fail(line, "entity_by is followed by FIELD=VALUE:ENTITY,VALUE:ENTITY")
    if scalar != "string" or "entity" in attributes:
        raise reader.fail(line, "only strings without an entity have one by another field")
    pairs = (pair.split(":") for pair in match[2].split(","))
    return EntityChoice(match[1], tuple((int(value), entity) for value, entity in pairs))


def _check_hiding(reader: _DefinitionLines, line: _Line, attributes: dict[str, str], scalar: str | None) -> None:
    """Refuse marks that the decoders or the outputs would ignore: marked fields have to be hidden."""
    if "secret" in attributes:
        obeyed = ("string",) if attributes["secret"] == "config" else (*HIDDEN_TYPES, "records")
        if scalar not in obeyed:
            raise reader.fail(line, f"{scalar or 'a struct'} cannot be secret: mark strings and bytes in it")
    if "payload" in attributes:
        if scalar not in HIDDEN_TYPES:
            raise reader.fail(line, f"{scalar or 'a struct'} cannot be payload: mark strings and bytes in it")
        if attributes.keys() & {"entity", "entity_by", "enum"}:
            raise reader.fail(line, "payload has no names: it has no entity and no enum")
    if "nests" in attributes:
        if attributes["nests"] not in {"request", "response"}:
            raise reader.fail(line, "nests is followed by request or response")
        if scalar != "bytes" or "secret" not in attributes:
            raise reader.fail(line, "only secret bytes nest a message, which may hold secrets of its own")


def _attributes(reader: _DefinitionLines, line: _Line, start: int) -> dict[str, str]:
    """The attributes after type and versions; marks have no value, but `secret` may be followed by `config`."""
    found: dict[str, str] = {}
    words = line.words
    at = start
    while at < len(words):
        word = words[at]
        at += 1
        if word not in _ATTRIBUTES or word in found:
            raise reader.fail(line, f"unknown or duplicate attribute {word!r}")
        if word in _MARKS:
            found[word] = ""
        elif word == "secret":
            found[word] = "value"
            if at < len(words) and words[at] == "config":
                found[word] = "config"
                at += 1
        elif at < len(words):
            found[word] = words[at]
            at += 1
        else:
            raise reader.fail(line, f"{word!r} lacks a value")
    return found


# -- schemas -----------------------------------------------------------------------------------------------------------


class Schema:
    """One version of a request, of a response or of a `data` block."""

    def __init__(self, message: MessageDefinition, version: int, records: RecordsReader | None = None) -> None:
        """Raises ValueError if it has `records` fields, and no reader for them is given."""
        self.name = message.name
        """`Produce request`, `ConfigRecord` …"""
        self.version = version
        self.flexible = version in message.flexible
        self.root: Struct = cut(message, version)
        self._records = records
        if self.root.records and records is None:
            raise ValueError(f"{message.name} has records")

    def __repr__(self) -> str:
        return f"<Schema {self.name} version {self.version}>"

    @property
    def has_secrets(self) -> bool:
        """Whether a field of it is, or may be, a secret."""
        return self.root.secrets

    @functools.cached_property
    def decode(self) -> Decoder:
        """Decodes clean bytes, by the native kernel; raises Odd at others. `read` is for all bytes."""
        # Imported here because looking up names and versions, as completion does, has to be quick.
        from kafkasniff.kafka.schema.packed import decoder_of  # noqa: PLC0415

        return decoder_of(kernel(), self.root, self._records)

    def read(self, data: bytes, position: int, end: int, context: DecodeContext) -> Walk:
        """Decode `data[position:end]`, whatever it holds: bytes that are not clean go to the walker.

        The caller has to check for surplus bytes: those from the result's `position` on.
        """
        mark = context.mark()
        try:
            body, position_after = self.decode(data, position, end, context)
        except Ended as ended:
            return Walk(ended.body, ended.position, False)
        except Odd:
            context.rewind(mark)
            return walk(self.root, data, position, end, context, self._records)
        return Walk(body, position_after, True)

    def walk(self, data: bytes, position: int, end: int, context: DecodeContext) -> Walk:
        """The same by the walker alone."""
        return walk(self.root, data, position, end, context, self._records)

    def spans(
        self, data: bytes, position: int, end: int, context: DecodeContext, *, most: int | None = None
    ) -> tuple[Walk, list[Span]]:
        """The same by the walker alone, with the place of every field, or of the first `most`."""
        spans: list[Span] = []
        return walk(self.root, data, position, end, context, self._records, spans=spans, most=most), spans


@functools.cache
def data_definitions() -> dict[str, DataDefinition]:
    """All of them by name."""
    folder = data_folder()
    found: dict[str, DataDefinition] = {}
    records = (path for path in sorted_files(folder / "records") if path.name.endswith(".txt"))
    for path in (folder / "headers.txt", *records):
        for definition in parse_data(path, read_text(path)):
            name = definition.message.name
            if name in found:
                raise DefinitionError(f"{path}: {name} is also in {found[name].file}.txt")
            found[name] = definition
    return found


@functools.lru_cache(maxsize=1024)  # more than there are; types that do not exist come from the wire
def data_definition(kind: str, number: int, file: str | None = None) -> DataDefinition | None:
    """The definition of a record type, by kind and id; None if unknown.

    For coordinator records the file matters too, since each topic has its own ids: `group_coordinator`,
    `transaction_coordinator`, `share_coordinator`.
    """
    for definition in data_definitions().values():
        if (definition.kind, definition.id) == (kind, number) and file in (None, definition.file):
            return definition
    return None


@functools.lru_cache(maxsize=1024)
def data_schema(name: str, version: int) -> Schema | None:
    """The schema of a `data` block; None if name or version are unknown."""
    definition = data_definitions().get(name)
    if definition is None or version not in definition.message.versions:
        return None
    return Schema(definition.message, version)
