"""Facts about brokers from bodies, and bodies without any."""

from __future__ import annotations

from kafkasniff.analysis.detectors import broker_facts


def test_bodies_without_facts_of_brokers() -> None:
    for body in (
        "",
        "{",
        '{"brokers":[}',
        '{"brokers":[',
        '{"brokers":[],"topics":[{"name":"t","partitions":[{"partition_index":0,"leader_id":9223372036854775808}]}]}',
        "x" * (broker_facts.MAX_BODY + 1),
    ):
        assert broker_facts._read(body) == broker_facts._Metadata()
        assert broker_facts._parse(broker_facts._REQUEST, body or None) in (None, broker_facts._BrokerRequest())
    assert broker_facts._parse(broker_facts._REQUEST, '{"broker_id":1,"broker_epoch":9223372036854775808}') is None
    odd = '{"brokers":[{"node_id":"x"},{"node_id":3},{"node_id":true},{"node_id":4294967296},{"node_id":-1},{}]}'
    assert [one.node for one in broker_facts._read(odd).brokers] == [None, 3, None, None, None, None]
