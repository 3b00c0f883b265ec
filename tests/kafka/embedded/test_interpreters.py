"""Which messages have interpreters, and what those need."""

from __future__ import annotations

from kafkasniff.kafka.apis.dissectors import api_keys
from kafkasniff.kafka.embedded.interpreters import asks_connection, interpreter, may_have_floats, notes_for_later
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions


def test_messages_without_embedded_structures_have_none() -> None:
    assert interpreter(12, "request") is None
    assert interpreter(12, "response") is None
    assert interpreter(30_000, "request") is None
    assert not asks_connection(12)
    assert not notes_for_later(12)
    assert not may_have_floats(12)


def test_all_interpreters_accept_an_empty_body() -> None:
    """A truncated message may have none of its fields."""
    found = 0
    for key in api_keys():
        for direction in ("request", "response"):
            interpret = interpreter(key, direction)
            if interpret is not None:
                found += 1
                body: dict[str, object] = {}
                interpret(body, 0, DecodeContext(DecodeOptions()))
                assert not any(value for name, value in body.items() if not name.startswith("_"))
    assert found > 10


def test_sasl_depends_on_the_connection() -> None:
    for key in (17, 36):
        assert asks_connection(key)
        assert notes_for_later(key)


def test_floats_come_from_fields_or_from_embedded_metrics() -> None:
    assert may_have_floats(72)  # PushTelemetry: OTLP
    assert may_have_floats(49)  # AlterClientQuotas: float64 values
    assert not may_have_floats(0)


def test_records_and_operations_are_both_read() -> None:
    assert interpreter(1, "response") is not None
    assert interpreter(3, "response", 8) is not None
    assert interpreter(3, "response", 7) is None  # sets of operations exist in versions 8 to 10
