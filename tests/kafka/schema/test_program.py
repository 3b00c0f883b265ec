"""Programs for the kernel: every layout has one, its ops are the layout's, and damaged ones are refused."""

from __future__ import annotations

import sys

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.schema.program import FLAGS, KINDS, listing, ops_of, program_of
from tests.cli.console import kafkasniff
from tests.native.kernel_and_walker import roots, the_kernel


def test_every_layout_has_a_program_that_the_kernel_takes() -> None:
    check = the_kernel().check
    pairs = sum(len(found.versions) for key in api_keys() if (found := api(key)) is not None)
    count = 0
    for root in roots():
        program = program_of(root)
        assert check(program, len(program)) == 1
        count += 1
    assert count > 2 * pairs


def test_programs_that_are_damaged_are_refused() -> None:
    """No index and no name of a program that is taken lies outside."""
    check = the_kernel().check
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


def test_ops_match_the_layout() -> None:
    found = api(0)
    assert found is not None
    ops = ops_of(found.request(9).root)
    assert [op.name for op in ops] == [
        "",
        *("transactional_id", "acks", "timeout_ms", "topic_data"),
        *("name", "partition_data", "index", "records"),
    ]
    assert [op.next for op in ops] == [9, 2, 3, 4, 9, 6, 9, 8, 9]
    assert {"watched", "compact"} <= {*ops[5].flags}
    assert "payload" in ops[8].flags
    assert all(op.kind in KINDS and {*op.flags} <= {*FLAGS} for op in ops)


def test_a_program_can_be_read() -> None:
    found = api(12)
    assert found is not None
    text = listing(found.request(4).root, "Heartbeat request, version 4")
    assert text.startswith("# Heartbeat request, version 4: 5 ops, ")
    assert "   4    group_instance_id string least=1 nullable compact\n" in text
    assert kafkasniff("api", "Heartbeat", 4, "--program").text.startswith(text)
    said = kafkasniff("api", "Heartbeat", 4, "--program", "--format", "json").text
    assert '"group_instance_id"' in said
