"""A capture lacks one segment: exchanges in it are lost, all others stay the same. This holds for any number of
requests in flight, any position of the segment, and even if the loss is known only many packets later."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.choice import DEEP, examples, fewer, in_turn, one_in
from tests.conftest import shipped_captures
from tests.craft import kafka_bytes as kb
from tests.craft.batches import batch, uneven
from tests.craft.conversation import Conversation, Side
from tests.craft.packet import Packet
from tests.craft.pairs import Pair, Pairing, pairing, pairing_of_batches
from tests.craft.read import is_cut
from tests.craft.read import shipped_packets as packets_of

WHOLE = [path.name for path in shipped_captures() if not is_cut(path)]
LOST_FOR_EACH = 100_000 if DEEP else fewer(2, 3)
"""How many segments of each capture are lost, one at a time."""

PLACES = (0, 1, 2, 7, 39, 77, 78)
"""Segments of a side of the conversation."""
DEPTHS = (1, 2, 5, 12, 40)
"""Requests on the way at once."""

Ids = Callable[[int], int]


def rising(number: int) -> int:
    return number + 1


def always_0(_: int) -> int:
    return 0


def restarting(number: int) -> int:
    return number % 20


@functools.cache
def conversation(depth: int, *, count: int = 80, size: int = 1448, joined: int = 1, ids: Ids = rising) -> list[Packet]:
    """A client that sends up to `depth` requests ahead, `joined` of them at once, in segments of `size` bytes.

    The broker answers one by one, and every segment is acknowledged on its own.
    """
    talk = Conversation()
    talk.handshake()
    sent = answered = 0
    while answered < count:
        while sent < count and sent + joined - answered <= max(depth, joined):
            numbers = range(sent, min(sent + joined, count))
            talk.send("client", b"".join(kb.metadata_request(ids(n), [f"topic-{n:03}"]) for n in numbers), size)
            sent = numbers.stop
        talk.send("broker", kb.metadata_response(ids(answered), "host", 9092, [f"topic-{answered:03}"]), 1448)
        answered += 1
    talk.close()
    return talk.packets


@functools.cache
def whole_conversation(depth: int, **more: Any) -> Pairing:
    return pairing(conversation(depth, **more))


def segments(packets: Sequence[Packet], side: Side | None = None) -> list[int]:
    """Positions of the segments with data, of one side or both."""
    return [
        place
        for place, packet in enumerate(packets)
        if packet.payload and (side is None or (packet.dport == 9092) == (side == "client"))
    ]


def comparable(pairs: Sequence[Pair]) -> Counter[Pair]:
    """Without the reason for a missing response: the missing packet may be the one that ends the connection, and a
    response that was never sent may have been in the gap.
    """
    without = {"unanswered", "lost"}
    return Counter(pair._replace(status="open") if pair.status in without else pair for pair in pairs)


def split(packets: Sequence[Packet], without: int) -> Pairing:
    """The same with a batch per packet or per few packets."""
    places = [place for place in range(len(packets)) if place != without]
    cuts = [0, *(range(1, len(places)) if DEEP else uneven(len(places))), len(places)]
    parts = [places[begin:end] for begin, end in itertools.pairwise(cuts)]
    return pairing_of_batches(batch([packets[place] for place in part], part) for part in parts)


SIDES: tuple[Side, ...] = ("client", "broker")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("where", "depth"), in_turn(PLACES, DEPTHS, 5))
def test_a_lost_message_leaves_the_other_one_of_its_exchange(depth: int, where: int, side: Side) -> None:
    packets = conversation(depth)
    lost = segments(packets, side)[where]
    whole, found = whole_conversation(depth), pairing(packets, [lost])
    (gone,) = (pair for pair in whole.pairs if pair.is_part_of(packets[lost], lost + 1))
    alone = gone._replace(latency_ns=None, duration_ns=None)
    if side == "client":
        alone, kind = alone._replace(request=None, status="orphan", clean=False), "orphan-response"
    else:
        alone, kind = alone._replace(response=None, status="lost"), "response-lost"
    assert Counter(found.pairs) == Counter(whole.pairs) - Counter([gone]) + Counter([alone])
    assert found.kinds == {"tcp-gap": 1, kind: 1}
    assert split(packets, lost) == found


@pytest.mark.parametrize("ids", [rising, restarting])
@given(size=st.sampled_from([7, 20, 33, 50, 100]), depth=st.sampled_from([3, 15]), data=st.data())
@examples(15)
def test_a_segment_with_parts_of_requests(ids: Ids, size: int, depth: int, data: st.DataObject) -> None:
    packets = conversation(depth, size=size, joined=3, ids=ids)
    lost = data.draw(st.sampled_from(segments(packets)))
    whole = whole_conversation(depth, size=size, joined=3, ids=ids)
    assert split(packets, lost) == check(packets, lost, whole)


@pytest.mark.parametrize(("where", "side"), in_turn([0, 1, 2, 39, 77], SIDES, 2))
def test_one_id_for_all_requests(side: Side, where: int) -> None:
    """A client that waits for each response, as clients without distinct ids do."""
    packets = conversation(1, ids=always_0)
    kinds = check(packets, segments(packets, side)[where]).kinds
    assert kinds == {"tcp-gap": 1, "orphan-response" if side == "client" else "response-lost": 1}


# -- real captures


@functools.cache
def original(name: str) -> Pairing:
    return pairing(packets_of(name))


def check(packets: Sequence[Packet], lost: int, whole: Pairing | None = None) -> Pairing:
    """The loss at `lost` changes only exchanges with bytes in it. Returns the exchanges found."""
    whole = pairing(packets) if whole is None else whole
    found = pairing(packets, [lost])
    packet = packets[lost]
    gone = [pair for pair in whole.pairs if pair.is_part_of(packet, lost + 1)]
    # A request that does not decode to its last byte does not show where frames begin again.
    others = [pair for pair in whole.pairs if pair.clean and pair not in gone]
    assert not comparable(others) - comparable(found.pairs)
    kinds = found.kinds - whole.kinds
    assert kinds["orphan-response"] <= sum(pair.response is not None for pair in whole.pairs if pair not in others)
    assert kinds["response-lost"] <= len(gone) + sum(pair.response is None for pair in whole.pairs)
    assert not kinds.keys() & {"response-out-of-order", "latency-negative", "not-kafka"}
    return found


def lost_in_turn(name: str) -> list[int]:
    """Positions of some segments spread over the capture, different for each capture."""
    places = segments(packets_of(name))
    step = max(len(places) // LOST_FOR_EACH, 1)
    return places[len(name) % step :: step]


@pytest.mark.parametrize("name", one_in(12, WHOLE))
def test_a_lost_segment_of_a_real_capture(name: str) -> None:
    for lost in lost_in_turn(name):
        check(packets_of(name), lost, original(name))
