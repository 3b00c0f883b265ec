"""Sets of authorized operations."""

from __future__ import annotations

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.embedded.interpreters import interpreter
from kafkasniff.kafka.embedded.operations import operation_names, operation_places
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.layout import Struct
from kafkasniff.model import Body


def sets_in(struct: Struct) -> bool:
    return any(
        field.name.endswith("authorized_operations") or (field.struct is not None and sets_in(field.struct))
        for field in (*struct.fields, *struct.tagged)
    )


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
        interpret = interpreter(key, "response")
        assert interpret is not None
        interpret(body, version, DecodeContext(DecodeOptions()))
        assert f"'_{name}': ['READ']" in repr(body)


def test_names_are_those_of_kafka() -> None:
    # `org.apache.kafka.common.acl.AclOperation`: READ is 3, DESCRIBE 8; `Utils.from32BitField`: bit n stands for n.
    assert operation_names(0) == ()
    assert operation_names(1 << 3 | 1 << 8) == ("READ", "DESCRIBE")
    assert operation_names(1 << 2) == ("ALL",)
    assert operation_names(1 << 15 | 1 << 20) == ("TWO_PHASE_COMMIT", "bit 20")
    assert operation_names(-1)[-1] == "bit 31"
    assert len(operation_names(-1)) == 32
