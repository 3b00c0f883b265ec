"""A connection in step, whose state the kernel takes over and gives back (`engine.handover`)."""

from __future__ import annotations

import msgspec

from kafkasniff.kafka.connection.dialogue import Turn
from kafkasniff.kafka.connection.exchange import Pending
from kafkasniff.kafka.connection.framing import Framer, Piece
from kafkasniff.kafka.connection.recognition import Recognition
from kafkasniff.kafka.messages.message import Decoded

__all__ = ["InStepConnection", "InTurn"]


class InTurn(msgspec.Struct, frozen=True):
    """The state of a connection whose frames are in step and whose responses arrive in order."""

    turn: Turn
    waiting: list[Pending]
    """Requests without a response, oldest first; then those that expect none."""
    most: int
    """Highest number of outstanding requests so far."""
    pieces: tuple[Piece, Piece]
    """Per stream."""
    place: tuple[int, int, int]
    """Order, time_ns and packet of the last frame."""
    loss: int = 0
    """`Dialogue.loss`, which does not change."""
    opened: bool = True
    """A request other than a greeting was answered."""


class InStepConnection(Recognition):
    """A connection that the kernel may continue."""

    __slots__ = ()

    def is_plain(self) -> bool:
        """Whether both streams consist only of frames, which only have to be paired in order."""
        one, other = self._streams
        return (
            self.verdict == "kafka"
            and one.framer is not None
            and other.framer is not None
            and one.framer.is_plain
            and other.framer.is_plain
            and not (one.hole or other.hole)
            and self._dialogue.is_plain()
        )

    def begin_in_step(self, client: int) -> None:
        """The kernel has it from its SYN on, and the first frame of the client's stream is a request."""
        self.verdict = "kafka"
        self._log.client = client
        for stream in self._streams:
            stream.from_start = True
        self._boundaries.without_prologue(client)
        self._begin_framer(client)
        self._boundaries.begin(1 - client)
        self._compare_streams()

    def greeted(self, request: Pending, response: Decoded, time_ns: int) -> None:
        """A greeting was answered while the kernel has the connection."""
        dialogue = self._dialogue
        if dialogue.opening is not None and not dialogue.opening.answered(request, response.body, time_ns):
            dialogue.opening = None

    def _begin_framer(self, direction: int) -> Framer:
        """A stream that is captured from its first byte has bytes, in a connection that is Kafka."""
        self._boundaries.release(direction)
        framer = Framer(direction, self._options.max_frame)
        stream = self._streams[direction]
        stream.begin_step(framer)
        stream.began = True
        return framer

    def hand_over(self) -> InTurn:
        """The part of the state of a connection that `is_plain` which changes with each frame."""
        one, other = (stream.framer for stream in self._streams)
        assert one is not None
        assert other is not None
        waiting, most = self._dialogue.ledger.hand_over()
        log = self._log
        return InTurn(
            self._dialogue.hand_over(),
            waiting,
            most,
            (one.hand_over(), other.hand_over()),
            (log.order, log.time_ns, log.packet),
            self._dialogue.loss,
        )

    def take_back(
        self,
        state: InTurn,
        seen: tuple[int, int] = (0, 0),
        framed: tuple[int, int] = (0, 0),
        retransmits: int = 0,
        holes: tuple[bool, bool] = (False, False),
    ) -> None:
        """Continue with the state that was handed over, as the kernel changed it.

        Per stream: `seen`, `framed`: bytes seen, and cut into frames, since; `holes`: segments of it are held back.
        """
        for direction, stream in enumerate(self._streams):
            if stream.framer is None and seen[direction]:
                self._begin_framer(direction)
            if stream.framer is not None:
                stream.framer.take_back(state.pieces[direction])
            stream.seen += seen[direction]
            stream.framed += framed[direction]
        self.bytes_seen += sum(seen)
        self._dialogue.take_back(state.turn)
        if state.opened:
            self._dialogue.opening = None
        self._dialogue.ledger.take_back(state.waiting, state.most)
        self._log.at(*state.place)
        self.retransmits += retransmits
        if any(holes):
            for stream, hole in zip(self._streams, holes, strict=True):
                stream.hole = hole
            self._compare_streams()
