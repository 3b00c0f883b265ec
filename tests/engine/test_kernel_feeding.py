"""What the kernel may take over, and that everything comes back."""

from __future__ import annotations

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.connection.detail import Level
from kafkasniff.native import kernel
from tests.engine.test_emitting import conversation
from tests.tcp.batches import batch


@pytest.fixture
def inspector() -> Inspector:
    """After a connection that the kernel has."""
    if kernel() is None:
        pytest.skip("the native kernel is not there")
    found = Inspector(exchanges=False)
    packets = conversation(20).packets[:-2]
    for at in range(0, len(packets), 10):
        found.feed(batch(packets[at : at + 10], at))
    assert found._kernel.in_step is not None
    assert len(found._kernel.in_step) == 1
    return found


def test_all_connections_come_back(inspector: Inspector) -> None:
    (tcp,) = inspector.reassembler
    assert tcp.owner.kafka.is_plain()  # type: ignore[attr-defined]
    assert inspector._kernel.in_step is not None
    assert len(inspector._kernel.in_step) == 0


def test_a_lower_level_of_detail_takes_them_back(inspector: Inspector) -> None:
    assert inspector._kernel.may_adopt
    inspector.level = Level(1)
    assert not inspector._kernel.may_adopt
    assert inspector._kernel.in_step is not None
    assert len(inspector._kernel.in_step) == 0


def test_without_a_kernel_nothing_is_handed_over() -> None:
    found = Inspector()
    found._kernel.in_step = None
    assert found._kernel.begin(batch(conversation(1).packets)) is None
    assert found._kernel.adopt([], []) == 0
    assert found._kernel.late() == []
