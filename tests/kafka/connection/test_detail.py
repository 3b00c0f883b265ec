"""Levels of detail: parts of messages that are skipped, and the problems and counts that report them."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.connection.detail import Detail, LeftOut, Level
from kafkasniff.kafka.schema.context import DecodeOptions

PRODUCE, FETCH, METADATA, UNKNOWN = 0, 1, 3, 32_000


@pytest.mark.parametrize(
    ("level", "message", "has_body", "kinds", "counted"),
    [
        (Level.NO_RECORDS, (PRODUCE, True), True, ["records-skipped"], LeftOut(records=1)),
        (Level.NO_RECORDS, (FETCH, False), True, ["records-skipped"], LeftOut(records=1)),
        (Level.NO_RECORDS, (PRODUCE, False), True, [], LeftOut()),
        (Level.NO_RECORDS, (UNKNOWN, True), True, [], LeftOut()),
        (Level.NO_BODIES, (PRODUCE, True), False, ["body-skipped"], LeftOut(bodies=1)),
        # A broken message has no body either, but nothing was skipped.
        (Level.NO_RECORDS, (METADATA, False), False, [], LeftOut()),
    ],
)
def test_skipped_parts_are_reported_and_counted(
    level: Level, message: tuple[int, bool], has_body: bool, kinds: list[str], counted: LeftOut
) -> None:
    detail = Detail(DecodeOptions("full"))
    detail.set(level)
    key, is_request = message
    problems = detail.omissions(key, is_request=is_request, has_body=has_body)
    assert [problem.kind for problem in problems] == kinds
    assert detail.left_out == counted


def test_bounds_hold_at_every_level() -> None:
    detail = Detail(DecodeOptions("full"))
    detail.set(Level.NO_RECORDS)
    detail.limit(1000, 7)
    for options in (detail.full, detail.decode):
        assert (options.max_decompressed, options.max_records) == (1000, 7)
