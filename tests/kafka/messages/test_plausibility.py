"""How much bytes look like a request: every version of every API does, and mere resemblance does not count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.apis.releases import defined_pairs
from kafkasniff.kafka.messages.plausibility import (
    BEGINNING,
    MAX_KEY,
    MAX_ODDITY,
    MAX_VERSION,
    has_request_form,
    is_answer,
    judge_request,
    may_begin_request,
)
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.kafka_bytes import int16, int32, metadata_request, string

METADATA = metadata_request(7, ["orders"])[4:]
PAIRS = sorted(defined_pairs())


def judged(data: bytes, *, strict: bool = True) -> str:
    return judge_request(data, 0, len(data), strict=strict)


def test_each_version_is_a_request_and_may_begin_one() -> None:
    for key, version in PAIRS:
        data = request_bytes(key, version, 5)[4:]
        # A Produce without records looks like a short response; ControlledShutdown 0 has no client id.
        is_exact = key != 0 and (key, version) != (7, 0)
        assert judged(data) == ("exact" if is_exact else "plausible"), (key, version)
        assert (judge_request(data, 0, len(data), strict=True) == "exact") is is_exact
        assert has_request_form(data, len(data))
        for end in range(min(len(data), BEGINNING) + 1):
            assert may_begin_request(data[:end], aligned=True)
            assert may_begin_request(data[:end], aligned=False)


def test_each_response_answers_its_request() -> None:
    for key, version in (pair for pair in PAIRS if pair[0] in {1, 3, 18}):
        request, response = request_bytes(key, version, 5)[4:], response_bytes(key, version, 5)[4:]
        assert is_answer(request, response), version
        assert not is_answer(request, response + b"\0"), version
        assert not is_answer(request[:3], response)


def test_oddities() -> None:
    """Some clients send bytes too many; a large number of them means that it is not a request."""
    assert judged(METADATA + bytes(1)) == "plausible"
    assert judged(METADATA + bytes(MAX_ODDITY)) == "no"
    assert judged(METADATA[:-1]) == "no"
    unknown = int16(3) + int16(99) + int32(7) + string("client") + b"whatever"
    assert judged(unknown) == "no"
    assert judged(int16(999) + METADATA[2:], strict=False) == "no"


def test_a_token_of_gssapi_is_no_request_of_its_stream() -> None:
    # RFC 2743: a tag, the length, and the mechanism's name.
    token = bytes.fromhex("60 0d 06 09 2a 86 48 86 f7 12 01 02 02 01 00")
    assert may_begin_request(token, aligned=True)
    # Its beginning may be one; within a stream it has to be whole.
    assert may_begin_request(token[:8], aligned=True)
    assert not may_begin_request(token[:8], aligned=False)


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
    if judged(data) == "exact":
        assert all(answers)
    gone = next((end for end, may in enumerate(answers) if not may), None)
    assert gone is None or gone >= 4
