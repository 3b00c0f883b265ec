"""Roles of fields for columns of the kernel: which exchanges it reads, and which are left to Python."""

from __future__ import annotations

import numpy as np

from kafkasniff.engine.roles import ANSWERS, FIRST_VALUE, ROLES, SESSION, ExchangeKinds, exchange_kind, settle_choices
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.schema.program import ops_of
from kafkasniff.native import kernel
from kafkasniff.native.exchanges import HAS_GROUPS, HAS_RECORDS, HAS_TRANSACTIONS, ROW
from kafkasniff.native.feed import NONE, VERSIONS

PRODUCE, FETCH, METADATA, JOIN_GROUP, HEARTBEAT, SASL_HANDSHAKE, API_VERSIONS, ENVELOPE = 0, 1, 3, 11, 12, 17, 18, 58
FIND_COORDINATOR = 10
HEAD, OP = 20, 28


def roles(program: bytes) -> list[int]:
    count = int.from_bytes(program[8:12], "little")
    return [program[HEAD + OP * index + 1] for index in range(count)]


def named_roles(key: int, version: int, *, response: bool = False) -> dict[str, str]:
    """Roles by the name of their field, without `none` and `inside`."""
    kind, found = exchange_kind(key, version, show_secrets=False, names=True), api(key)
    assert kind is not None
    assert found is not None
    schema = found.response(version) if response else found.request(version)
    values = {FIRST_VALUE + place: name for place, name in enumerate(kind.values)}
    pairs = zip(ops_of(schema.root), roles(kind.response if response else kind.request), strict=True)
    return {op.name: values.get(role) or ROLES[role] for op, role in pairs if role > 1}


def test_fields_have_their_roles() -> None:
    assert named_roles(PRODUCE, 3) == {
        **{"transactional_id": "transaction", "acks": "acks", "timeout_ms": "timeout_ms", "name": "data_topic"},
        **{"index": "partition", "records": "records"},
    }
    assert named_roles(PRODUCE, 3, response=True) == {
        **{"name": "data_topic", "index": "partition", "error_code": "code", "base_offset": "offset"},
        "throttle_time_ms": "throttle",
    }
    assert named_roles(HEARTBEAT, 0) == {"group_id": "group", "member_id": "member"}
    # In an array of brokers everything matters, beside a group only some fields.
    assert named_roles(METADATA, 1, response=True)["brokers"] == "facts"
    found = named_roles(FIND_COORDINATOR, 4, response=True)
    assert [name for name, role in found.items() if role == "facts"] == ["node_id", "host", "port"]


def test_a_fetch_with_a_session() -> None:
    kind = exchange_kind(FETCH, 12, show_secrets=False, names=True)
    assert kind is not None
    assert kind.session
    assert {*SESSION, *ANSWERS.values()} <= set(kind.values)
    assert named_roles(FETCH, 12)["forgotten_topics_data"] == "rare"
    found = named_roles(FETCH, 12, response=True)
    roles = found["high_watermark"], found["records"], found["session_id"]
    assert roles == ("watermark", "records", ANSWERS["session_id"])
    # Without names the enricher has to see it.
    assert exchange_kind(FETCH, 13, show_secrets=False) is None


def test_kinds_that_are_left_to_python() -> None:
    """The client's software, secrets, a message in a message, the members that a leader gets, and unknown ones."""
    for key, version in ((API_VERSIONS, 3), (36, 0), (ENVELOPE, 0), (JOIN_GROUP, 2), (HEARTBEAT, 999), (9999, 0)):
        assert exchange_kind(key, version, show_secrets=False, names=True) is None


def test_every_version_has_whole_programs_or_none() -> None:
    check = kernel().check
    made = 0
    for key in sorted(api_keys()):
        found = api(key)
        assert found is not None
        for version in found.versions:
            kind = exchange_kind(key, version, show_secrets=True, names=True)
            if kind is None:
                continue
            made += 1
            known = set(range(len(ROLES))) | set(range(FIRST_VALUE, FIRST_VALUE + len(kind.values)))
            for program, schema in ((kind.request, found.request(version)), (kind.response, found.response(version))):
                assert check(program, len(program)) == 1
                assert len(roles(program)) == len(ops_of(schema.root))
                assert set(roles(program)) <= known
    assert made > 250


def test_names_whose_meaning_depends_on_a_number() -> None:
    for version in (0, 1, 3):
        assert named_roles(FIND_COORDINATOR, version)["key"] == "group"
    assert named_roles(FIND_COORDINATOR, 4) == {"key_type": "key_type", "coordinator_keys": "group"}
    kinds = ExchangeKinds(kernel(), show_secrets=False, names=True)
    without, with_type, heartbeat = (
        key * VERSIONS + version for key, version in ((FIND_COORDINATOR, 0), (FIND_COORDINATOR, 4), (HEARTBEAT, 0))
    )
    codes = np.array([without, heartbeat, *[with_type] * 4])
    assert kinds.are_known(codes).all()
    kind = kinds.of(with_type)
    assert kind is not None
    rows = np.zeros(len(codes), ROW)
    rows["group"], rows["transaction"] = [4, 5, 6, 7, 8, NONE], NONE
    rows["values"][2:, kind.values.index("key_type")] = [0, 1, 2, 1]
    rows["has"] = [0, HAS_GROUPS, 0, 0, HAS_GROUPS, HAS_GROUPS | HAS_RECORDS]
    settle_choices(rows, codes, kinds.known)
    assert rows["group"].tolist() == [4, 5, 6, NONE, NONE, NONE]
    assert rows["transaction"].tolist() == [NONE, NONE, NONE, 7, NONE, NONE]
    assert rows["has"].tolist() == [0, HAS_GROUPS, 0, 0, 0, HAS_TRANSACTIONS | HAS_RECORDS]
