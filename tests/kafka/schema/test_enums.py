from __future__ import annotations

import pytest

from kafkasniff.kafka.schema.enums import OPERATION_BITS, enum_by_name, enum_names, enum_text


@pytest.mark.parametrize(
    ("enum", "value", "name"),
    [
        ("acks", -1, "ALL"),
        ("acks", 5, None),
        ("transaction_result", True, "COMMIT"),
        ("quota_entity_type", "client-id", "CLIENT_ID"),
        ("no such table", 1, None),
        # A set with an unnamed bit, and one that was not asked for.
        (OPERATION_BITS, 1 << 30, None),
        (OPERATION_BITS, -(1 << 31), None),
        (OPERATION_BITS, 0x8, "READ"),
    ],
)
def test_names(enum: str, value: object, name: str | None) -> None:
    assert enum_text(enum, value) == name


def test_sets_have_no_names_of_single_values() -> None:
    assert enum_names(OPERATION_BITS) is None
    assert enum_names("no such table") is None
    names = enum_names("isolation_level")
    assert names == {0: "READ_UNCOMMITTED", 1: "READ_COMMITTED"}
    table = enum_by_name("isolation_level")
    assert table is not None
    assert all(enum_text(table.name, value) == name for value, name in names.items())
