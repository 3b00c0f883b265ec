"""The templates of summaries against the definitions, and what the language means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.definition import FieldDefinition, Versions
from kafkasniff.sinks.summaries import summary, syntax, templates
from kafkasniff.sinks.summaries.general import general
from kafkasniff.sinks.summaries.interpreter import interpreter
from kafkasniff.text.paint import PLAIN
from tests.sinks.messages import message

Shape = tuple[FieldDefinition, ...]
VERSION = ("@version",)


def fields(shape: Shape, path: syntax.Path) -> Shape:
    """All fields at a path, whichever versions they are in."""
    found: Shape = ()
    for name in path:
        found = tuple(one for one in shape if one.name == name)
        shape = tuple(inner for one in found for inner in one.fields)
    return found


def used(body: syntax.Sequence, shape: Shape, phrase: str = "") -> Iterator[tuple[str, syntax.Path, bool, str]]:
    """The phrase, path, presence and enum of each field that a template names; of enums that are not asked for "-"."""

    def one(path: syntax.Path, *, named: bool = False) -> tuple[str, syntax.Path, bool, str]:
        # What a reader of embedded bytes or an enricher adds is in no definition, nor is what records hold.
        *outer, last = path
        if path[0].startswith("_") or path == VERSION or (last == "base_offset" and outer == ["records"]):
            return phrase, path, True, "-"
        found = fields(shape, path)
        return phrase, path, bool(found), (found[0].enum or "" if found else "-") if named else "-"

    for node in body:
        match node:
            case syntax.Value(path, form, test):
                yield one(path, named=form == "name")
                yield from () if test is None else of_test(test, one)
            case syntax.Count(path) | syntax.Words(path):
                yield one(path)
            case syntax.Partitions(path, index):
                yield one(path)
                yield from [one((*path, index))] if index else ()
            case syntax.Each(path, inner):
                yield one(path)
                within = tuple(field for found in fields(shape, path) for field in found.fields)
                if node.prefer:
                    yield one((*path, node.prefer))
                # A path that is not there is reported once.
                yield from used(inner, within, phrase) if within else ()
            case syntax.Label(index) if index:
                yield one((index,))
            case syntax.Choice(options):
                for option in options:
                    for test in option.tests:
                        yield from of_test(test, one)
                    yield from used(option.body, shape, phrase)
            case syntax.Parts(parts, name):
                for part in parts:
                    yield from used(part, shape, name)


def of_test(test: syntax.Test, one: Any) -> Iterator[Any]:
    yield one(test.path)
    if isinstance(test.operand, tuple):
        yield one(test.operand)


def all_used() -> Iterator[tuple[tuple[str, str], str, syntax.Path, bool, str]]:
    for title in templates.titles():
        api = dissectors.api_by_name(title[0])
        assert api is not None, title
        assert api.name == title[0], "the name of an API as its definition has it"
        found = templates.template(*title)
        assert found is not None
        shape = api.definition.request if title[1] == "request" else api.definition.response
        for phrase, *rest in used((found,), shape.fields):
            yield title, phrase, *rest


def test_every_field_is_in_a_definition() -> None:
    missing = []
    in_phrases: dict[tuple[str, syntax.Path], list[bool]] = defaultdict(list)
    for title, phrase, path, is_there, _ in all_used():
        if phrase:
            in_phrases[phrase, path].append(is_there)
        elif not is_there:
            missing.append((title, path))
    assert missing == []
    # A phrase serves several APIs; each of its fields is in one of them.
    assert [place for place, found in in_phrases.items() if not any(found)] == []
    assert {phrase for phrase, _ in in_phrases} <= set(templates.phrases())


def test_every_name_of_a_code_has_an_enum() -> None:
    assert [(title, path) for title, _, path, _, enum in all_used() if not enum] == []
    assert {path for _, _, path, _, enum in all_used() if enum == "acks"} == {("acks",)}


def test_every_phrase_is_used() -> None:
    def names(body: syntax.Sequence) -> Iterator[str]:
        for node in body:
            match node:
                case syntax.Parts(parts, name):
                    yield name
                    for part in parts:
                        yield from names(part)
                case syntax.Each(_, inner):
                    yield from names(inner)
                case syntax.Choice(options):
                    for option in options:
                        yield from names(option.body)

    found = {name for title in templates.titles() for name in names((templates.template(*title),))}  # type: ignore[arg-type]
    assert set(templates.phrases()) == found - {""}


def test_an_api_without_a_template_gets_the_general_summary() -> None:
    reported = message(api_key=64, api_version=0, body={"broker_id": 7})
    assert ("UnregisterBroker", "request") not in templates.titles()
    assert summary(reported, PLAIN) == general(reported) == "broker 7"


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


def test_a_phrase_within_itself() -> None:
    with pytest.raises(DefinitionError, match=r"here: .*recursive phrase"):
        syntax.parse(("{>a}",), {"a": ("{>a}",)}, "here")
