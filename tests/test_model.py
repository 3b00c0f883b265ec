"""The nouns: endpoints as text, sums of bytes, and what is frozen."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff import model
from kafkasniff.model import Endpoint, ErrorCode, Message, Problem, StreamBytes, Summary

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


@pytest.mark.parametrize("name", [name for name in model.__all__ if isinstance(getattr(model, name), type)])
def test_only_totals_may_be_changed(name: str) -> None:
    config = getattr(model, name).__struct_config__
    assert config.frozen is (name != "Summary")


def test_messages_are_made_by_position() -> None:
    """The order in which `engine.paired_messages` gives the fields."""
    fields = Message.__struct_fields__
    assert fields[:7] == ("type", "size", "correlation_id", "api_key", "api", "api_version", "client_id")
    assert fields[7:15] == (
        *("header", "header_tags", "body", "body_version", "raw", "raw_redacted", "errors", "problems"),
    )
    assert fields[15:25] == (
        *("exchange", "connection", "capture", "time_ns", "client", "broker", "first_packet", "last_packet"),
        *("latency_ns", "duration_ns"),
    )


def test_events_are_equal_by_their_values() -> None:
    assert Problem("kind", "detail", 3) == Problem("kind", "detail", 3)
    assert ErrorCode(3, None, "a") != ErrorCode(3, None, "b")
    assert len({Endpoint("10.0.0.1", 1), Endpoint("10.0.0.1", 1), Endpoint("10.0.0.1", 2)}) == 2
