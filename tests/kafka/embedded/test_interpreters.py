"""Which messages have interpreters, what those need, and sets of authorized operations."""

from __future__ import annotations

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.embedded.interpreters import asks_connection, interpreter, may_have_floats, notes_for_later
from kafkasniff.kafka.embedded.operations import NOT_ASKED_FOR, operation_names, operation_places
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.layout import Struct
from kafkasniff.model import Body


def test_which_messages_have_interpreters() -> None:
    assert interpreter(12, "request") is interpreter(12, "response") is interpreter(30_000, "request") is None
    # Sets of operations exist in versions 8 to 10.
    assert interpreter(3, "response", 7) is None
    assert None not in (interpreter(1, "response"), interpreter(3, "response", 8))
    for key, connection, floats in ((12, False, False), (0, False, False), (17, True, False), (36, True, False)):
        assert (asks_connection(key), notes_for_later(key), may_have_floats(key)) == (connection, connection, floats)
    # PushTelemetry: OTLP; AlterClientQuotas: float64 values.
    assert may_have_floats(72)
    assert may_have_floats(49)


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


def sets_in(struct: Struct) -> bool:
    return any(
        field.name.endswith("authorized_operations") or (field.struct is not None and sets_in(field.struct))
        for field in (*struct.fields, *struct.tagged)
    )


def added(key: int, version: int, body: Body) -> Body:
    interpret = interpreter(key, "response")
    assert interpret is not None
    interpret(body, version, DecodeContext(DecodeOptions()))
    return body


def test_every_response_with_sets_is_read() -> None:
    found = set()
    for key in api_keys():
        definition = api(key)
        assert definition is not None
        for version in definition.versions:
            assert sets_in(definition.response(version).root) == bool(operation_places(key, version))
            if operation_places(key, version):
                found.add(key)
    assert found == {3, 15, 60, 69, 75, 77, 89}
    for key in found:
        definition = api(key)
        assert definition is not None
        version = definition.max_version
        (arrays, name), *_ = operation_places(key, version)
        body: Body = {name: 8}
        for array in reversed(arrays):
            body = {array: [body]}
        assert f"'_{name}': ['READ']" in repr(added(key, version, body))


def test_names_are_those_of_kafka() -> None:
    # `org.apache.kafka.common.acl.AclOperation`: READ is 3, DESCRIBE 8; `Utils.from32BitField`: bit n stands for n.
    assert operation_names(0) == ()
    assert operation_names(1 << 3 | 1 << 8) == ("READ", "DESCRIBE")
    assert operation_names(1 << 2) == ("ALL",)
    assert operation_names(1 << 15 | 1 << 20) == ("TWO_PHASE_COMMIT", "bit 20")
    assert operation_names(-1)[-1] == "bit 31"
    assert len(operation_names(-1)) == 32


def test_nothing_is_added_without_a_request_for_it() -> None:
    body: Body = {"topics": [{"topic_authorized_operations": NOT_ASKED_FOR}], "cluster_authorized_operations": 0}
    added(3, 8, body)
    assert body == {
        "topics": [{"topic_authorized_operations": NOT_ASKED_FOR}],
        "cluster_authorized_operations": 0,
        "_cluster_authorized_operations": [],
    }
    # Truncated bodies, and versions without sets.
    for version, odd in ((12, {}), (12, {"topics": None}), (12, {"topics": [{}]}), (7, {"topics": [dict(body)]})):
        before = repr(odd)
        assert repr(added(3, version, odd)) == before
    assert operation_places(3, 999) == operation_places(999, 0) == ()
