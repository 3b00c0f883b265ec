"""How much bytes look like a request: every version of every API does, and fewer bytes never rule one out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.apis.releases import defined_pairs
from kafkasniff.kafka.messages.plausibility import (
    BEGINNING,
    MAX_KEY,
    MAX_VERSION,
    has_request_form,
    judge_request,
    may_begin_request,
)
from tests.craft.from_layout import request_bytes
from tests.craft.kafka_bytes import int16, int32


def test_each_version_is_a_request_and_may_begin_one() -> None:
    for key, version in sorted(defined_pairs()):
        data = request_bytes(key, version, 5)[4:]
        # A Produce without records looks like a short response; ControlledShutdown 0 has no client id.
        is_exact = key != 0 and (key, version) != (7, 0)
        assert judge_request(data, 0, len(data), strict=True) == ("exact" if is_exact else "plausible"), (key, version)
        assert has_request_form(data, len(data))
        for end in range(min(len(data), BEGINNING) + 1):
            assert may_begin_request(data[:end], aligned=True)
            assert may_begin_request(data[:end], aligned=False)


@pytest.mark.parametrize(
    ("key", "version", "length", "has_form"),
    [
        (3, 1, 2, True),
        (MAX_KEY, MAX_VERSION, 2, True),
        (MAX_KEY + 1, 1, 2, False),
        (3, MAX_VERSION + 1, 2, False),
        (-1, 1, 2, False),
        (3, -1, 2, False),
        (3, 1, -1, True),
        (3, 1, -2, False),
        (3, 1, 3, False),
    ],
)
def test_the_form_of_a_header(key: int, version: int, length: int, has_form: bool) -> None:
    data = int16(key) + int16(version) + int32(9) + int16(length) + b"id"
    assert has_request_form(data, len(data)) is has_form


@given(st.binary(max_size=60), st.booleans())
def test_fewer_bytes_never_rule_a_request_out(data: bytes, aligned: bool) -> None:
    """More bytes may rule a request out; fewer never do."""
    answers = [may_begin_request(data[:end], aligned=aligned) for end in range(len(data) + 1)]
    if judge_request(data, 0, len(data), strict=True) == "exact":
        assert all(answers)
    gone = next((end for end, may in enumerate(answers) if not may), None)
    assert gone is None or gone >= 4
