"""The nouns: endpoints as text, and sums of bytes."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.model import Endpoint, ErrorCode, Problem, StreamBytes, Summary

sizes = st.integers(0, 1 << 50)


@given(st.ip_addresses(), st.integers(0, 65_535))
def test_endpoints_can_be_read_back(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    """IPv6 in brackets, so that the port is what follows the last colon."""
    text = str(Endpoint(str(address), port))
    before, _, after = text.rpartition(":")
    assert (ipaddress.ip_address(before.strip("[]")), int(after)) == (address, port)
    assert before.startswith("[") is (address.version == 6)


@given(sizes, sizes, sizes, sizes, sizes)
def test_the_length_of_a_stream(decoded: int, skipped: int, lost: int, repeated: int, ignored: int) -> None:
    """Bytes that came twice or belong to no stream are not in it; those of a truncated frame are already skipped."""
    stream = StreamBytes(decoded, skipped, lost, pending=skipped, repeated=repeated, ignored=ignored)
    assert stream.size == decoded + skipped + lost


totals = st.builds(Summary, **dict.fromkeys(Summary.__struct_fields__, sizes))


@given(totals, totals, totals)
def test_totals_add_up_in_any_order(one: Summary, two: Summary, three: Summary) -> None:
    forwards, backwards = Summary(), Summary()
    for part in (one, two, three):
        forwards.add(part)
    for part in (three, two, one):
        backwards.add(part)
    assert forwards == backwards
    for name in Summary.__struct_fields__:
        assert getattr(forwards, name) == getattr(one, name) + getattr(two, name) + getattr(three, name)


def test_events_are_equal_by_their_values() -> None:
    assert Problem("kind", "detail", 3) == Problem("kind", "detail", 3)
    assert ErrorCode(3, None, "a") != ErrorCode(3, None, "b")
    assert len({Endpoint("10.0.0.1", 1), Endpoint("10.0.0.1", 1), Endpoint("10.0.0.1", 2)}) == 2
