"""Definitions cut to a version: which fields there are, how long they are, and what they contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.kafka.schema.definition_parser import parse_api
from kafkasniff.kafka.schema.layout import Field, Struct, cut, element_size, topic_fields

TEXT = """api 900 Sample   versions 0-3   flexible 2+
request headers 1:0-1 2:2+
  id        int32
  name      string?  1+    nullable 2+
  things    []
    flag    bool
    value   bytes    1+
  extra     int64    2+   tag 1
  first     int16    2+   tag 0
response headers 0:0-1 1:2+
  error_code  error
"""


def layout(version: int, text: str = TEXT) -> Struct:
    return cut(parse_api(Path("900_sample.txt"), text).request, version)


def names(fields: tuple[Field, ...]) -> list[str]:
    return [field.name for field in fields]


def test_each_version_has_its_fields() -> None:
    assert [names(layout(version).fields) for version in (0, 1)] == [["id", "things"], ["id", "name", "things"]]
    inner = [layout(version).fields[-1].struct for version in (0, 1)]
    assert [None if one is None else names(one.fields) for one in inner] == [["flag"], ["flag", "value"]]
    assert [layout(version).fields[1].nullable for version in (1, 2)] == [False, True]
    for version in range(4):
        root = layout(version)
        assert {root.flexible, *(field.compact for field in root.fields)} == {version >= 2}
    # Tagged fields come last, in ascending order.
    assert layout(1).tagged == ()
    assert [(field.name, field.tag) for field in layout(2).tagged] == [("first", 0), ("extra", 1)]


@pytest.mark.parametrize(("version", "size"), [(0, 4 + 4), (1, 4 + 2 + 4), (2, 4 + 1 + 1 + 1)])
def test_minimum_sizes(version: int, size: int) -> None:
    """Tagged fields may all be missing; an array may be empty; the tag section takes a byte."""
    assert layout(version).size == size
    assert element_size(layout(1).fields[-1]) == 1 + 4
    assert element_size(layout(2).fields[-1]) == 1 + 1 + 1
    assert [element_size(field) for field in layout(2).tagged] == [2, 8]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ("  topic_id uuid\n  name string", ("name", "topic_id")),
        ("  name string", (None, None)),
        ("  topic_id uuid", (None, "topic_id")),
        ("  topic_id uuid\n  name []string", (None, "topic_id")),
        ("  topic_id string\n  topic string", (None, None)),
    ],
)
def test_fields_with_a_topics_name_and_id(fields: str, found: tuple[str | None, str | None]) -> None:
    text = f"api 900 Sample   versions 0\nrequest headers 1:0\n{fields}\nresponse headers 0:0\n"
    assert topic_fields(layout(0, text).fields) == found
