"""Facts learnt from the traffic, and the bounds of what is kept."""

from __future__ import annotations

import contextlib
import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.enrich import Catalog, catalog
from kafkasniff.enrich import catalog as module
from kafkasniff.enrich.catalog import LearnedFacts, parse_topic_ids
from kafkasniff.errors import UsageError
from kafkasniff.kafka.schema.codes import ZERO_UUID, uuid_text
from kafkasniff.model import Endpoint

ORDERS, PAYMENTS = "3hvnHBaqQU2Y6pOqkwEIng", "kWPwuFi0TiCTnIpKhOP3lg"


def test_an_id_never_changes_its_name() -> None:
    known = Catalog()
    assert known.topic(ORDERS) is None
    known.learn_topic(ORDERS, "orders")
    known.learn_topic(ORDERS, "payments")
    known.learn_topic(PAYMENTS, "orders")  # made again
    assert (known.topic(ORDERS), known.topic(PAYMENTS)) == ("orders", "orders")


@pytest.mark.parametrize(("topic_id", "name"), [
    (ZERO_UUID, "orders"), (None, "orders"), (ORDERS, None), (ORDERS, ""), (ORDERS, b"\xff"), (ORDERS, "a" * 256),
    (7, "orders"), (ORDERS, {"redacted": 3}),
])  # fmt: skip
def test_messages_without_names(topic_id: object, name: object) -> None:
    known = Catalog()
    known.learn_topic(topic_id, name)
    assert known.topic(topic_id) is None
    assert known.topics_learned == 0


def test_the_traffic_takes_precedence_over_given_names() -> None:
    known = Catalog({ORDERS: "given", PAYMENTS: "payments"})
    known.learn_topic(ORDERS, "orders")
    assert (known.topic(ORDERS), known.topic(PAYMENTS)) == ("orders", "payments")
    # org.apache.kafka.common.Uuid.METADATA_TOPIC_ID = new Uuid(0L, 1L)
    assert Catalog().topic(uuid_text(bytes(15) + b"\1")) == "__cluster_metadata"


def test_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_TOPICS", 3)
    known = Catalog()
    ids = [uuid_text(bytes([number]) * 16) for number in range(1, 6)]
    for one in ids:
        known.learn_topic(one, f"topic {one}")
    assert [known.topic(one) is not None for one in ids] == [False, False, True, True, True]


@pytest.mark.parametrize("expected", [
    (-1, "", -1), (1, "", 9092), (1, "h", 0), (1, "h", 65536), (None, "h", 1), (1, None, 1), (1, "h", None),
    (1, b"\xff", 1), (1, "h" * 256, 1),
])  # fmt: skip
def test_no_broker(expected: tuple[object, object, object]) -> None:
    known = Catalog()
    known.learn_broker(*expected)
    assert known.brokers == []


def test_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_BROKERS", 2)
    known = Catalog()
    for number in (1, 2, 1, 3):
        known.learn_broker(number, f"h{number}", 9092)
    # The broker that was not reported for the longest time is dropped.
    assert [broker.id for broker in known.brokers] == [1, 3]


TIMES = st.none() | st.integers(0, 5)
FACTS = st.lists(
    st.one_of(
        st.tuples(st.just("topic"), st.sampled_from(["id-1", "id-2"]), st.sampled_from(["a", "b"]), TIMES),
        st.tuples(st.just("broker"), st.sampled_from([("h", 1), ("localhost", 2)]), st.integers(0, 2), TIMES),
        st.tuples(st.just("spoke_kafka"), st.sampled_from([Endpoint("10.0.0.1", 9)]), TIMES),
    ),
    max_size=12,
)


def gathered(facts: list[tuple[object, ...]]) -> LearnedFacts:
    found = LearnedFacts()
    for name, *arguments in facts:
        getattr(found, str(name))(*arguments)
    return found


@given(FACTS, st.data())
def test_the_collector_does_not_matter(facts: list[tuple[object, ...]], draw: st.DataObject) -> None:
    parts: list[list[tuple[object, ...]]] = [[], [], []]
    for fact in draw.draw(st.permutations(facts)):
        parts[draw.draw(st.integers(0, 2))].append(fact)
    merged = LearnedFacts()
    for part in draw.draw(st.permutations(parts)):
        merged.merge(gathered(part))
    assert merged == gathered(facts)
    again = copy.deepcopy(merged)
    again.merge(merged)
    assert again == merged
    # The order of calls within a part does not matter either.
    assert gathered(draw.draw(st.permutations(facts))) == merged


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FACTS", 2)
    found = LearnedFacts()
    for number in range(5):
        found.topic(f"id-{number}", "t", number)
        found.broker(("h", number), 1, number)
        found.broker(("h", 0), number, number)
        found.spoke_kafka(Endpoint("10.0.0.1", number), number)
        found.late_software(number, "s", None)
    other = LearnedFacts(hosts={f"10.0.0.{number}": "h" for number in range(5)})
    found.merge(other)
    assert [len(found.topics), len(found.brokers), len(found.kafka), len(found.software), len(found.hosts)] == [2] * 5
    assert len(found.brokers["h", 0]) == 2


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
    monkeypatch.setattr(catalog, "MAX_TOPICS", 1)
    assert parse_topic_ids(f"{ORDERS} a\n{ORDERS} a", "ids") == {ORDERS: "a"}
    with pytest.raises(UsageError, match="ids:2: more than 1 topic ids"):
        parse_topic_ids(f"{ORDERS} a\n{PAYMENTS} b", "ids")


@given(st.text())
def test_any_text(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert all(len(one) == 22 for one in parse_topic_ids(text, "ids"))
