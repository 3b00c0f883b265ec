"""Which fetch sessions the kernel follows, and for how long."""

from __future__ import annotations

import pytest

from kafkasniff.enrich.sessions import FetchSession, FetchSessions, SessionStep
from kafkasniff.kafka.apis.dissectors import FETCH
from kafkasniff.model import Endpoint
from kafkasniff.native import kernel
from kafkasniff.native import names as native_names
from kafkasniff.native.feed import VERSIONS
from kafkasniff.native.names import KnownSessions
from kafkasniff.sinks.session_follower import SessionFollower

CODE = FETCH * VERSIONS + 12
BROKER = Endpoint("10.0.0.9", 9092)


class _Kept:
    """Sessions that begin with requests of their own, and a follower of them."""

    def __init__(self) -> None:
        self.sessions, self.known = FetchSessions(), KnownSessions()
        self.follower = SessionFollower(kernel(), self.sessions, self.known)
        self._exchange = 0

    def begin(self, number: int, partitions: int) -> None:
        self._exchange += 1
        self.sessions.request(BROKER, self._exchange, SessionStep(0, 0, added={"orders": list(range(partitions))}))
        self.sessions.response(BROKER, self._exchange, number, 0)

    def ask(self, connection: int, number: int, *added: int) -> FetchSession | None:
        self._exchange += 1
        before = self.sessions.changes
        step = SessionStep(number, 1, added={"orders": list(added)})
        found = self.sessions.request(BROKER, self._exchange, step)
        self.follower.release()
        is_changed = self.sessions.changes != before
        self.follower.asked(connection, CODE, (BROKER, number), found, is_changed=is_changed)
        return found

    @property
    def followed(self) -> list[int]:
        """Connections whose session the kernel knows."""
        found = sorted(self.known._kept)
        assert found == sorted(self.follower._keys)
        assert self.sessions.followed == set(self.follower._keys.values()) == set(self.follower._connections)
        return found


def test_a_session_is_followed_until_it_changes() -> None:
    kept = _Kept()
    kept.begin(7, 3)
    kept.ask(0, 7)
    kept.ask(1, 7, 2)
    assert kept.followed == [0, 1]
    kept.ask(1, 7, 3)
    assert kept.followed == []
    kept.ask(1, 7)
    assert kept.followed == [1]
    # The broker refuses a request.
    kept.sessions.response(BROKER, kept._exchange, 0, 71)
    kept.follower.release()
    assert kept.followed == []


def test_all_are_forgotten_if_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_names, "MAX_SESSIONS", 200)
    kept = _Kept()
    kept.begin(7, 1)
    for connection in range(4):
        kept.ask(connection, 7)
    assert 1 <= len(kept.followed) < 4
    assert kept.followed[-1] == 3
    monkeypatch.setattr(native_names, "MAX_SESSION", 10)
    kept.ask(4, 7)
    assert 4 not in kept.followed
