"""The visible bytes of a connection's streams, and their positions in a written capture.

Packets are first written with blank payloads. The connection is read as usual; whenever the meaning of some bytes of a
stream becomes clear, the visible ones are copied to every packet that has them. So a byte that was not understood stays
blank, and retransmitted packets get the same bytes as the first one, whatever they held.

Bytes are located by their position in the stream, that is by sequence numbers. Frames are searched where the previous
one ended, by their content: even a wrong match would show nothing that may not be shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kafkasniff.kafka.connection.connection import KafkaConnection
from kafkasniff.kafka.connection.events import Event, MessageEvent, TokenEvent
from kafkasniff.kafka.connection.framing import Frame
from kafkasniff.kafka.connection.proxy import MAX_PROLOGUE, proxy_prologue
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.kafka.connection.sasl import SCRAM_ANSWERS
from kafkasniff.kafka.messages.other_protocols import is_gssapi_token
from kafkasniff.redact.copied import BLANK
from kafkasniff.redact.message import Blanker
from kafkasniff.redact.stream_bytes import BlankedStream, PayloadPlace
from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.segments import Closed, Gap, Item, Late, Run, Stretch
from kafkasniff.tls.gate import TlsGate
from kafkasniff.tls.keylog import KeyLog

__all__ = ["MAX_CUT", "MAX_UNCUT", "BlankedConnection"]

MAX_CUT: Final = 32_768
"""Maximum number of frames of a stream that are cut but not yet reported: twice the responses that may wait for their
requests.
"""

MAX_UNCUT: Final = 32 << 20
"""Maximum number of bytes of a stream outside of frames, besides those of the longest acceptable frame: those being
searched (`kafka.connection.segmented_bytes.MAX_SEARCH`) and those waiting for the verdict
(`kafka.connection.trial.MAX_TRIAL_BYTES`).
"""

_SCRAM_REQUESTS: Final = (b"n,", b"y,", b"p=", b"c=")
_PROXY_V1: Final = b"PROXY "
_PROXY_HEADS: Final = {0x11: 28, 0x21: 52}
"""Bytes of a binary PROXY header up to the end of its addresses, by family."""

_Patch = Callable[[PayloadPlace, int, bytes], None]
"""Takes a packet, an offset in its payload, and the bytes there."""


class _Tapped(KafkaConnection):
    """A connection that reports each frame when it is cut, before it is decoded."""

    __slots__ = ("_tap",)

    def __init__(self, options: ConnectionOptions, forced: int | None, tap: Callable[[Frame], None]) -> None:
        super().__init__(options, forced)
        self._tap = tap

    def _take_frame(self, frame: Frame) -> None:
        self._tap(frame)
        super()._take_frame(frame)


class BlankedConnection:
    """One connection whose packets are written."""

    def __init__(
        self, tcp: TcpConnection, options: ConnectionOptions, forced: int | None, blanker: Blanker, patch: _Patch
    ) -> None:
        self._tcp = tcp
        self._blanker = blanker
        self._patch = patch
        self._kafka = _Tapped(options, forced, self._frame)
        self._most = options.max_frame + MAX_UNCUT
        self._gate: TlsGate | None = TlsGate()
        self._keys = KeyLog()
        """None are needed: encrypted data stays so."""
        self._encrypted = False
        self._directions = (BlankedStream(), BlankedStream())
        self._opened = [False, False]
        """A frame of the stream was found."""

    @property
    def buffered(self) -> int:
        """Bytes of its streams that are buffered."""
        return sum(direction.uncut.size for direction in self._directions)

    def position(self, direction: int, seq: int) -> int:
        """Position in a stream of the byte with this sequence number, relative to the bytes delivered so far."""
        return self._tcp.streams[direction].position(seq)

    def written(self, direction: int, place: PayloadPlace) -> None:
        """A packet with payload was written, blank."""
        stream = self._directions[direction]
        stream.add_place(place)
        if stream.at is not None and place.position < stream.at:
            for position, data in stream.repeated.within(place.position, place.end):
                self._show_in(place, position, data)

    def give_up(self) -> None:
        """Buffer nothing of it; bytes that are unknown so far stay blank."""
        for stream in self._directions:
            stream.uncut.clear()

    def feed(self, items: Sequence[Item]) -> bool:
        """Take the connection's items; returns whether it turned out to be TLS, which is not changed."""
        before = self._encrypted
        for item in items:
            if isinstance(item, Stretch):
                for direction, run in enumerate(item.runs):
                    if run is not None:
                        self._deliver(direction, run)
            elif isinstance(item, Gap):
                stream = self._stream(item.direction)
                assert stream.at is not None
                stream.at += item.size
            if not self._encrypted and not isinstance(item, Late):  # which stays blank
                self._read(item)
            if isinstance(item, Closed):
                self._cut_off()
                self.give_up()
        for direction, stream in enumerate(self._directions):
            self._let_go(direction, stream)
        return self._encrypted and not before

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _stream(self, direction: int) -> BlankedStream:
        stream = self._directions[direction]
        if stream.at is None:
            stream.at = stream.begin = self._tcp.streams[direction].begin
        return stream

    def _deliver(self, direction: int, run: Run) -> None:
        stream = self._stream(direction)
        assert stream.at is not None
        buffer, first, last = run.buffer, run.first, run.last
        data = b"".join(buffer[run.offset[i] : run.offset[i] + run.length[i]] for i in range(first, last))
        if self._encrypted:
            self._show(direction, stream.at, data)
        elif self._kafka.verdict != "not-kafka":
            stream.uncut.add(stream.at, data, self._most)
        stream.at += len(data)

    def _read(self, item: Item) -> None:
        clear: Sequence[Item] = (item,)
        if self._gate is not None:
            clear = self._gate.feed([item], self._keys)
            if self._gate.encrypted:
                self._encrypted = True
                for direction, stream in enumerate(self._directions):
                    while stream.uncut.pieces:
                        self._show(direction, *stream.uncut.drop())
                return
            if self._gate.plain:
                self._gate = None
        for event in self._kafka.feed(clear):
            self._event(event)

    def _let_go(self, direction: int, stream: BlankedStream) -> None:
        """Forget packets whose bytes cannot be identified any further."""
        if self._kafka.verdict == "not-kafka":
            stream.uncut.clear()
            stream.cut.clear()
        if direction == self._kafka.client or len(stream.cut) > MAX_CUT:
            # Requests are reported when they are cut, if they are messages at all.
            stream.cut.clear()
        if stream.at is None:
            return
        low = stream.uncut.pieces[0][0] if stream.uncut.pieces else stream.at
        if stream.cut:
            low = min(low, next(iter(stream.cut.values()))[0])
        stream.drop_places(low)

    # -- frames -------------------------------------------------------------------------------------------------------

    def _frame(self, frame: Frame) -> None:
        """A frame was cut: its length may be shown; the resulting event decides about the rest."""
        stream = self._directions[frame.direction]
        head = frame.size.to_bytes(4, "big", signed=True)
        position = self._find(stream, head + frame.data[frame.start : frame.end], frame.direction)
        if position is None:
            return
        self._show(frame.direction, position, head)
        stream.cut.setdefault(_key(frame), deque()).append(position)

    def _find(self, stream: BlankedStream, content: bytes, direction: int) -> int | None:
        """Take the next frame out of the delivered bytes: its position."""
        opened, self._opened[direction] = self._opened[direction], True
        uncut = stream.uncut
        while uncut.pieces:
            position, data = uncut.pieces[0]
            at = 0 if data.startswith(content) else data.find(content)
            if at < 0:
                if not any(content in other for _, other in uncut.pieces):
                    return None
                uncut.drop()
                continue
            if at and not opened and position == stream.begin:
                self._prologue(direction, position, bytes(data[: min(at, MAX_PROLOGUE)]), at)
            uncut.cut(at + len(content))
            return position + at
        return None

    def _cut_off(self) -> None:
        """The streams have ended: the length of incomplete frames is shown."""
        for direction, stream in enumerate(self._directions):
            size = self._kafka.pending_of[direction]
            if size and stream.uncut.pieces:
                position, data = stream.uncut.pieces[-1]
                if size <= len(data):
                    at = len(data) - size
                    self._show(direction, position + at, bytes(data[at : at + 4]))

    def _prologue(self, direction: int, position: int, head: bytes, size: int) -> None:
        """A PROXY header before a client's first frame: its addresses are shown."""
        found = proxy_prologue(head)
        if found is None or found[0] != size:
            return
        if not head.startswith(_PROXY_V1):
            shown = min(_PROXY_HEADS.get(head[13], 16), size)
            head = head[:shown] + bytes(size - shown)
        self._show(direction, position, head)

    def _event(self, event: Event) -> None:
        if not isinstance(event, MessageEvent | TokenEvent):
            return
        frame = event.frame
        stream = self._directions[frame.direction]
        key = _key(frame)
        positions = stream.cut.get(key)
        if positions is None:
            return
        position = positions.popleft()
        if not positions:
            del stream.cut[key]
        # Frames are reported in order: unreported ones before it are not messages.
        while stream.cut and (first := next(iter(stream.cut.items())))[1][0] < position:
            first[1].popleft()
            if not first[1]:
                del stream.cut[first[0]]
        if isinstance(event, TokenEvent):
            shown = self._token(event)
        else:
            cut = frame.end - frame.start != frame.size
            shown = bytes(
                self._blanker.message(
                    frame.data, frame.start, frame.end, event.read(), request=event.is_request, cut=cut
                )
            )
        if shown:
            self._show(frame.direction, position + 4, shown)

    def _token(self, event: TokenEvent) -> bytes:
        """A raw token: the part that identifies it as one is shown."""
        frame = event.frame
        token = frame.data[frame.start : frame.end]
        if self._blanker.secrets:
            return token
        size = 0
        if is_gssapi_token(token, 0, len(token)):
            size = 24  # mark, length and mechanism (RFC 2743, 3.1)
        elif (event.mechanism or "").startswith("SCRAM-"):
            size = 2 * token.startswith(_SCRAM_REQUESTS if event.is_request else SCRAM_ANSWERS)
        return token[:size].ljust(len(token), bytes([BLANK]))

    # -- packets ------------------------------------------------------------------------------------------------------

    def _show(self, direction: int, position: int, data: bytes) -> None:
        """These bytes of a stream may be shown."""
        stream = self._directions[direction]
        for place in stream.places_within(position, position + len(data)):
            self._show_in(place, position, data)
        stream.repeated.add(position, data)

    def _show_in(self, place: PayloadPlace, position: int, data: bytes) -> None:
        first, last = max(place.position, position), min(place.end, position + len(data))
        if first < last:
            self._patch(place, first - place.position, data[first - position : last - position])


def _key(frame: Frame) -> tuple[int, int, int, int]:
    """The key that identifies a frame: a frame that waited may be another object when it is reported."""
    return frame.order, frame.first_packet, frame.first_time, frame.size
