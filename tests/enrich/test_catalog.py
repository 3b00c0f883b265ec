"""Facts learnt from the traffic, and the bounds of what is kept."""

from __future__ import annotations

import pytest

from kafkasniff.enrich import Broker, Catalog, catalog
from kafkasniff.kafka.schema.uuids import ZERO_UUID, uuid_text
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


def test_brokers_by_address() -> None:
    known = Catalog()
    known.learn_broker(1, "10.0.0.9", 9092, "rack-a")
    known.learn_broker(2, "::ffff:10.0.0.10", 9092)
    known.learn_broker(3, "2001:DB8:0::1", 9093)
    known.learn_broker(4, "localhost", 9094)
    assert known.broker_id(Endpoint("10.0.0.9", 9092)) == 1
    assert known.broker_id(Endpoint("10.0.0.9", 9093)) is None
    assert known.broker_id(Endpoint("10.0.0.10", 9092)) == 2
    assert known.broker_id(Endpoint("2001:db8::1", 9093)) == 3
    assert known.broker_id(Endpoint("127.0.0.1", 9094)) == known.broker_id(Endpoint("::1", 9094)) == 4
    assert known.broker_id(Endpoint("127.0.0.2", 9094)) is None
    assert known.broker_id(None) is None
    assert known.brokers[0] == Broker(1, "10.0.0.9", 9092, "rack-a")
    # By the names of the capture.
    known = Catalog()
    known.learn_broker(7, "Kafka-1.Example.", 9092)
    end = Endpoint("10.0.0.9", 9092)
    assert known.broker_id(end) is None
    known.hosts = {"10.0.0.9": "kafka-1.example"}
    assert known.broker_id(end) == 7


def test_an_address_goes_to_another_broker() -> None:
    end = Endpoint("10.0.0.9", 9092)
    forward, first = Catalog(), Catalog(retroactive=True)
    for known in (forward, first):
        known.learn_broker(1, "10.0.0.9", 9092)
        known.learn_broker(2, "10.0.0.9", 9092)
    assert forward.broker_id(end) == 2
    assert first.broker_id(end) == 1, "what is true at the beginning"
    first.retroactive = False
    first.learn_broker(2, "10.0.0.9", 9092)
    assert first.broker_id(end) == 2


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
    assert [broker.id for broker in known.brokers] == [1, 3], (
        "the broker that was not reported for the longest time is dropped"
    )


def test_software_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(catalog, "MAX_PAIRS", 2)
    known = Catalog()
    for number in (1, 2):
        known.learn_software(number, "librdkafka", "2.6.1")
    assert known.software(1) == ("librdkafka", "2.6.1")
    known.learn_software(3, "sarama", "1")
    known.learn_software(3, "sarama", "2")
    assert known.software(3) == ("sarama", "2")
    assert known.software(2) == (None, None), "the one not heard of for the longest time is gone"
    assert known.software(1) == ("librdkafka", "2.6.1")
    known.learn_software(4, b"\xff", "1")
    known.learn_software(4, "x" * 256, "1")
    assert known.software(4) == (None, None)
    # In a run that only learns, the first counts.
    known = Catalog(retroactive=True)
    known.learn_software(1, "proxy", "1")
    known.learn_software(1, "librdkafka", "2")
    assert known.software(1) == ("proxy", "1")
