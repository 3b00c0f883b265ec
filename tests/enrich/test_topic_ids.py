"""Names of topic ids from a text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.enrich import topic_ids
from kafkasniff.enrich.topic_ids import parse_topic_ids
from kafkasniff.errors import UsageError

ORDERS, PAYMENTS = "3hvnHBaqQU2Y6pOqkwEIng", "kWPwuFi0TiCTnIpKhOP3lg"
BOTH = {ORDERS: "orders", PAYMENTS: "payments.eu"}

DESCRIBED = f"""\
Topic: orders\tTopicId: {ORDERS}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: segment.bytes=1073741824
\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr:\x20
\tTopic: orders\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr:\x20
Topic: payments.eu\tTopicId: {PAYMENTS}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs:\x20
\tTopic: payments.eu\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr:\x20
"""
"""What kafka-topics.sh of 4.x prints."""


@pytest.mark.parametrize(
    "text",
    [
        f'{{"{ORDERS}": "orders", "{PAYMENTS}": "payments.eu"}}',
        f'\n {{"orders": "{ORDERS}",\n"payments.eu": "{PAYMENTS}"}}\n',
        f"{ORDERS} orders\n{PAYMENTS}\tpayments.eu",
        f"# by hand\r\n\r\n  orders   {ORDERS}\r\npayments.eu {PAYMENTS}\r\n",
        DESCRIBED,
    ],
)
def test_forms(text: str) -> None:
    assert parse_topic_ids(text, "ids") == BOTH
    assert parse_topic_ids("", "ids") == parse_topic_ids("{}", "ids") == {}
    # A name that looks like an id, and two topics that had one name.
    assert parse_topic_ids(f"{ORDERS} {PAYMENTS}", "ids") == {ORDERS: PAYMENTS}
    twice = f"{ORDERS} orders\n{PAYMENTS} orders\n{ORDERS} orders"
    assert parse_topic_ids(twice, "ids") == {ORDERS: "orders", PAYMENTS: "orders"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders", "ids:1: not a topic id and a name"),
        (f"{ORDERS} orders\n\n{PAYMENTS} two words", "ids:3: not a topic id and a name"),
        ("# none\norders payments", "ids:2: neither 'orders' nor 'payments' is a topic id"),
        (f"{ORDERS[:-1]}h orders", "ids:1: neither"),
        (f"{ORDERS} ör", "ids:1: 'ör' cannot be a topic's name"),
        (f"{ORDERS} ..", "ids:1: '..' cannot be a topic's name"),
        (f"{ORDERS} {'a' * 250}", "cannot be a topic's name"),
        ("AAAAAAAAAAAAAAAAAAAAAA orders", "ids:1: AAAAAAAAAAAAAAAAAAAAAA is the zero id, which no topic has"),
        (f"{ORDERS} orders\n{ORDERS} payments", f"ids:2: {ORDERS} is orders before, payments here"),
        (f'{{"{ORDERS}": "orders",\n"{ORDERS}": "payments"}}', f"ids:2: {ORDERS} is orders before, payments here"),
        (f'{{\n"orders":\n"{ORDERS}",\n"x": 1}}', "ids:4: 'x' has no string for a value"),
        (f'{{"orders": {{"id": "{ORDERS}"}}}}', "ids:1: 'orders' has no string"),
        ('{"orders":\n\n "x",}', "ids:3: "),
        ("{" * 100_000, "ids:1: "),
        ('{"a":' * 100_000, "ids:1: nested too deep"),
    ],
)
def test_other_messages(text: str, said: str) -> None:
    with pytest.raises(UsageError) as failure:
        parse_topic_ids(text, "ids")
    assert said in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_file_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_ids, "MAX_TOPICS", 1)
    assert parse_topic_ids(f"{ORDERS} a\n{ORDERS} a", "ids") == {ORDERS: "a"}
    with pytest.raises(UsageError, match="ids:2: more than 1 topic ids"):
        parse_topic_ids(f"{ORDERS} a\n{PAYMENTS} b", "ids")


@given(st.text())
def test_any_text(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert all(len(one) == 22 for one in parse_topic_ids(text, "ids"))
