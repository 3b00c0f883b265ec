"""Definitions: ranges of versions, and what messages of any version may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.kafka.schema.definition import Versions
from kafkasniff.kafka.schema.definition_parser import parse_api, parse_data
from kafkasniff.kafka.schema.layout import cut

PATH = Path("900_sample.txt")


def test_records_that_are_whole() -> None:
    text = "api 900 Sample   versions 0-2\nrequest\n  x  []\n    y  records  1+  whole\nresponse\n"
    message = parse_api(PATH, text).request
    assert [cut(message, version).whole_records for version in range(3)] == [False, True, True]
    assert (message.has_records, message.has_floats, message.nested) == (True, False, None)


def test_versions() -> None:
    assert 3 in Versions(3, 3)
    assert 4 not in Versions(0, 3)
    assert 0 not in Versions(0, -1)
    assert Versions(0, -1).within(Versions(5, 5))
    assert not Versions(0, 3).within(Versions(1, 3))


@pytest.mark.parametrize(
    ("field", "true"),
    [
        ("a string secret", {"has_secrets"}),
        ("a bytes payload", {"carries_payload"}),
        ("a records", {"carries_payload", "has_records"}),
        ("a records secret", {"carries_payload", "has_records", "has_secret_records", "has_secrets"}),
        ("a float64", {"has_floats"}),
        ("a string", set()),
    ],
)
@pytest.mark.parametrize("lead", ["  {}", "  outer []\n    {}"], ids=["in the body", "in a struct"])
def test_what_messages_hold(lead: str, field: str, true: set[str]) -> None:
    (found,) = parse_data(Path("some.txt"), f"data One   kind file   versions 0\n{lead.format(field)}\n")
    names = ("has_secrets", "carries_payload", "has_records", "has_secret_records", "has_floats")
    assert {name for name in names if getattr(found.message, name)} == true
