"""The grammar: the content of a file, and the place of a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import MAX_DEPTH, Versions
from kafkasniff.kafka.schema.definition_parser import parse_api, parse_data
from kafkasniff.kafka.schema.schema import Schema

PATH = Path("900_sample.txt")

SAMPLE = """\
# Does something.
# More on it.
api 900 Sample   versions 0-5   flexible 3+
listeners broker controller
formerly Example
waits operation
administers

request    headers 0:0 1:1-2 3:3+
  name         string?   1+   nullable 2-4  entity topic_name  default null
  kind         int8           enum acks
  parts        []?       2+
    id         uuid
    old        []int32   2-3
  left         {}        4+   tag 0
    code       error          default -1
  note         string    0-1  secret config
  note         bytes     2+   classic  payload  secret  nests request

response   headers 0:0+
"""


def test_sample() -> None:
    api = parse_api(PATH, SAMPLE)
    assert (api.key, api.name, api.summary) == (900, "Sample", "Does something.")
    assert (str(api.versions), str(api.flexible)) == ("0-5", "3-5")
    assert (api.listeners, api.former_names) == (("broker", "controller"), ("Example",))
    assert api.request.headers == ((Versions(0, 0), 0), (Versions(1, 2), 1), (Versions(3, 5), 3))
    # Unknown versions have the header of the nearest known one.
    assert [api.request.header(version) for version in (-1, 0, 1, 2, 3, 5, 6, 40)] == [0, 0, 1, 1, 3, 3, 3, 3]
    assert [api.response.header(version) for version in (0, 5, 6)] == [0, 0, 0]
    assert api.response.fields == ()
    name, kind, parts, left, note, note_2 = api.request.fields
    assert (name.type, str(name.versions), str(name.nullable)) == ("string", "1-5", "2-4")
    assert (name.entity, name.default, name.secret) == ("topic_name", "null", "no")
    assert (kind.enum, str(kind.versions), str(kind.nullable)) == ("acks", "0-5", "none")
    assert (parts.type, parts.array, str(parts.nullable), parts.secret) == ("struct", True, "2-5", "no")
    assert [(field.name, str(field.versions), field.array) for field in parts.fields] == [
        ("id", "2-5", False),
        ("old", "2-3", True),
    ]
    assert (left.type, left.array, left.tag, left.fields[0].default) == ("struct", False, 0, "-1")
    assert (note.secret, note.payload, note.nests) == ("config", False, None)
    assert (note_2.secret, note_2.classic, note_2.payload, note_2.nests) == ("value", True, True, "request")
    assert api.carries_payload
    assert (api.request.carries_payload, api.response.carries_payload) == (True, False)
    assert (api.request.has_records, api.request.has_secrets) == (False, True)


@pytest.mark.parametrize(
    ("field", "detail"),
    [
        ("x  int64  secret", "int64 cannot be secret"),
        ("x  uuid  secret", "uuid cannot be secret"),
        ("x  {}  secret", "a struct cannot be secret"),
        ("x  bytes  secret config", "bytes cannot be secret"),
        ("x  []int32  payload", "int32 cannot be payload"),
        ("x  []  payload", "a struct cannot be payload"),
        ("x  records  payload", "records cannot be payload"),
        ("x  string  payload  entity topic_name", "payload has no names"),
        ("x  bytes  secret  nests message", "request or response"),
        ("x  bytes  nests request", "only secret bytes nest"),
        ("x  string  secret  nests request", "only secret bytes nest"),
        ("x  bytes  whole", "only records are whole"),
        ("x  bytes  entity_by y=0:group_id", "only strings without an entity"),
        ("x  string  entity group_id  entity_by y=0:group_id", "only strings without an entity"),
        ("x  string  payload  entity_by y=0:group_id", "payload has no names"),
        ("x  string  entity_by y", "entity_by is followed by"),
    ],
)
def test_marks_without_effect_are_refused(field: str, detail: str) -> None:
    text = f"api 900 Sample   versions 0\n\nrequest headers 1:0\n  {field}\n    y  int8\n\nresponse headers 0:0\n"
    with pytest.raises(DefinitionError, match=rf"^900_sample\.txt:4: .*{detail}"):
        parse_api(PATH, text)


def test_a_message_nests_one_other_in_its_body() -> None:
    nesting = "bytes  secret  nests request\n"
    for fields in (f"  x  []{nesting}", f"  x  []\n    y  {nesting}", f"  x  {nesting}  y  {nesting}"):
        with pytest.raises(DefinitionError, match="nests at most one other"):
            parse_api(PATH, f"api 900 Sample   versions 0\n\nrequest headers 1:0\n{fields}\nresponse headers 0:0\n")


@pytest.mark.parametrize(
    ("line", "replacement", "number", "detail"),
    [
        (3, "api x Sample   versions 0-5", 3, "the file starts with"),
        (3, "api 900 Sample   versions 0+", 3, "no last one"),
        (3, "api 900 Sample   flexible 3+", 3, "versions are missing"),
        (3, "api 900 Sample   versions 0-5   flexible 6+", 3, "not within"),
        (3, "api 900 Sample   versions 0-5   extra 6", 3, "unknown option"),
        (3, "api 900 Sample   versions", 3, "lacks a value"),
        (4, "listener broker", 4, "unknown"),
        (9, "request", 9, "followed by: headers"),
        (9, "request    0:0+", 9, "followed by: headers"),
        (9, "request    headers", 9, "version 0 has no header"),
        (9, "request    headers 0:0 1:1-4", 9, "version 5 has no header"),
        (9, "request    headers 0:0-1 1:1+", 9, "not HEADER:VERSIONS from version 2 on"),
        (9, "request    headers 0:0 1:2+", 9, "not HEADER:VERSIONS from version 1 on"),
        (9, "request    headers x:0+", 9, "not HEADER:VERSIONS from version 0 on"),
        (9, "request    headers 1", 9, "not a range"),
        (9, "request    headers 1:0-7", 9, "not within"),
        (10, "  name         strin", 10, "not a type"),
        (10, "  name         []{}", 10, "not a type"),
        (10, "  name         int32?", 10, "has no null"),
        (10, "  name", 10, "a field is"),
        (10, "  Name         int32", 10, "a field is"),
        (10, "  name         string   1+  nullable 2+", 10, "nullable needs"),
        (10, "  name         string   4-2", 10, "not within"),
        (10, "  name         string   1++", 10, "not a range"),
        (10, "  name         string   1+  tag x", 10, "a tag is a number"),
        (10, "  name         string   1+  tag", 10, "lacks a value"),
        (10, "  name         string   1+  classic classic", 10, "unknown or duplicate attribute"),
        (10, "  name         string   1+  unaligned", 10, "only records are unaligned"),
        (10, "   name        string", 10, "two spaces"),
        (11, "    kind       int8", 11, "fields of their own"),
        (13, "    id         uuid     0+", 13, "not within"),
        (18, "  note         bytes", 18, "duplicate field"),
        (20, "reply", 20, "unknown"),
        (20, "request", 20, "unknown"),
    ],
)
def test_faults_are_reported_with_file_and_line(line: int, replacement: str, number: int, detail: str) -> None:
    lines = SAMPLE.splitlines()
    lines[line - 1] = replacement
    with pytest.raises(DefinitionError, match=rf"^900_sample\.txt:{number}: .*{detail}"):
        parse_api(PATH, "\n".join(lines))


def test_a_file_without_a_response() -> None:
    with pytest.raises(DefinitionError, match=r"^900_sample\.txt:end: a file holds one request and one response"):
        parse_api(PATH, "\n".join(SAMPLE.splitlines()[:18]))
    with pytest.raises(DefinitionError, match="ends too early"):
        parse_api(PATH, "# nothing\n")


def test_data_blocks() -> None:
    text = "# One.\ndata OneRecord   kind metadata   id 3   versions 1-2   flexible 2+   releases 2.8-3.0\n  a  int8\n"
    one, two = parse_data(Path("some.txt"), text + "\ndata Two   kind file   versions 0\n")
    assert (one.message.name, one.summary, one.kind, one.id, one.file) == ("OneRecord", "One.", "metadata", 3, "some")
    assert one.releases == ("2.8", "3.0")
    assert (str(one.message.versions), str(one.message.flexible)) == ("1-2", "2")
    assert (two.summary, two.id, two.message.fields, str(two.message.flexible)) == ("", None, (), "none")
    with pytest.raises(DefinitionError, match=r"some\.txt:1: a block starts with"):
        parse_data(Path("some.txt"), "api 1 X\n")
    with pytest.raises(DefinitionError, match=r"some\.txt:1: kind is missing"):
        parse_data(Path("some.txt"), "data X   versions 0\n")


def test_names_and_numbers_that_python_refuses_are_reported() -> None:
    head, large = "data X   kind file   ", "9" * 5000
    deep = "".join(f"{'  ' * depth}a  {{}}\n" for depth in range(1, 2000))
    for text in (
        *(
            f"{head}versions {large}\n",
            f"{head}id {large}   versions 0\n",
            f"{head}versions 0\n  a  int8  0  tag {large}\n",
        ),
        *("data X\0   kind file   versions 0\n", "data X\N{ARABIC-INDIC DIGIT ONE}   kind file   versions 0\n"),
        f"{head}versions 0\n{deep}",
    ):
        with pytest.raises(DefinitionError, match=r"^some\.txt:\d+: "):
            parse_data(Path("some.txt"), text)


def test_structs_in_each_other_up_to_the_bound() -> None:
    text = "data X   kind file   versions 0\n" + "".join(
        f"{'  ' * depth}a  {{}}\n" for depth in range(1, MAX_DEPTH + 1)
    )
    (found,) = parse_data(Path("some.txt"), text)
    data = b""
    assert Schema(found.message, 0).read(data, 0, 0, DecodeContext(DecodeOptions())).complete
