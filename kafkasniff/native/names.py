"""Names of topic ids and fetch sessions in lines of the kernel; `kernel/names.zig` has the same structures."""

from __future__ import annotations

import ctypes
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.calls import address_of
from kafkasniff.native.sessions import KnownSessions

FIRST_PLACES: Final = 1 << 10
"""Size of the table, of which at most half is used; 32 bytes per entry."""
MAX_PLACES: Final = 1 << 18
"""Size at which the table is cleared instead of growing: clusters with more topics are requested again."""
MAX_WANTS: Final = 1 << 10
"""Topic ids requested at a time."""

_TOPICS, _ROOM, _SESSION = 1, 2, 4
_WANTED, _UNKNOWN, _GIVEN, _LEARNT = range(4)
_TOPIC: Final = np.dtype([("id", "V16"), ("text", np.uint64), ("size", np.uint32), ("state", np.uint32)])
_UNANSWERED, _CONTINUES = 0, 2
"""What the response does is not known; the request continued a session (`names.Answer`)."""
_NO_MESSAGE: Final = (1 << 64) - 1


class NativeNames(ctypes.Structure):
    """Known topics, facts about the current message, and requests to the caller."""

    _fields_ = (
        ("topics", ctypes.c_void_p),
        ("mask", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("wants", ctypes.c_void_p),
        ("wants_size", ctypes.c_uint64),
        ("answers", ctypes.c_void_p),
        ("answers_size", ctypes.c_uint64),
        ("answered", ctypes.c_uint64),
        ("partitions", ctypes.c_int64),
        ("session", ctypes.c_void_p),
        ("session_size", ctypes.c_uint64),
        ("asks", ctypes.c_uint32),
        ("wanted", ctypes.c_uint32),
        ("facts", ctypes.c_int64 * 2),
        ("index", ctypes.c_uint64),
        ("pair", ctypes.c_uint64),
        ("is_request", ctypes.c_uint8),
        ("teaches", ctypes.c_uint8),
        ("named", ctypes.c_uint8),
        ("count", ctypes.c_uint8),
        ("spare", ctypes.c_uint32),
        ("sessions", ctypes.c_void_p),
    )


class MessageSession(msgspec.Struct, frozen=True):
    """The fetch session of a message."""

    partitions: int
    """Number of partitions in it; negative: the message is in no known session."""
    text: bytes | None
    """Fields of it added to bodies, as JSON; None: none."""


class NameFacts(Protocol):
    """Facts from an enricher."""

    @property
    def learned(self) -> int:
        """Increases with every learned topic."""

    @property
    def forgets(self) -> bool:
        """Whether topics may be evicted when others are learned."""

    def topic(self, topic_id: bytes, /) -> tuple[bytes | None, bool]:
        """The name of a topic id, and whether it came from a message."""

    def session(self, index: int, first: int, second: int, /) -> MessageSession | None:
        """Process the next Fetch message that may belong to a session; None if Python has to decode it.

        `first`, `second`: of a request the session's number and epoch, of a response error code and session. The same
        message may be processed again, before any other one.
        """

    def continue_sessions(self, steps: NDArray[np.uint32], /) -> None:
        """Process requests that did not change their sessions, and responses to such requests, by their indices."""

    def release(self) -> None:
        """The kernel follows no longer the sessions that have changed."""


class LineNames:
    """Answers the kernel's requests. `address` is that of the structure.

    `sessions`: those that the kernel follows; None: none.
    """

    def __init__(self, facts: NameFacts, sessions: KnownSessions | None = None) -> None:
        self._facts = facts
        self._sessions = sessions
        names = self._names = NativeNames()
        self.address = ctypes.addressof(names)
        self._wants = np.zeros(MAX_WANTS, np.uint32)
        names.wants, names.wants_size = self._wants.ctypes.data, MAX_WANTS
        names.sessions = None if sessions is None else sessions.address
        self._text: bytes | None = None
        """The text of `session`, which the structure points to."""
        self._learned = facts.learned
        self._removed = 0
        """`KnownSessions.removed` before the last line was made."""
        self._emptied = _NO_MESSAGE
        self._begin(FIRST_PLACES)
        self.bind(0)

    def _begin(self, places: int) -> None:
        """Start with an empty table."""
        names = self._names
        self._topics = np.zeros(places, _TOPIC)
        self._kept: list[bytes] = []
        names.topics, names.mask, names.used = self._topics.ctypes.data, places - 1, 0

    def bind(self, count: int) -> None:
        """These are the messages from now on."""
        names = self._names
        self._answers = np.zeros(count, np.uint8)
        names.answers, names.answers_size = self._answers.ctypes.data, count
        if self._sessions is not None:
            self._sessions.bind(count)
        names.answered = self._emptied = _NO_MESSAGE

    def changed(self) -> bool:
        """Whether topics were learned or sessions have changed since the last call: lines may differ from now on."""
        is_changed = False
        if self._sessions is not None:
            self._facts.release()
            is_changed = self._sessions.removed != self._removed
            self._removed = self._sessions.removed
        learned = self._facts.learned
        if learned == self._learned:
            return is_changed
        self._learned = learned
        if self._facts.forgets or len(self._kept) > 2 * len(self._topics):
            self._begin(FIRST_PLACES)
        else:
            state = self._topics["state"]
            state[state != _LEARNT] = _WANTED
        return True

    def restart(self) -> None:
        """Lines that were made, but not settled, are made again."""
        if self._sessions is not None:
            self._sessions.drop()

    def asks_session(self) -> bool:
        """Whether the kernel requests a fetch session; only in the messages' order."""
        return bool(self._names.asks & _SESSION)

    def answer(self) -> bool:
        """Answer the kernel's request for a message; False if the message is left to Python."""
        names = self._names
        if names.asks & _TOPICS:
            self._name(self._wants[: names.wanted].tolist())
        if names.asks & _ROOM and not self._make_room():
            return False
        if names.asks & _SESSION:
            self.settle()
            held = self._facts.session(names.index, *names.facts)
            if held is None:
                return False
            names.answered, names.partitions = names.index, held.partitions
            if names.is_request:
                self._answers[names.index] = _CONTINUES if held.partitions >= 0 else _UNANSWERED
            if self._sessions is not None:
                # Later lines are made with what it has changed.
                self._removed = self._sessions.removed
            if held.text is not self._text:
                self._text = held.text
                kept: list[bytes] = []
                names.session = None if held.text is None else address_of(held.text, kept)
                names.session_size = 0 if held.text is None else len(held.text)
        return True

    def settle(self, first: int = 0, last: int = _NO_MESSAGE) -> None:
        """Process the messages of a range that the kernel has handled, before anything else is."""
        if self._sessions is not None:
            steps = self._sessions.take(first, last)
            if len(steps):
                self._facts.continue_sessions(steps)

    def _name(self, places: list[int]) -> None:
        topics = self._topics
        for place in places:
            name, is_learnt = self._facts.topic(topics["id"][place].tobytes())
            if name is None:
                topics["text"][place], topics["size"][place], topics["state"][place] = 0, 0, _UNKNOWN
            else:
                topics["text"][place], topics["size"][place] = address_of(name, self._kept), len(name)
                topics["state"][place] = _LEARNT if is_learnt else _GIVEN

    def _make_room(self) -> bool:
        """Enlarge the table, or clear it; False if one message has too many topics for it."""
        if len(self._topics) < MAX_PLACES:
            self._begin(2 * len(self._topics))
        elif self._emptied == self._names.index:
            return False
        else:
            self._emptied = self._names.index
            self._begin(MAX_PLACES)
        return True
