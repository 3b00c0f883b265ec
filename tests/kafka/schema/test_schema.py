"""The grammar: the place of a mistake, and bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import MAX_DEPTH
from kafkasniff.kafka.schema.schema import Schema, parse_api, parse_data

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
