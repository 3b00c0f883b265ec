"""Pairing when correlation ids restart: Java clients restart their ids after authentication (SaslClientAuthenticator
has its own ids, NetworkClient begins at 0)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.choice import DEEP, one_in
from tests.craft import kafka_bytes as kb
from tests.craft.conversation import Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.packet import Packet
from tests.craft.pairs import Pair, pairing

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
LOST_AT_ONCE = 4 if DEEP else 3

ODD = b"more"
"""Bytes after a body."""


def authenticated(*, broker_first: bool, after: Sequence[tuple[bytes, bytes]], size: int = 1448) -> list[Packet]:
    """A SCRAM client: ids -1, 0, 1, 2, then again from 0; `after` are further exchanges.

    `broker_first`: at the end of the capture what is held back of the broker's stream is delivered first.
    """
    client, broker = ("10.0.0.5", 51334), ("10.0.0.1" if broker_first else "10.0.0.9", 9092)
    talk = Conversation(client, broker)
    talk.handshake()
    for request, response in (
        (kb.api_versions_request(-1), kb.api_versions_response(-1)),
        (
            request_bytes(SASL_HANDSHAKE, 1, 0, mechanism="SCRAM-SHA-256"),
            response_bytes(SASL_HANDSHAKE, 1, 0, mechanisms=["SCRAM-SHA-256"]),
        ),
        (
            request_bytes(SASL_AUTHENTICATE, 0, 1, auth_bytes=b"n,,n=bob,r=nonce"),
            response_bytes(SASL_AUTHENTICATE, 0, 1, auth_bytes=b"r=nonce-more,s=salt,i=4096"),
        ),
        (
            request_bytes(SASL_AUTHENTICATE, 0, 2, auth_bytes=b"c=biws,r=nonce-more,p=proof"),
            response_bytes(SASL_AUTHENTICATE, 0, 2, auth_bytes=b"v=signature"),
        ),
        (kb.api_versions_request(0, 2), kb.api_versions_response(0, 2)),
        (kb.metadata_request(1, ["t"]), kb.metadata_response(1, "host", 9092, ["t"])),
        *after,
    ):
        talk.exchange(request, response, size)
    talk.close()
    return talk.packets


def metadata(correlation_id: int, odd: bytes = b"") -> tuple[bytes, bytes]:
    response = kb.metadata_response(correlation_id, "host", 9092, ["t"])
    return kb.metadata_request(correlation_id, ["t"]), kb.frame(response[4:] + odd)


def data_places(packets: Sequence[Packet]) -> list[int]:
    return [place for place, packet in enumerate(packets) if packet.payload]


def pairs_of(pairs: Sequence[Pair]) -> set[tuple[object, object]]:
    return {(pair.request, pair.response) for pair in pairs if pair.request and pair.response}


@pytest.mark.parametrize("broker_first", [True, False])
@pytest.mark.parametrize("size", [1448, 40])
def test_losses_never_create_wrong_pairs(size: int, broker_first: bool) -> None:
    after = [] if size == 1448 else [metadata(2)]
    packets = authenticated(broker_first=broker_first, after=after, size=size)
    whole = pairs_of(pairing(packets).pairs)
    places = data_places(packets)
    most = LOST_AT_ONCE if size == 1448 else LOST_AT_ONCE - 1
    for count in range(1, most + 1):
        for lost in one_in(6, list(itertools.combinations(places, count)), start=count % 6):
            found = pairing(packets, lost).pairs
            # A message whose first or last packet is lost begins or ends in another one.
            made_up = [
                pair
                for pair in found
                if pair.request
                and pair.response
                and not any(_within(pair.request, one[0]) and _within(pair.response, one[1]) for one in whole)
            ]
            assert not made_up, f"without the packets {lost}"


def _within(part: tuple[int, int], whole: object) -> bool:
    assert isinstance(whole, tuple)
    return bool(whole[0] <= part[0] and part[1] <= whole[1])


@pytest.mark.parametrize("broker_first", [True, False])
def test_an_odd_response_finds_its_request_if_only_requests_are_lost(broker_first: bool) -> None:
    """A broker with a complete stream has answered by then: the first response with an id belongs to its request."""
    exchanges = [metadata(number, ODD) for number in range(2, 60)]
    talk = Conversation(("10.0.0.5", 51334), ("10.0.0.1" if broker_first else "10.0.0.9", 9092))
    talk.handshake()
    for request, response in [metadata(1), *exchanges]:
        talk.exchange(request, response)
    talk.close()
    lost = data_places(talk.packets)[20]
    whole, found = pairing(talk.packets), pairing(talk.packets, [lost])
    gone = [pair for pair in whole.pairs if pair.is_part_of(talk.packets[lost], lost + 1)]
    assert pairs_of(found.pairs) == pairs_of(whole.pairs) - pairs_of(gone)
