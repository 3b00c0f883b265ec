"""Forms of a body: a large one is a body like any other, a rendered one is text."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from kafkasniff.kafka.schema.body_forms import LargeBody, RenderedBody, RenderedRecords


def test_a_large_body_is_a_body() -> None:
    body = LargeBody({"a": 1})
    assert body == {"a": 1}
    assert msgspec.json.encode(body) == b'{"a":1}'
    # Worker processes exchange bodies.
    again = pickle.loads(pickle.dumps(body))
    assert (type(again), again) == (LargeBody, body)


@pytest.mark.parametrize("kind", [RenderedBody, RenderedRecords])
def test_rendered_forms_are_frozen(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen
    assert not issubclass(kind, dict)


def test_a_rendered_body_has_no_problems_unless_noted() -> None:
    body = RenderedBody(b"{}")
    assert (body.json, body.errors, body.odd) == (b"{}", (), None)


def test_rendered_records_can_still_be_decoded() -> None:
    records = RenderedRecords(b'{"batches":[]}', 3, lambda: {"batches": [], "truncated_bytes": 3})
    assert records.decode() == {"batches": [], "truncated_bytes": records.truncated}
