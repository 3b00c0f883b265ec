"""Summaries of messages, from bodies in `summaries.txt`; their templates against the definitions."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.model import ErrorCode
from kafkasniff.sinks.summaries import syntax, templates
from kafkasniff.sinks.summaries.templates import summary
from kafkasniff.sinks.tree import body_tree
from kafkasniff.text.printable import PLAIN
from tests.choice import fewer
from tests.kafka.encode import Encoder, Plan
from tests.sinks.messages import BATCH, message


def decoded(value: dict[str, Any]) -> Any:
    """`$batches` differ from `BATCH` as listed, `$bytes` is a number of bytes."""
    if "$bytes" in value:
        return bytes(value["$bytes"])
    if "$batches" in value:
        batches = [{**BATCH, **batch} for batch in value.pop("$batches")]
        return {"truncated_bytes": 0, **value, "batches": batches}
    return value


def cases() -> Iterator[tuple[str, str]]:
    """Each case of the file: its first line, and those below it."""
    first, below = "", ""
    for line in (Path(__file__).parent / "summaries.txt").read_text().splitlines():
        if line.startswith(" "):
            below += line.strip() + "\n"
            continue
        if first:
            yield first, below
        first, below = line, ""
    yield first, below


def test_summaries() -> None:
    """A line has the API (version 0 unless it says another), the side and the body; errors and the summary follow."""
    seen = 0
    for first, below in cases():
        head, _, body = first.partition(" {")
        name, *version, kind = head.split()
        *errors, expected = below.splitlines() or [""]
        codes = [line.split() for line in errors]
        api = dissectors.api_by_name(name)
        assert api is not None, name
        one = message(
            kind,
            api_key=api.key,
            api_version=int(version[0][1:]) if version else 0,
            body=json.loads("{" + body, object_hook=decoded),
            errors=tuple(ErrorCode(int(code), None if named == "-" else named, path) for _, code, named, path in codes),
        )
        assert summary(one, PLAIN) == expected, first
        seen += 1
    assert seen > 110


def test_a_body_that_was_not_decoded_has_no_summary() -> None:
    assert summary(message(body=None), PLAIN) == ""
    assert summary(message("response", api_key=None, body={}), PLAIN) == ""


def pairs() -> list[tuple[int, int, str]]:
    found = []
    for key in dissectors.api_keys():
        api = dissectors.api(key)
        assert api is not None
        found += [(key, version, kind) for version in api.versions for kind in ("request", "response")]
    return found


def test_every_api_in_every_version_has_a_line_and_a_tree_whatever_its_fields_hold() -> None:
    reported = set()
    for key, version, kind in pairs():
        api = dissectors.api(key)
        assert api is not None
        schema = api.request(version) if kind == "request" else api.response(version)
        ways = ({"count": 2, "nulls": False, "tagged": True}, {}, {"nulls": True}, {"count": 0})
        for seed, choices in enumerate(ways[: fewer(1, 4)]):
            raw = Encoder(Plan(random.Random(f"{key} {version} {seed}"), **choices)).body(schema.root)
            for show_secrets in (False, True):
                # Whole, and cut in the middle: what is left of a body then may end anywhere.
                for data in (raw, raw[: len(raw) // 2]):
                    context = DecodeContext(DecodeOptions(show_secrets=show_secrets))
                    body = schema.read(data, 0, len(data), context).body
                    one = message(kind, api_key=key, api=api.name, api_version=version, body=body,
                                  errors=tuple(context.errors))  # fmt: skip
                    line = summary(one, PLAIN)
                    assert line.isprintable()
                    assert all(text.isprintable() for text in body_tree(one, PLAIN, records=True, width=80))
                    if line not in ("", "ok"):
                        reported.add((key, kind))
    # Every request has a summary in some version, except for the few without content.
    silent = {dissectors.api(key).name for key in dissectors.api_keys() if (key, "request") not in reported}  # type: ignore[union-attr]
    assert silent <= {"ListConfigResources", "DescribeClientQuotas"}


# -- templates ---------------------------------------------------------------------------------------------------------


def names(fields: tuple[FieldDefinition, ...]) -> Iterator[str]:
    """Names of all fields, whichever versions they are in."""
    for one in fields:
        yield one.name
        yield from names(one.fields)


def used(node: Any, phrase: str = "") -> Iterator[tuple[str, str]]:
    """Names of the fields in a template, each with the phrase that it is in."""
    if isinstance(node, msgspec.Struct):
        if isinstance(node, syntax.Parts):
            phrase = node.phrase
        for field in node.__struct_fields__:
            value = getattr(node, field)
            if field in ("path", "operand") and isinstance(value, tuple):
                # What a reader of embedded bytes or an enricher adds is in no definition.
                yield from ((phrase, name) for name in value if not value[0].startswith("_"))
            elif field in ("index", "prefer") and value:
                yield phrase, value
            else:
                yield from used(value, phrase)
    elif isinstance(node, tuple):
        for one in node:
            yield from used(one, phrase)


def test_every_field_is_in_a_definition() -> None:
    """A phrase serves several APIs; each of its fields is in one of them. All phrases are used."""
    there: dict[tuple[str, str], bool] = {}
    for name, kind in templates.titles():
        api = dissectors.api_by_name(name)
        assert api is not None, name
        assert api.name == name, "the name of an API as its definition has it"
        shape = api.definition.request if kind == "request" else api.definition.response
        known = {*names(shape.fields), "@version", "base_offset"}  # the last one is within records
        for phrase, field in used(templates.template(name, kind)):
            place = (phrase or f"{name} {kind}", field)
            there[place] = there.get(place, False) or field in known
    assert [place for place, is_there in there.items() if not is_there] == []
    assert {phrase for phrase, _ in there} >= set(templates.phrases())
