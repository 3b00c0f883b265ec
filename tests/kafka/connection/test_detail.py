"""Levels of detail: parts of messages that are skipped, and the problems and counts that report them."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.apis.dissectors import api_by_name
from kafkasniff.kafka.connection.detail import Detail, LeftOut, Level
from kafkasniff.kafka.schema.context import DecodeOptions


def key(name: str) -> int:
    found = api_by_name(name)
    assert found is not None
    return found.key


PRODUCE, FETCH, METADATA = key("Produce"), key("Fetch"), key("Metadata")


@pytest.mark.parametrize(
    ("records", "level", "decoded", "bodies"),
    [
        ("full", Level.ALL, "full", True),
        ("full", Level.NO_RECORDS, "metadata", True),
        ("columns", Level.NO_RECORDS, "metadata", True),
        ("skip", Level.NO_RECORDS, "skip", True),
        ("full", Level.NO_BODIES, "metadata", False),
        ("full", Level.NO_MESSAGES, "skip", False),
    ],
)
def test_levels(records: str, level: Level, decoded: str, bodies: bool) -> None:
    detail = Detail(DecodeOptions(records))  # type: ignore[arg-type]
    detail.set(level)
    assert (detail.decode.records, detail.decode.bodies) == (decoded, bodies)
    assert detail.hides is (level is Level.NO_MESSAGES)
    assert detail.full.records == records


def test_bounds_hold_at_the_current_level() -> None:
    detail = Detail(DecodeOptions("full"))
    detail.set(Level.NO_RECORDS)
    less = detail.decode
    detail.set(Level.ALL)
    detail.set(Level.NO_RECORDS)
    assert detail.decode is less, "users compare options by identity"
    detail.limit(1000, 7)
    assert (detail.level, detail.decode.records) == (Level.NO_RECORDS, "metadata")
    for options in (detail.full, detail.decode):
        assert (options.max_decompressed, options.max_records) == (1000, 7)


@pytest.mark.parametrize(
    ("level", "message", "has_body", "kinds", "counted"),
    [
        (Level.NO_RECORDS, (PRODUCE, "request"), True, ["records-skipped"], LeftOut(records=1)),
        (Level.NO_RECORDS, (FETCH, "response"), True, ["records-skipped"], LeftOut(records=1)),
        (Level.NO_RECORDS, (PRODUCE, "response"), True, [], LeftOut()),
        (Level.NO_RECORDS, (METADATA, "response"), True, [], LeftOut()),
        (Level.NO_RECORDS, (32_000, "request"), True, [], LeftOut()),
        (Level.NO_BODIES, (METADATA, "response"), False, ["body-skipped"], LeftOut(bodies=1)),
        (Level.NO_BODIES, (PRODUCE, "request"), False, ["body-skipped"], LeftOut(bodies=1)),
        # A broken message has no body either, but nothing was skipped.
        (Level.NO_RECORDS, (METADATA, "response"), False, [], LeftOut()),
    ],
)
def test_skipped_parts_are_reported_and_counted(
    level: Level, message: tuple[int, str], has_body: bool, kinds: list[str], counted: LeftOut
) -> None:
    detail = Detail(DecodeOptions("full"))
    detail.set(level)
    api_key, direction = message
    problems = detail.omissions(api_key, is_request=direction == "request", has_body=has_body)
    assert [problem.kind for problem in problems] == kinds
    assert detail.left_out == counted


@pytest.mark.parametrize("level", Level)
def test_problems_ahead_of_a_message_are_those_of_the_message(level: Level) -> None:
    """`lack` does not see the body, and counts nothing."""
    for api_key in (PRODUCE, FETCH, METADATA):
        for is_request in (True, False):
            detail = Detail(DecodeOptions("full"))
            detail.set(level)
            found = detail.lack(api_key, is_request=is_request)
            assert detail.left_out == LeftOut()
            if level:
                has_body = detail.decode.bodies
                assert detail.omissions(api_key, is_request=is_request, has_body=has_body) == found
            else:
                assert found == ()
