"""States between two runs, without their header: each is refused with UsageError, or becomes an object of the requested
kind; in all cases, the process's classes, defaults and objects stay as they were."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.tables.checkpoint import Carried, dump, load
from kafkasniff.tables.rows.sessions import Sessions
from tests.fuzz.corpus import Said, conversations, spread
from tests.fuzz.streams import packets_of
from tests.oracle.tcp.batches import batch
from tests.tables.test_checkpoint import process

MAX_LENGTH = 12_000
MEGABYTES = 128
WORDS = (
    *map(bytes.fromhex, ("c0", "c3", "00", "01", "90", "80", "9f", "dcffff", "ddffffffff", "dfffffffff", "c6ffffffff")),
    *map(bytes.fromhex, ("dbffffffff", "c70001", "d401c0", "cfffffffffffffffff", "d38000000000000000")),
    *map(bytes.fromhex, ("cb7ff8000000000000", "81a161c0", "91" * 64)),
)

_KINDS: Final = (Inspector, Carried)
_OFTEN: Final = 256
"""The whole process is inspected once per this many inputs, its redaction every time."""
_count = 0


@functools.cache
def _header() -> bytes:
    return dump(Inspector()).partition(b"\n")[0] + b"\n"


@functools.cache
def _before() -> Mapping[Any, Any]:
    return process()


def one_input(data: bytes) -> None:
    global _count  # noqa: PLW0603 - only counts when to inspect the process
    before = _before()
    state = _header() + data
    for kind in _KINDS:
        reported = ""
        try:
            assert type(load(state, kind)) is kind
        except UsageError as error:
            reported = str(error)
        assert "\n" not in reported
    assert DecodeOptions() == DecodeOptions("full", False)
    assert DecodeContext(DecodeOptions()).withhold(b"secret") == {"redacted": 6}
    _count += 1
    if _count % _OFTEN == 0:
        assert process() == before


def _inspector(said: tuple[Said, ...]) -> Inspector:
    """In the middle of a connection, with a hole in it."""
    segments = [(0 if one.from_client else 1, one.data[:800]) for one in said[:6]]
    packets = packets_of(1, segments)
    inspector = Inspector(connections=True)
    inspector.feed(batch(packets[:3] + packets[4:]))
    return inspector


def seeds() -> list[bytes]:
    states = [dump(_inspector(said)) for said in spread(list(conversations()), 40)]
    carried = Carried([states[0][:2000]], Sessions(), LearnedFacts(), 7)
    found = [state[len(_header()) :] for state in (*states, dump(carried))]
    return [state for state in found if len(state) <= MAX_LENGTH]
