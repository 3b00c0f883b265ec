"""The templates of summaries against the definitions, and what the language means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.definition import FieldDefinition, Versions
from kafkasniff.sinks.summaries import syntax, templates
from kafkasniff.sinks.summaries.interpreter import interpreter


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


def field(name: str, kind: str = "int32", **facts: Any) -> FieldDefinition:
    every = Versions(0, 9)
    values = {"array": False, "tag": None, "nullable": Versions(1, 0), "fields": (), "default": None, **facts}
    empty = {one: values.get(one) for one in FieldDefinition.__struct_fields__}
    return FieldDefinition(**{**empty, "name": name, "type": kind, "versions": every})


PARTITION = (field("index"), field("error_code", "error"), field("offset", "int64"))
SHAPE = (
    field("name", "string"),
    field("acks", "int16", enum="acks"),
    field("plain"),
    field("words", "string", array=True),
    field("inner", "struct", fields=(field("id"),)),
    field("topics", "struct", array=True,
          fields=(field("name", "string"), field("partitions", "struct", array=True, fields=PARTITION))),
)  # fmt: skip


def shown(text: str, body: dict[str, Any], version: int = 0) -> str:
    found = syntax.parse(tuple(text.split("\n")), {"both": ("{name}", "[{plain}]")}, "here")
    return interpreter(found, SHAPE)(body, version)


def topics(*numbers: int, failed: int | None = None) -> dict[str, Any]:
    found = [{"index": number, "error_code": 3 * (number == failed), "offset": 10 * number} for number in numbers]
    return {"topics": [{"name": "a", "partitions": found}]}


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        ("{name}", {"name": "a b"}, '"a b"'),
        ("{name}, {plain}", {}, "null, None"),
        ("{inner.id}", {"inner": {"id": 4}}, "4"),
        ("{inner.id}", {"inner": None}, "None"),
        ("[id {inner.id}]", {"inner": None}, ""),
        ("[{acks|name}|{acks}]", {"acks": -1}, "all"),
        ("[{acks|name}|{acks}]", {"acks": 7}, "7"),
        ("[{acks|name}|{acks}]", {}, "None"),
        ("[{acks|name}|{acks}|]", {}, ""),
        ("{plain}\n[{name}]\n{acks}", {"plain": 1, "acks": 2}, "1, 2"),
        ("{>both}", {"name": "a", "plain": 1}, "a, 1"),
        ("x[: {>both}]", {}, "x: null"),
        ("[{plain?}|none]", {"plain": 0}, "none"),
        ("[{plain>=0}|none]", {"plain": 0}, "0"),
        ("[{plain>=0}|none]", {"plain": -1}, "none"),
        ("[{?!plain}zero]", {"plain": 0}, "zero"),
        ("[{?plain=null}null|{?plain=2}two|{?plain=acks}same|other]", {"plain": None}, "null"),
        ("[{?plain=null}null|{?plain=2}two|{?plain=acks}same|other]", {"plain": 2}, "two"),
        ("[{?plain=null}null|{?plain=2}two|{?plain=acks}same|other]", {"plain": 3, "acks": 3}, "same"),
        ("[{?plain=null}null|{?plain=2}two|{?plain=acks}same|other]", {"plain": 4, "acks": 3}, "other"),
        ("[{?has name}{name}|no field]", {"name": None}, "null"),
        ("[{?has name}{name}|no field]", {}, "no field"),
        ("[{?@version=0}old|new]", {}, "old"),
        ("{count words word}", {"words": ["a"]}, "1 word"),
        ("{count words word}", {}, "0 words"),
        ("{count plain thing}", {"plain": 3}, "3 things"),
        ("{count topics.partitions}", topics(0, 1, 2), "3"),
        ("[{count topics.partitions? one}|none]", topics(), "none"),
        ("{list words 2}", {"words": ["a", "b", "c"]}, "a, b, +1 more"),
        ("[{list words}|nothing]", {"words": []}, "nothing"),
        ("{each topics: {@} ({count partitions})}", topics(0, 1), "a (2)"),
        ("{each topics.partitions: {@index} at {offset}}", topics(0, 1), "a-0 at 0, a-1 at 10"),
        ('{each topics.partitions "; " partitions: {@index}}', topics(0, 1, 2, 3, 4), "a-0; a-1; a-2; +2 partitions"),
        ("{each topics.partitions all: {@index}}", topics(0, 1, 2, 3), "a-0, a-1, a-2, a-3"),
        ("{each good topics.partitions: {@index}}", topics(0, 1, 2, 3, failed=1), "a-0, a-2, a-3"),
        ("{each topics.partitions: [{?index>=2}{index}]}", topics(0, 1, 2, 3), "2, 3"),
        ("{each topics.partitions prefer offset: {@index}}", topics(1, 0, 2), "a-1, a-2, +1 more"),
        ("{each topics.partitions prefer offset: {@index}}", topics(0), "a-0"),
        ("{partitions topics.partitions index}", topics(*range(8), failed=2), "a-0,1,3,4,5,6,+1 more"),
    ],
)  # fmt: skip
def test_the_language(text: str, body: dict[str, Any], expected: str) -> None:
    assert shown(text, body) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{na me}", "not a value"),
        ("[{name}", r"missing \]"),
        ("{each topics: {@}", "missing }"),
        ("{name}}", "closes nothing"),
        ("name]", "closes nothing"),
        ("{?plain}", "a condition must be within"),
        ("[{?plain!}]", "not a condition"),
        ("[{?!plain=1}]", "one condition at a time"),
        ("{>nowhere}", "no phrase"),
        ("{nothing()}", "no function"),
        ("{each a.b.c: {@}}", "at most two"),
        ("{partitions topics}", "those of topics"),
    ],
)
def test_mistakes_are_reported_with_their_place(text: str, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        shown(text, {})
