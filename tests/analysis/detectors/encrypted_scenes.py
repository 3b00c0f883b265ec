"""Scenes of TLS that nobody can decrypt, for the tests of detectors."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Sequence

from tests.analysis.detectors.talks import SECOND
from tests.craft.conversation import START_NS, Conversation
from tests.tls.endpoints import Flight, Pair


@functools.cache
def _shaken() -> list[Flight]:
    """A handshake of OpenSSL."""
    return Pair(version=ssl.TLSVersion.TLSv1_3, kind="ecdsa").talk([], ends=False).flights


def _sealed(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2) + bytes(size)


def _talk(number: int, *, slow: float = 0, answers: int = 3) -> Conversation:
    """A client that shakes hands for `slow` seconds, asks some times, and once more without an answer."""
    talk = Conversation(("10.0.0.5", 51_000 + number), ("10.0.0.9", 9093), start_ns=START_NS + number * SECOND)
    talk.handshake()
    for place, (side, data) in enumerate(_shaken()):
        talk.wait(round(slow * SECOND) if place == 1 else 0)
        talk.send(side, data)
    for _ in range(answers):
        talk.send("client", _sealed(300))
        talk.wait(SECOND // 100)
        talk.send("broker", _sealed(60))
    talk.send("client", _sealed(300))
    return talk


def stalled(count: int, silent: float) -> Callable[[], Sequence[Conversation]]:
    """Clients that leave after waiting for an answer."""

    def scene() -> list[Conversation]:
        talks = [_talk(number) for number in range(count)]
        for talk in talks:
            talk.wait(round(silent * SECOND))
            talk.send("client", _sealed(19))
            talk.close()
        return talks

    return scene


def cut(count: int) -> Callable[[], Sequence[Conversation]]:
    """Connections that the broker resets while it owes an answer."""

    def scene() -> list[Conversation]:
        talks = [_talk(number) for number in range(count)]
        for talk in talks:
            talk.reset("broker")
        return talks

    return scene


def slow(seconds: float) -> Callable[[], Sequence[Conversation]]:
    """Six handshakes; each connection is answered to its end."""

    def scene() -> list[Conversation]:
        talks = [_talk(number, slow=seconds) for number in range(6)]
        for talk in talks:
            talk.send("broker", _sealed(60))
            talk.close()
        return talks

    return scene
