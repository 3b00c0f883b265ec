"""Programs that the kernel refuses."""

from __future__ import annotations

import sys

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.schema.definition import program_of
from kafkasniff.native import kernel


def test_programs_that_are_damaged_are_refused() -> None:
    """No index and no name of a program that is taken lies outside."""
    check = kernel().check
    found = api(0)
    assert found is not None
    program = program_of(found.request(9).root)
    for cut in range(len(program)):
        assert check(program[:cut], cut) == 0
    head, op = 20, 28
    for place, wrong in (
        (0, 0),
        (4, len(program) + 1),
        (8, 0xFFFF),
        (12, 8),
        (head + op + 24, 0),
        (head + op + 24, 0xFFFFFFFF),
        (head + op + 8, 0xFFFFFFF0),
        (head + op + 12, 0xFFFFFFF0),
        (head + 4, 0xFFFF),
        (head, 99),
    ):
        changed = bytearray(program)
        changed[place : place + 4] = wrong.to_bytes(4, sys.byteorder)
        assert check(bytes(changed), len(changed)) == 0, place
