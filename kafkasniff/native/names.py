"""Names of topic ids and fetch sessions in lines of the kernel, and copies of chosen fields of bodies."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.caller import Program
from kafkasniff.native.library import Kernel, address_of

# -- chosen fields (`kernel/chosen.zig` has the same numbers) ----------------------------------------------------------


INSIDE: Final = 1
"""Role of a struct, or of an array of structs, with other roles."""
CHOSEN: Final = 2
"""Role of a field that `ChosenFields` copies."""


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

_ASKS_TOPICS, _ASKS_ROOM = 1, 2
_WANTED, _UNKNOWN, _GIVEN, _LEARNT = range(4)
_TOPIC: Final = np.dtype([("id", "V16"), ("text", np.uint64), ("size", np.uint32), ("state", np.uint32)])
_SESSION: Final = np.dtype([("partitions", np.int64), ("text", np.uint64), ("size", np.uint64)])
_NO_MESSAGE: Final = (1 << 64) - 1


class NativeNames(ctypes.Structure):
    """Known topics, facts about the current message, and requests to the caller."""

    _fields_ = (
        ("topics", ctypes.c_void_p),
        ("mask", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("wants", ctypes.c_void_p),
        ("wants_size", ctypes.c_uint64),
        ("sessions", ctypes.c_void_p),
        ("sessions_size", ctypes.c_uint64),
        ("held", ctypes.c_void_p),
        ("asks", ctypes.c_uint32),
        ("wanted", ctypes.c_uint32),
        ("index", ctypes.c_uint64),
        ("session", ctypes.c_void_p),
        ("teaches", ctypes.c_uint8),
        ("named", ctypes.c_uint8),
        ("fields", ctypes.c_uint8),
        ("spare", ctypes.c_uint8 * 5),
    )


class Session(NamedTuple):
    """The fetch session of a request."""

    partitions: int
    text: bytes
    """What bodies show of it."""


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


class LineNames:
    """Answers the kernel's requests. `address` is that of the structure."""

    def __init__(self, facts: NameFacts) -> None:
        self._facts = facts
        names = self._names = NativeNames()
        self.address = ctypes.addressof(names)
        self._wants = np.zeros(MAX_WANTS, np.uint32)
        names.wants, names.wants_size = self._wants.ctypes.data, MAX_WANTS
        self._learned = facts.learned
        self._begin(FIRST_PLACES)
        self.bind()

    def _begin(self, places: int) -> None:
        """Start with an empty table."""
        names = self._names
        self._topics = np.zeros(places, _TOPIC)
        self._kept: list[bytes] = []
        names.topics, names.mask, names.used = self._topics.ctypes.data, places - 1, 0

    def bind(self, places: NDArray[np.uint32] | None = None, sessions: Iterable[Session] = ()) -> None:
        """From now on the messages are others; `places`: for each of them 1 plus the index of its session, or 0."""
        names = self._names
        kept: list[bytes] = []
        held = np.array(
            [(session.partitions, address_of(session.text, kept), len(session.text)) for session in sessions], _SESSION
        )
        self._bound = places, held, kept
        names.sessions, names.sessions_size = None, 0
        if places is not None:
            if len(places) and int(places.max()) > len(held):
                raise ValueError("a message is in a session that is missing")
            names.sessions, names.sessions_size = places.ctypes.data, len(places)
        names.held = held.ctypes.data
        self._emptied = _NO_MESSAGE

    def changed(self) -> bool:
        """Whether topics were learned since the last call: lines may differ from now on."""
        learned = self._facts.learned
        if learned == self._learned:
            return False
        self._learned = learned
        if self._facts.forgets or len(self._kept) > 2 * len(self._topics):
            self._begin(FIRST_PLACES)
        else:
            state = self._topics["state"]
            state[state != _LEARNT] = _WANTED
        return True

    def answer(self) -> bool:
        """Answer the kernel's request for a message; False if the message is left to Python."""
        names = self._names
        if names.asks & _ASKS_TOPICS:
            self._name(self._wants[: names.wanted].tolist())
        return not names.asks & _ASKS_ROOM or self._make_room()

    def _name(self, places: list[int]) -> None:
        topics = self._topics
        for index in places:
            name, is_learnt = self._facts.topic(topics["id"][index].tobytes())
            if name is None:
                topics["text"][index], topics["size"][index], topics["state"][index] = 0, 0, _UNKNOWN
            else:
                topics["text"][index], topics["size"][index] = address_of(name, self._kept), len(name)
                topics["state"][index] = _LEARNT if is_learnt else _GIVEN

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
