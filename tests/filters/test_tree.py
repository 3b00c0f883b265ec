"""The tree of an expression: what it needs, and that it can be pickled."""

from __future__ import annotations

import pickle

from kafkasniff.filters import needs_records
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.tree import needs_topic_names
from tests.filters.expressions import REFUSED, ask


def test_requirements_of_an_expression() -> None:
    records = "request.topic_data.partition_data.records.batches.records.key == 'a'"
    assert needs_records(parse_filter(f"api == 0 or not ({records})"))
    assert not needs_records(parse_filter("request.topic_data.partition_data.records.batches.magic == 2"))
    assert needs_records(parse_filter("response.responses.partitions.records.batches.records._value.type == 'x'"))
    for expression in ("not (api == 1 or topic == 'a')", "response.responses._topic_name == 'a'"):
        assert needs_topic_names(parse_filter(expression))
    assert not needs_topic_names(parse_filter("request.topics.name == 'a'"))


def test_trees_can_be_pickled() -> None:
    tree = parse_filter(
        'topic =~ "^o" and time > "+1s" and request.acks in (1, -1) and not response.throttle_time_ms > 1s or error'
    )
    again = pickle.loads(pickle.dumps(tree))
    assert again == tree
    assert ask(again, REFUSED, start_ns=0) is True
