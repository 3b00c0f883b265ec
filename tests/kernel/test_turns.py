"""How long requests waited for others of their connection, and for quotas."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import NamedTuple

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.connection.waits import answers_at_once
from kafkasniff.model import Exchange
from tests.craft.batches import batch
from tests.craft.conversation import START_NS, Conversation
from tests.craft.packet import Packet
from tests.kernel.followers import split

HEARTBEAT = 12
MS = 1_000_000


class Said(NamedTuple):
    """A heartbeat that is sent and answered at these milliseconds; `throttle`: milliseconds of its response."""

    asked: float
    answered: float
    throttle: int = 0
    version: int = 2


def message(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def packets_of(said: Sequence[Said]) -> list[Packet]:
    """The packets of a connection, in the order of these times."""
    talk = Conversation()
    talk.handshake()
    turns = [(one.asked, number, one) for number, one in enumerate(said)]
    turns += [(one.answered, len(said) + number, one) for number, one in enumerate(said)]
    for at, number, one in sorted(turns):
        talk.time_ns = START_NS + round((1000 + at) * MS)
        if number < len(said):
            header = pack(">hhih1s", HEARTBEAT, one.version, number, 1, b"c")
            talk.send("client", message(header + pack(">h1sih1s", 1, b"g", 5, 1, b"m")), acknowledge=False)
        else:
            talk.send("broker", message(pack(">iih", number - len(said), one.throttle, 0)), acknowledge=False)
    return talk.packets


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        # Two requests wait for the one before, the third does not.
        ([Said(0, 500), Said(100, 501), Said(600, 601)], [(0, 0), (400, 0), (0, 0)]),
        # KIP-219: the broker answers at once and reads nothing for the throttle time.
        ([Said(0, 5, 1000), Said(10, 1006), Said(1010, 1011)], [(0, 0), (0, 995), (0, 0)]),
        # The client kept silent, as it should: nothing was muted.
        ([Said(0, 5, 1000), Said(1005, 1500)], [(0, 0), (0, 0)]),
        # Before Kafka 2.0, the response came after its throttle time; a later broker answers old versions at once, too.
        (
            [Said(0, 1002, 1000, 1), Said(1003, 1010, 0, 1), Said(1020, 1022, 1000, 1), Said(1030, 2030, 0, 1)],
            [(0, 1000), (0, 0), (0, 0), (0, 992)],
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_waits(said: list[Said], expected: list[tuple[int, int]], size: int) -> None:
    assert answers_at_once(HEARTBEAT, 2)
    assert not answers_at_once(HEARTBEAT, 1)
    inspector = Inspector()
    whole = batch(packets_of(said))
    found = [one for part in split(whole, [size] * len(whole)) for one in inspector.feed(part)]
    waits = [(one.behind_ns, one.muted_ns) for one in found if isinstance(one, Exchange)]
    assert waits == [(behind * MS, muted * MS) for behind, muted in expected]


def test_a_response_whose_request_is_missing_held_up_the_next_one() -> None:
    packets = packets_of([Said(0, 500), Said(100, 501)])
    asked = next(place for place, one in enumerate(packets) if one.payload)
    inspector = Inspector()
    found = [*inspector.feed(batch([*packets[:asked], *packets[asked + 1 :]])), *inspector.close()]
    assert [one.behind_ns for one in found if isinstance(one, Exchange) and one.response] == [None, 400 * MS]
