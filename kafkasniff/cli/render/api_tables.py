"""Definitions and schemas for `kafkasniff api`: tables as text, and plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from kafkasniff.cli.render.tables import FittedTable, Line, Styled
from kafkasniff.kafka.apis.dissectors import Api
from kafkasniff.kafka.apis.releases import (
    PairCount,
    Proof,
    Spoken,
    first_release,
    is_stable,
    removed_in,
    version_ranges,
)
from kafkasniff.kafka.schema.codes import API_KEY, enum_by_name
from kafkasniff.kafka.schema.definition import DataDefinition, EntityChoice, Field, FieldDefinition, Struct, Versions
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.report.answer_tables import ReportColumn


def _column(place: int, heading: str, **properties: Any) -> ReportColumn:
    """A column of rows that are tuples of cells; `properties`: those of the column."""
    return ReportColumn(heading, itemgetter(place), **properties)


def _table(columns: Sequence[ReportColumn], rows: Iterable[tuple[str | Styled, ...]]) -> FittedTable:
    return FittedTable(columns, list(rows), style="bold")


def api_list(apis: Sequence[Api]) -> FittedTable:
    """All APIs, one per line."""
    return _table(_API_LIST, map(_api_row, apis))


_API_LIST: Final = [
    _column(0, "key", number=True),
    _column(1, "API", whole=True),
    _column(2, "versions", whole=True),
    _column(3, "flexible", whole=True, level=2),
    _column(4, "releases", whole=True, level=1),
    _column(5, "summary", level=3, clipped=True),
]


def _api_row(api: Api) -> tuple[str | Styled, ...]:
    since = first_release(api.key, api.min_version) or ""
    end = removed_in(api.key)
    return (
        str(api.key),
        Styled(api.name, "bold"),
        str(api.definition.versions),
        "" if api.flexible_since is None else f"{api.flexible_since}+",
        f"{since} until {end}" if end else since,
        Styled(api.summary, "dim"),
    )


def _head(found: Api | DataDefinition) -> Iterator[FittedTable | Line]:
    """Name, summary, and what all versions have in common."""
    facts: list[tuple[str, str]] = []
    if isinstance(found, Api):
        yield (Styled(found.name, "bold"), f"  key {found.key}")
        yield found.summary
        facts.append(("versions", str(found.definition.versions)))
        facts.append(("flexible", str(found.definition.flexible)))
        facts.append(("listeners", ", ".join(found.listeners)))
        if found.former_names:
            facts.append(("formerly", ", ".join(found.former_names)))
        if (end := removed_in(found.key)) is not None:
            facts.append(("removed in", end))
    else:
        yield (Styled(found.message.name, "bold"), f"  {found.kind}")
        yield found.summary
        if found.id is not None:
            facts.append(("id", str(found.id)))
        facts.append(("versions", str(found.message.versions)))
        facts.append(("flexible", str(found.message.flexible)))
        if any(found.releases):
            facts.append(("releases", "-".join(found.releases)))
    yield FittedTable([_column(0, ""), _column(1, "")], facts, style=None)


def definition_page(found: Api | DataDefinition) -> Iterator[FittedTable | Line]:
    """One API or structure, over all its versions."""
    yield from _head(found)
    messages = [("", found.message)] if isinstance(found, DataDefinition) else []
    if isinstance(found, Api):
        releases = groupby(found.versions, key=lambda version: first_release(found.key, version) or "no release")
        known = [f"{Versions(versions[0], versions[-1])} in {name}" for name, [*versions] in releases]
        yield "first released  " + ", ".join(known)
        messages = [("request", found.definition.request), ("response", found.definition.response)]
    enums: dict[str, None] = {}
    for title, message in messages:
        yield ""
        if title:
            yield Styled(title, "bold")
        if not message.fields:
            yield "  no fields"
            continue
        fields = list(_flat(message.fields))
        enums |= {field.enum: None for _, field in fields if field.enum}
        yield _table(
            [_column(0, "  field"), _column(1, "type"), _column(2, "versions"), _column(3, "")],
            (
                (
                    "  " * (depth + 1) + field.name,
                    _type(field.type, field.array, field.nullable.low <= field.nullable.high),
                    str(field.versions),
                    _notes(field, "" if field.nullable in (field.versions, _NEVER) else f"null in {field.nullable}"),
                )
                for depth, field in fields
            ),
        )
    yield from _enums(enums)


_NEVER = Versions(0, -1)


def version_page(found: Api | DataDefinition, version: int, schemas: Sequence[Schema]) -> Iterator[FittedTable | Line]:
    """One version: its fields in wire order, tagged ones last."""
    name = found.name if isinstance(found, Api) else found.message.name
    yield (Styled(name, "bold"), f"  version {version}")
    yield found.summary
    if isinstance(found, Api):
        release = first_release(found.key, version)
        since = "in no release" if release is None else f"first release {release}"
        stable = "" if release is None or is_stable(found.key, version) else " (never stable)"
        yield f"{since}{stable}, {'flexible' if schemas[0].flexible else 'not flexible'}"
    enums: dict[str, None] = {}
    titles = ["request", "response"] if isinstance(found, Api) else [""]
    for title, schema in zip(titles, schemas, strict=True):
        yield ""
        if isinstance(found, Api):
            header = found.request_header(version) if title == "request" else found.response_header(version)
            yield (Styled(title, "bold"), f"  header {header}")
        if not (schema.root.fields or schema.root.tagged):
            yield "  no fields"
            continue
        fields = list(_flat_layout(schema.root))
        enums |= {field.enum: None for _, field in fields if field.enum}
        yield _table(
            [_column(0, "  field"), _column(1, "type"), _column(2, "")],
            (
                (
                    "  " * (depth + 1) + field.name,
                    _type(field.type, field.array, field.nullable),
                    _notes(field, ""),
                )
                for depth, field in fields
            ),
        )
    yield from _enums(enums)


def _flat(fields: Sequence[FieldDefinition], depth: int = 0) -> Iterator[tuple[int, FieldDefinition]]:
    for field in fields:
        yield depth, field
        yield from _flat(field.fields, depth + 1)


def _flat_layout(struct: Struct, depth: int = 0) -> Iterator[tuple[int, Field]]:
    for field in (*struct.fields, *struct.tagged):
        yield depth, field
        if field.struct is not None:
            yield from _flat_layout(field.struct, depth + 1)


def _type(name: str, array: bool, nullable: bool) -> str:
    """The type in the notation of the definition files."""
    text = ("[]" if array else "{}") if name == "struct" else ("[]" if array else "") + name
    return text + "?" if nullable else text


def _notes(field: FieldDefinition | Field, null: str) -> Styled:
    notes = [null] if null else []
    if field.tag is not None:
        notes.append(f"tag {field.tag}")
    if field.entity:
        notes.append(field.entity)
    if field.entity_by is not None:
        names = " or ".join(entity for _, entity in field.entity_by.entities)
        notes.append(f"{names} by {field.entity_by.field}")
    if field.enum:
        notes.append(f"enum {field.enum}")
    if field.default is not None:
        notes.append(f"default {field.default or 'empty'}")
    if field.payload or field.type == "records":
        notes.append("payload")
    if field.nests is not None:
        notes.append(f"nests {field.nests}")
    if field.unaligned:
        notes.append("unaligned")
    if field.whole:
        notes.append("whole")
    if field.secret != "no":
        notes.append("secret" if field.secret == "value" else "secret by its name")
    return Styled(", ".join(notes), "dim")


def _enums(names: dict[str, None]) -> Iterator[FittedTable | Line]:
    """The enums that fields refer to, one per line."""
    if not names:
        return
    yield ""
    facts: list[tuple[str, str]] = []
    for name in names:
        enum = enum_by_name(name)
        if name == API_KEY:
            facts.append((f"enum {name}", "the APIs, as `kafkasniff api` lists them"))
        elif enum is not None:
            values = (v.name if v.text == v.name else f"{v.text} {v.name}" for v in enum.values)
            facts.append((f"enum {name}", ", ".join(values)))
    yield FittedTable([_column(0, ""), _column(1, "")], facts, style=None)


def release_table(release: str, rows: Sequence[tuple[int, str, Spoken]]) -> FittedTable:
    """API versions of a release: rows of key, name and versions."""
    notes = [None if one.unstable is None else f"version {one.unstable} needs an opt-in" for _, _, one in rows]
    return _table(
        [_column(0, "key", number=True), _column(1, "API"), _column(2, f"versions in {release}"), _column(3, "")],
        (
            (str(key), Styled(name, "bold"), str(versions), Styled(note or "", "dim"))
            for (key, name, versions), note in zip(rows, notes, strict=True)
        ),
    )


def coverage_table(rows: Sequence[tuple[Api, Sequence[Proof | None]]]) -> FittedTable:
    """Rows of an API and the proof of each of its versions; None if a version is not proven."""
    return _table(_COVERAGE, (_coverage_row(api, proofs) for api, proofs in rows))


_COVERAGE: Final = [
    _column(0, "key", number=True),
    _column(1, "API"),
    _column(2, "defined", number=True),
    _column(3, "proven", number=True),
    _column(4, "vectors", level=1),
    _column(5, "captures", level=2),
    _column(6, "not proven"),
]


def _coverage_row(api: Api, proofs: Sequence[Proof | None]) -> tuple[str | Styled, ...]:
    by_version = list(zip(api.versions, proofs, strict=True))
    return (
        str(api.key),
        Styled(api.name, "bold"),
        str(len(proofs)),
        str(sum(proof is not None for proof in proofs)),
        version_ranges(version for version, proof in by_version if proof is not None and proof.vectors),
        version_ranges(version for version, proof in by_version if proof is not None and proof.captures),
        version_ranges(version for version, proof in by_version if proof is None),
    )


def release_counts(counts: Sequence[PairCount]) -> FittedTable:
    """How many of the pairs that each release added are proven."""
    headings = ("defined", "proven", "vectors", "captures")
    columns = [_column(index, heading, number=True) for index, heading in enumerate(headings, 1)]
    rows = ((since, *map(str, numbers)) for since, *numbers in counts)
    return _table([_column(0, "pairs since"), *columns], rows)


def definition_object(found: Api | DataDefinition) -> dict[str, Any]:
    """Everything in a definition, over all versions."""
    if isinstance(found, Api):
        definition = found.definition
        return {
            "api_key": found.key,
            "api": found.name,
            "former_names": list(found.former_names),
            "summary": found.summary,
            "versions": str(definition.versions),
            "flexible": str(definition.flexible),
            "listeners": list(found.listeners),
            "first_releases": {str(version): first_release(found.key, version) for version in found.versions},
            "removed_in": removed_in(found.key),
            "headers": {
                str(version): {"request": found.request_header(version), "response": found.response_header(version)}
                for version in found.versions
            },
            "request": [_definition(field) for field in definition.request.fields],
            "response": [_definition(field) for field in definition.response.fields],
        }
    message = found.message
    return {
        "name": message.name,
        "summary": found.summary,
        "kind": found.kind,
        "id": found.id,
        "versions": str(message.versions),
        "flexible": str(message.flexible),
        "fields": [_definition(field) for field in message.fields],
    }


def version_object(found: Api | DataDefinition, version: int, schemas: list[Schema]) -> dict[str, Any]:
    """One version: its fields in wire order, tagged ones last."""
    if isinstance(found, Api):
        request, response = schemas
        return {
            "api_key": found.key,
            "api": found.name,
            "version": version,
            "flexible": request.flexible,
            "first_release": first_release(found.key, version),
            "request_header": found.request_header(version),
            "response_header": found.response_header(version),
            "request": _struct(request.root),
            "response": _struct(response.root),
        }
    (schema,) = schemas
    return {
        "name": found.message.name,
        "version": version,
        "flexible": schema.flexible,
        "fields": _struct(schema.root),
    }


def _without_nothing(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _range(versions: Versions) -> str | None:
    return None if versions.low > versions.high else str(versions)


def _definition(field: FieldDefinition) -> dict[str, Any]:
    inside = [_definition(child) for child in field.fields] if field.type == "struct" else None
    return _described(field, {"versions": str(field.versions), "nullable": _range(field.nullable)}, inside)


def _described(field: FieldDefinition | Field, more: dict[str, Any], inside: list[Any] | None) -> dict[str, Any]:
    """What fields and their definitions have in common, with what each says in its own way."""
    return _without_nothing(
        {
            "name": field.name,
            "type": ("[]" if field.array else "") + field.type,
            **more,
            "tag": field.tag,
            "entity": field.entity,
            "entity_by": _choice(field.entity_by),
            "enum": field.enum,
            "default": field.default,
            "secret": None if field.secret == "no" else field.secret,
            "payload": True if field.payload or field.type == "records" else None,
            "nests": field.nests,
            "unaligned": field.unaligned or None,
            "whole": field.whole or None,
            "fields": inside,
        }
    )


def _choice(choice: EntityChoice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "field": choice.field,
        "entities": [{"value": value, "entity": entity} for value, entity in choice.entities],
    }


def _struct(struct: Struct) -> list[dict[str, Any]]:
    return [_field(field) for field in (*struct.fields, *struct.tagged)]


def _field(field: Field) -> dict[str, Any]:
    inside = None if field.struct is None else _struct(field.struct)
    return _described(field, {"nullable": field.nullable}, inside)
