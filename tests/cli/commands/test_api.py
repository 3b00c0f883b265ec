"""`kafkasniff api`: `screens/api.txt` has what it shows; every field of every definition is on its pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.cli.render.api_tables import definition_object, definition_page
from kafkasniff.cli.render.tables import as_text
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.schema.definition import Field, FieldDefinition, Struct
from kafkasniff.kafka.schema.schema import data_definitions, data_schema, parse_data
from tests.choice import one_in
from tests.cli.console import kafkasniff


def text(*arguments: str, width: int = 120) -> str:
    result = kafkasniff("api", *arguments, width=width)
    assert (result.code, result.err) == (Exit.OK, "")
    assert all(len(line) <= width for line in result.lines)
    return result.text


def values(*arguments: str) -> Any:
    return json.loads(kafkasniff("api", *arguments, "--format", "json").out)


def words(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


@pytest.mark.parametrize("name", ["ElectLeaders", "43", "elect_leaders", "ElectPreferredLeaders"])
def test_names_of_an_api(name: str) -> None:
    assert text(name) == text("43")


def test_the_old_name_of_an_option() -> None:
    assert text("Heartbeat", "4", "--code") == text("Heartbeat", "4", "--program")


def test_the_current_coverage() -> None:
    entry = values("--coverage")
    assert entry["pairs_defined"] - entry["pairs_proven"] == 1
    (left,) = (api for api in entry["apis"] if api["defined"] != api["proven"])
    assert (left["api"], set(left["defined"]) - set(left["proven"])) == ("BrokerRegistration", {5})
    out = text("--coverage")
    assert out.endswith(
        f"\npairs of API and version: {entry['pairs_defined']} defined, {entry['pairs_proven']} proven\n"
    )
    rows = [row for row in words(out) if "BrokerRegistration" in row]
    assert [(row[0], row[-1]) for row in rows] == [("62", "5")]


@pytest.mark.parametrize("key", one_in(9, api_keys()))
def test_pages_and_objects_have_every_field(key: int) -> None:
    """As the definitions have them, over all versions and in the first and last one."""
    found = api(key)
    whole, page = values(str(key)), words(text(str(key)))
    assert (whole["api_key"], whole["api"], whole["versions"]) == (key, found.name, str(found.definition.versions))
    assert set(whole["headers"]) == set(whole["first_releases"]) == {str(version) for version in found.versions}
    for side, message in (("request", found.definition.request), ("response", found.definition.response)):
        for one, field in zip(objects(whole[side]), definitions(message.fields), strict=True):
            plain = ("[]" if field.array else "") + field.type
            assert (one["name"], one["type"], one["versions"]) == (field.name, plain, str(field.versions))
            assert any(row[0] == field.name for row in page if row)
    for version in {found.min_version, found.max_version}:
        one_version, page = values(str(key), str(version)), words(text(str(key), str(version)))
        for side, schema in (("request", found.request(version)), ("response", found.response(version))):
            for one, layout in zip(objects(one_version[side]), fields(schema.root), strict=True):
                assert (one["name"], one["nullable"]) == (layout.name, layout.nullable)
                assert any(row[0] == layout.name for row in page if row)
            assert one_version[f"{side}_header"] == whole["headers"][str(version)][side]


def objects(some: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in some:
        yield one
        yield from objects(one.get("fields", []))


def definitions(some: tuple[FieldDefinition, ...]) -> Iterator[FieldDefinition]:
    for one in some:
        yield one
        yield from definitions(one.fields)


def fields(struct: Struct) -> Iterator[Field]:
    for one in (*struct.fields, *struct.tagged):
        yield one
        if one.struct is not None:
            yield from fields(one.struct)


@pytest.mark.parametrize("name", one_in(6, list(data_definitions())))
def test_structures(name: str) -> None:
    found = data_definitions()[name]
    whole = values(name)
    assert (whole["name"], whole["kind"]) == (name, found.kind)
    assert text(name).startswith(f"{name}  {found.kind}\n")
    version = str(found.message.versions.high)
    assert text(name, version).startswith(f"{name}  version {version}\n")
    schema = data_schema(name, int(version))
    assert [one["name"] for one in objects(values(name, version)["fields"])] == [
        one.name for one in fields(schema.root)
    ]


NOTED = """data One   kind file   versions 0-1   flexible 1+
  plain   int32
  name    string?  0+  nullable 1+  secret
  value   bytes    1+  payload  tag 3
"""


def test_attributes_of_fields() -> None:
    """They are there only if they mean something."""
    (found,) = parse_data(Path("some.txt"), NOTED)
    plain, name, value = definition_object(found)["fields"]
    assert plain == {"name": "plain", "type": "int32", "versions": "0-1"}
    assert (name["nullable"], name["secret"]) == ("1", "value")
    assert (value["tag"], value["payload"], "secret" in value) == (3, True, False)
    rows = words(as_text(definition_page(found), width=160, coloured=False))
    notes = {row[0]: row[3:] for row in rows if row[:1] in (["plain"], ["name"], ["value"])}
    assert notes == {"plain": [], "name": ["null", "in", "1,", "secret"], "value": ["tag", "3,", "payload"]}


def test_widths() -> None:
    for width, hidden in ((60, ["flexible, releases, summary"]), (80, ["summary"]), (90, ["summary"]), (120, [])):
        shown = text(width=width).splitlines()
        assert len(shown) == 1 + len(api_keys()) + len(hidden)
        assert [line for line in shown if "hidden" in line] == [f"hidden: {one} (--wide)" for one in hidden]
