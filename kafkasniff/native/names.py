"""Names of topic ids and fetch sessions in lines of the kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.caller import Program
from kafkasniff.native.feed import grown
from kafkasniff.native.library import Kernel, address_of

# -- fetch sessions (`kernel/sessions.zig`) ----------------------------------------------------------------------------
#
# The kernel follows them while requests do not change them. It copies the lists of partitions of other requests
# (`kernel/chosen.zig`).


INSIDE: Final = 1
"""Role of a struct, or of an array of structs, with other roles."""
CHOSEN: Final = 2
"""Role of a field that `ChosenFields` copies."""
TOPIC: Final = 2
"""Role of a topic's name or id, before its partitions."""
PARTITION: Final = 3
CHANGE: Final = 4
"""Role of an array that has elements only in requests that change their session."""

MAX_SESSION: Final = 1 << 16
"""Bytes of a session's topics and partitions; the requests of larger ones are left to Python."""
MAX_SESSIONS: Final = 1 << 23
"""Maximum size of all sessions. Beyond it, all are dropped and followed again from their next requests."""
MAX_PARTITION: Final = 1 << 14
"""Partition numbers that the kernel knows; requests for higher ones are left to Python."""

_PARTITIONS: Final = np.dtype([(name, np.uint64) for name in ("text", "size", "bits", "bits_size")])
_SESSION: Final = np.dtype(
    [
        ("number", np.int64),
        ("program", np.uint64),
        ("topics", np.uint64),
        ("topics_size", np.uint64),
        ("text", np.uint64),
        ("text_size", np.uint64),
        ("partitions", np.int64),
        ("code", np.uint32),
        ("spare", np.uint32),
    ]
)


_NO_STEPS: Final = np.zeros(0, np.uint32)


class NativeSessions(ctypes.Structure):
    """Sessions by connection, the messages that the kernel handled, and the current message."""

    _fields_ = (
        ("places", ctypes.c_void_p),
        ("places_size", ctypes.c_uint64),
        ("steps", ctypes.c_void_p),
        ("steps_size", ctypes.c_uint64),
        ("steps_used", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("data_size", ctypes.c_uint64),
        ("body", ctypes.c_uint64),
        ("session", ctypes.c_void_p),
        ("connection", ctypes.c_uint32),
        ("code", ctypes.c_uint32),
        ("is_step", ctypes.c_uint64),
    )


class KnownSession(msgspec.Struct, frozen=True):
    """What the kernel has to know of a session."""

    number: int
    code: int
    """API and version of the requests that `program` reads."""
    program: Program
    """Its ops have the roles above."""
    partitions: int
    """How many it has; negative: it began before the capture."""
    topics: Iterable[tuple[bytes, Iterable[int]]] = ()
    """Partitions by the name or id of a topic, as requests have it."""
    text: bytes | None = None
    """The JSON that requests show of it; None: nothing."""


class KnownSessions:
    """One session for each connection, by the connection's index in the feed. `address` is that of the structure."""

    def __init__(self) -> None:
        native = self._native = NativeSessions()
        self.address = ctypes.addressof(native)
        self._places = np.zeros(0, _SESSION)
        self._kept: dict[int, tuple[NDArray[np.void], list[bytes], Program, int]] = {}
        """What the kernel has addresses of, and its size, by connection."""
        self._size = 0
        self._taken = 0
        """Steps that were taken."""
        self.is_full = False
        """Whether `add` failed because of the other sessions."""
        self.removed = 0
        """Incremented for each session that is followed no longer."""

    def bind(self, count: int) -> None:
        """Begin with other messages; `count`: their number."""
        self._steps = np.zeros(count, np.uint32)
        self._native.steps, self._native.steps_size = self._steps.ctypes.data, count
        self.drop()

    def drop(self) -> None:
        """Drop the messages that were not taken."""
        self._native.steps_used = self._taken = 0

    def take(self, first: int, last: int) -> NDArray[np.uint32]:
        """The messages of a range that the kernel has handled since the last call, in order; drops earlier ones."""
        begin, end = self._taken, self._native.steps_used
        if begin == end:
            return _NO_STEPS
        steps = self._steps[begin:end]
        begin, end = np.searchsorted(steps, (first, last)).tolist()
        self._taken += end
        return steps[begin:end]

    def add(self, connection: int, session: KnownSession) -> bool:
        """Follow the session of a connection, which has none; False if there is no room for it."""
        kept: list[bytes] = []
        topics = sorted((text, _bits(partitions)) for text, partitions in session.topics)
        rows = np.array(
            [(address_of(text, kept), len(text), address_of(bits, kept), len(bits)) for text, bits in topics],
            _PARTITIONS,
        )
        text = 0 if session.text is None else address_of(session.text, kept)
        size = _SESSION.itemsize + rows.nbytes + sum(map(len, kept))
        if size > MAX_SESSION:
            return False
        self.is_full = self._size + size > MAX_SESSIONS
        if self.is_full:
            return False
        places = self._places = grown(self._places, connection, 64)
        self._native.places, self._native.places_size = places.ctypes.data, len(places)
        self._kept[connection] = rows, kept, session.program, size
        self._size += size
        self._places[connection] = (
            session.number,
            session.program.address,
            rows.ctypes.data,
            len(rows),
            text,
            len(session.text or b""),
            session.partitions,
            session.code,
            0,
        )
        return True

    def remove(self, connection: int) -> None:
        """Follow the session of a connection no longer."""
        if connection in self._kept:
            self._places["program"][connection] = 0
            self.removed += 1
            self._size -= self._kept.pop(connection)[3]


def _bits(partitions: Iterable[int]) -> bytes:
    bits = bytearray()
    for partition in partitions:
        if 0 <= partition < MAX_PARTITION:
            if partition >> 3 >= len(bits):
                bits.extend(bytes((partition >> 3) + 1 - len(bits)))
            bits[partition >> 3] |= 1 << (partition & 7)
    return bytes(bits)


class ChosenFields:
    """Copies fields of bodies: those that have the role CHOSEN in `program`, at most `most` bytes."""

    def __init__(self, kernel: Kernel, program: bytes, most: int) -> None:
        self._function = kernel.chosen
        self._program = Program(kernel, program)
        self._output = ctypes.create_string_buffer(most)
        self._arguments = ctypes.addressof(self._output), most

    def of(self, address: int, size: int, start: int) -> bytes | None:
        """The copy for the body that begins at `start` of the `size` bytes at `address`.

        Returns None if the body is invalid or the copy too large.
        """
        used: int = self._function(self._program.address, address, size, start, *self._arguments)
        return None if used < 0 else self._output.raw[:used]


# -- names (`kernel/names.zig` has the same structures) ----------------------------------------------------------------


FIRST_PLACES: Final = 1 << 10
"""Size of the table, of which at most half is used; 32 bytes per entry."""
MAX_PLACES: Final = 1 << 18
"""Size at which the table is cleared instead of growing: clusters with more topics are requested again."""
MAX_WANTS: Final = 1 << 10
"""Topic ids requested at a time."""

_ASKS_TOPICS, _ASKS_ROOM, _ASKS_SESSION = 1, 2, 4
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
        return bool(self._names.asks & _ASKS_SESSION)

    def answer(self) -> bool:
        """Answer the kernel's request for a message; False if the message is left to Python."""
        names = self._names
        if names.asks & _ASKS_TOPICS:
            self._name(self._wants[: names.wanted].tolist())
        if names.asks & _ASKS_ROOM and not self._make_room():
            return False
        if names.asks & _ASKS_SESSION:
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
