"""States between two runs: pickles that are read again.

An input is what stands behind the header of a state. It is refused with UsageError, or becomes an object of the kind
that was asked for; what such an object does later is not looked at, since its numbers may be anything.
"""

from __future__ import annotations

import functools
from typing import Final

from kafkasniff.enrich.tellings import Tellings
from kafkasniff.errors import UsageError
from kafkasniff.exports.carried import Carried
from kafkasniff.inspector import Inspector
from kafkasniff.rows.sessions import Sessions
from kafkasniff.state import dump, load
from tests.fuzz.corpus import Said, conversations, spread
from tests.fuzz.streams import packets_of
from tests.tcp.batches import batch

MAX_LENGTH = 12_000
MEGABYTES = 128
WORDS = (
    b"\x94",
    b"h\x01",
    b"j\xff\xff\xff\xff",
    b"r\xff\xff\xff\xff",
    b"q\xff",
    b"p99999999\n",
    b"\x96\xff\xff\xff\xff\0\0\0\0",
    b"\x8b\xff\xff\xff\x7f",
    b"\x8c\x08builtins\x8c\x04eval\x93",
    b"\x8c\x14kafkasniff.inspector\x8c\x09Inspector\x93",
    b"cos\nsystem\n",
    b")\x85\x85",
    b"(K\x01K\x02\x90",
    b"}b",
    b")R",
    b"\x81",
)

_KINDS: Final = (Inspector, Carried)


@functools.cache
def _header() -> bytes:
    return dump(None).partition(b"\n")[0] + b"\n"


def one_input(data: bytes) -> None:
    state = _header() + data
    for kind in _KINDS:
        try:
            loaded = load(state, kind)
        except UsageError as error:
            told = str(error)
        else:
            told = ""
            assert type(loaded) is kind
        assert "\n" not in told


def _inspector(said: tuple[Said, ...]) -> Inspector:
    """In the middle of a connection, with a hole in it."""
    segments = [(0 if one.from_client else 1, one.data[:800]) for one in said[:6]]
    packets = packets_of(1, segments)
    inspector = Inspector(connections=True)
    inspector.feed(batch(packets[:3] + packets[4:]))
    return inspector


def seeds() -> list[bytes]:
    states = [dump(_inspector(said)) for said in spread(list(conversations()), 40)]
    carried = Carried([states[0][:2000]], Sessions(), Tellings(), 7)
    found = [state[len(_header()) :] for state in (*states, dump(carried))]
    return [state for state in found if len(state) <= MAX_LENGTH]
