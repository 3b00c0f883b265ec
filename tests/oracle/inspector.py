"""An inspector whose connections Python follows, and what any inspector knows of its connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from tests.native.kernel_and_walker import records_by_python
from tests.oracle.connection import OracleConnection
from tests.oracle.feeding import OracleFeeder
from tests.oracle.kafka.recognition import ConnectionOptions


def _begin_following(inspector: Inspector) -> None:
    state = inspector._state
    options = ConnectionOptions(detail=state.detail, max_frame=state.max_frame, every_end=state.want_exchanges)
    feeder: Any = OracleFeeder(state, inspector._memory, options)
    inspector._feeder = feeder


class ByPython(Inspector):
    """Python follows all connections: the specification. It writes no lines, finds no columns and drops nothing."""

    begin_following = _begin_following

    def write_lines(self, *_: Any, **_named: Any) -> bool:
        """All messages are emitted."""
        return False

    @property
    def connections(self) -> list[OracleConnection]:
        """Those that are remembered."""
        feeder: Any = self._feeder
        return [tcp.owner for tcp in feeder.reassembler]


@contextmanager
def by_python() -> Iterator[None]:
    """Python follows all connections of new inspectors, and reads all records."""
    with records_by_python(), pytest.MonkeyPatch.context() as patch:
        for name in ("begin_following", "write_lines"):
            patch.setattr(Inspector, name, vars(ByPython)[name])
        yield


def kept(inspector: Inspector) -> list[tuple[object, ...]]:
    """The connections that are remembered: endpoints, first packet, verdict, and whether they are over."""
    if isinstance(inspector, ByPython):
        mine = inspector.connections
        found = [(one.endpoints, one.first_packet, one.kafka.verdict, one.tcp.closed) for one in mine]
    else:
        found = [(one.endpoints, one.first_packet, one.verdict, one.ended) for one in inspector.followed]
    return sorted(found, key=repr)
