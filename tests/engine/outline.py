"""What an inspector reports of a crafted connection, in short."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange, Problem, SaslToken
from kafkasniff.packets import PacketBatch
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation, Side
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.packet import Packet
from tests.kernel.followers import split
from tests.oracle.inspector import ByPython

MS = 1_000_000

Step = Callable[[Conversation], object]


def request(number: int) -> bytes:
    return kafka.metadata_request(number, ["orders"])


def response(number: int) -> bytes:
    return kafka.metadata_response(number, "h", 9092, ["orders"])


def sends(side: Side, *parts: bytes) -> Step:
    """Each part begins a segment."""
    return lambda talk: [talk.send(side, part) for part in parts]


def asks(*numbers: int) -> Step:
    return sends("client", *map(request, numbers))


def answers(*numbers: int) -> Step:
    return sends("broker", *map(response, numbers))


def lost(step: Step) -> Step:
    """The capture has only the acknowledgements of a step's packets."""

    def lose(talk: Conversation) -> None:
        before = len(talk.packets)
        step(talk)
        talk.packets[before:] = [one for one in talk.packets[before:] if not one.payload]

    return lose


def snapped(side: Side, data: bytes, kept: int) -> Step:
    """A segment of which the capture has the beginning."""

    def cut(talk: Conversation) -> None:
        place = len(talk.packets)
        talk.send(side, data)
        talk.packets[place] = talk.packets[place].but(payload=data[:kept], cut=len(data) - kept)

    return cut


def closes(side: Side) -> Step:
    return lambda talk: talk.close(side)


def odd(number: int) -> bytes:
    """A request with surplus bytes, as some clients send it: it proves nothing alone."""
    return kafka.frame(request(number)[4:] + b"\0\0\0")


def handshake(mechanism: str) -> list[Step]:
    """SaslHandshake v0: raw tokens follow."""
    return [
        sends("client", request_bytes(17, 0, 1, mechanism=mechanism)),
        sends("broker", response_bytes(17, 0, 1, mechanisms=[mechanism])),
    ]


def packets_of(*steps: Step, begins: bool = True) -> list[Packet]:
    talk = Conversation()
    if begins:
        talk.handshake()
    for step in steps:
        step(talk)
    return talk.packets


def events(*steps: Step, begins: bool = True, **options: Any) -> list[Any]:
    """What the inspector yields."""
    inspector = Inspector(**options)
    return [*inspector.feed(batch(packets_of(*steps, begins=begins))), *inspector.close()]


def outline(packets: Sequence[Packet], **options: object) -> list[str]:
    """Exchanges as `ID STATUS PROBLEMS` at their ends, tokens, and problems with their bytes.

    The same of the kernel in one batch and packet by packet, and of the specification.
    """
    whole = batch(packets)
    expected = _outline(ByPython(**options), [whole])  # type: ignore[arg-type]
    assert _outline(Inspector(**options), [whole]) == expected  # type: ignore[arg-type]
    assert _outline(Inspector(**options), split(whole, itertools.repeat(1))) == expected  # type: ignore[arg-type]
    return expected


def _outline(inspector: Inspector, batches: Iterable[PacketBatch]) -> list[str]:
    found = []
    for one in [*(output for part in batches for output in inspector.feed(part)), *inspector.close()]:
        if isinstance(one, SaslToken):
            found.append(f"{one.direction} token {one.mechanism}")
        elif isinstance(one, Problem):
            # Those of an exchange are listed with it.
            found += [f"{one.kind} {one.bytes}" if one.bytes else one.kind] if one.exchange is None else []
        elif isinstance(one, Exchange):
            sides = [side for side in (one.request, one.response) if side is not None]
            problems = [problem.kind for each in (*sides, one) for problem in each.problems]
            found.append(" ".join([str(sides[0].correlation_id), one.status, *problems]))
    return found
