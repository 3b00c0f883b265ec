"""Names in exchange columns whose meaning depends on a number: groups or transactional ids (FindCoordinator)."""

from __future__ import annotations

import numpy as np

from kafkasniff.engine.roles import ExchangeKinds, settle_choices
from kafkasniff.native import kernel
from kafkasniff.native.exchanges import HAS_GROUPS, HAS_RECORDS, HAS_TRANSACTIONS, ROW
from kafkasniff.native.feed import NONE, VERSIONS

FIND_COORDINATOR, HEARTBEAT = 10, 12


def test_names_whose_meaning_depends_on_a_number() -> None:
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
