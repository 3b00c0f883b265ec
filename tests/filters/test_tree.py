"""Filter options that do not need the expression language."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff import filters
from kafkasniff.errors import UsageError
from kafkasniff.filters import Compare, Or
from kafkasniff.model import Endpoint
from tests.filters.expressions import ask_of
from tests.sinks.messages import message


def test_apis_by_name_key_and_comma_lists() -> None:
    assert filters.api_filter(["Produce"]) == Compare("api", "==", 0)
    assert filters.api_filter(["list_offsets, 3", "fetch"]) == Or(
        (Compare("api", "==", 2), Compare("api", "==", 3), Compare("api", "==", 1))
    )
    assert filters.api_filter(["999"]) == Compare("api", "==", 999)
    for wrong in ("Prodce", "", "-1", "1.5"):
        with pytest.raises(UsageError):
            filters.api_filter([wrong])


@given(st.ip_addresses(), st.integers(0, 65535))
def test_hosts_match_the_endpoints_they_name(address: ipaddress.IPv4Address, port: int) -> None:
    end = Endpoint(str(address), port)
    one = message(client=end)
    assert ask_of(filters.host_filter(str(end)), one) is True
    assert ask_of(filters.host_filter(str(address)), one) is True


def test_invalid_hosts() -> None:
    for text in ("", "kafka", "10.0.0", "10.0.0.5:", "10.0.0.5:x", "[::1", "::1]:5", "1.2.3.4.5"):
        with pytest.raises(UsageError):
            filters.host_filter(text)


def test_topics_and_clients_by_name_or_pattern() -> None:
    assert filters.topic_filter(["orders"]) == Compare("topic", "==", "orders")
    assert filters.topic_filter(["ord*", "x"]) == Or((Compare("topic", "glob", "ord*"), Compare("topic", "==", "x")))
    assert filters.topic_filter([]) is None
    by_client = filters.client_filter(["[app]"])
    assert ask_of(by_client, message(client_id="[app]")) is True
    assert ask_of(by_client, message(client_id="a")) is True
    assert ask_of(by_client, message(client_id="[app")) is False
