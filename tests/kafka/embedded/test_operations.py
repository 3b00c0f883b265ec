"""Sets of authorized operations: which responses have them, and the meaning of the bits."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.embedded.interpreters import interpreter
from kafkasniff.kafka.embedded.operations import NOT_ASKED_FOR, operation_names, operation_places
from kafkasniff.kafka.messages.message import decode_response
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.layout import Struct
from kafkasniff.model import Body
from tests.kafka.embedded.reading import account, messages
from tests.vectors.reader import vectors


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


@pytest.mark.parametrize("body", [{}, {"topics": None}, {"topics": []}, {"topics": [{}]}])
def test_truncated_bodies(body: Body) -> None:
    before = repr(body)
    assert repr(added(3, 12, body)) == before


def test_versions_without_sets() -> None:
    body: Body = {"topics": [{"topic_authorized_operations": 8}]}
    assert "_" not in {name[0] for name in added(3, 7, body)["topics"][0]}
    assert operation_places(3, 999) == operation_places(999, 0) == ()


def test_vectors_of_describe_cluster() -> None:
    compared = 0
    for vector in vectors():
        if (vector.kind, vector.name) == ("response", "DescribeCluster"):
            body = decode_response(vector.data, 0, len(vector.data), 60, vector.version).body
            assert body is not None
            bits = vector.body["clusterAuthorizedOperations"]
            reported = body.get("_cluster_authorized_operations")
            if bits == NOT_ASKED_FOR:
                assert reported is None
                continue
            assert reported is not None
            assert len(reported) == (bits & 0xFFFFFFFF).bit_count()
            compared += 1
    assert compared


def test_sets_are_those_that_the_client_reports() -> None:
    name = "kafka-python-admin.pcap"
    (topic,) = account(name, "described_topic")
    (cluster,) = account(name, "described_cluster")
    topics = [one for answer in messages(name, "Metadata", "response") for one in answer.body["topics"]]
    sets = [one["_topic_authorized_operations"] for one in topics if "_topic_authorized_operations" in one]
    assert sets[0] == topic["description"]["authorized_operations"]
    (answer,) = messages(name, "DescribeCluster", "response")
    assert answer.body["_cluster_authorized_operations"] == cluster["cluster"]["authorized_operations"]
