"""A TCP connection as Kafka: the verdict, frame boundaries, and exchanges.

Takes the items of a reassembled connection (streams.py) and yields events in capture order, segment by segment. The
events depend only on the items of this connection, not on their batching.

The verdict. Kafka has no magic number. A connection is Kafka if one request decodes to its last byte, or if consecutive
frames plausibly are requests (or responses, if only the broker's side was captured). With a forced port the roles are
given, and one plausible frame suffices.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkasniff.kafka.connection.events import Event
from kafkasniff.kafka.messages.plausibility import too_large
from kafkasniff.model import NO_TIME
from kafkasniff.tls.items import (
    Closed,
    Gap,
    Hole,
    Item,
    Late,
    Rejected,
    Retransmit,
    Segment,
    Started,
    TcpProblem,
    Wrapped,
)
from tests.oracle.kafka.framer import Framer
from tests.oracle.kafka.recognition import Recognition
from tests.oracle.kafka.segmented_bytes import MAX_SEARCH


class KafkaConnection(Recognition):
    """The state of one connection."""

    @property
    def bytes_decoded(self) -> int:
        """Bytes of both streams that became messages or tokens."""
        (one, other), unread = self._streams, self._dialogue.unread_of
        return one.framed + other.framed - unread[0] - unread[1]

    def decoded_of(self, direction: int) -> int:
        """Bytes of a stream that became messages or tokens, if known."""
        return self._streams[direction].framed - self._dialogue.unread_of[direction]

    def feed(self, items: Sequence[Item]) -> list[Event]:
        """Process items of the connection; returns the resulting events, in capture order."""
        for item in items:
            if isinstance(item, Segment):
                self._segment(item)
            elif isinstance(item, Retransmit):
                self._dialogue.retransmits += 1
                self.retransmits += 1
            elif isinstance(item, Started):
                self._started(item)
            elif isinstance(item, Gap):
                self._gap(item)
            elif isinstance(item, Late):
                self._late(item)
            elif isinstance(item, Hole):
                self._streams[item.direction].hole = item.open
                self._compare_streams()
                if not item.open:
                    self._repeat_search(item.direction)
            elif isinstance(item, TcpProblem):
                self._tcp_problem(item)
            elif isinstance(item, Wrapped):
                self.bytes_seen += item.size
                self._streams[item.direction].seen += item.size
            elif isinstance(item, Rejected):
                self._rejected(item)
            else:
                self._close(item)
                self._release()
        return self._log.take()

    # -- items ------------------------------------------------------------------------------------------------------

    def _started(self, item: Started) -> None:
        if not self._forced and self._log.client is None and self.verdict == "undecided":
            self._log.client = item.direction if item.client else 1 - item.direction
        stream = self._streams[item.direction]
        if stream.framer is None:
            self._boundaries.begin(item.direction)
            stream.from_start = not stream.began

    def _segment(self, segment: Segment) -> None:
        direction = segment.direction
        stream = self._streams[direction]
        self.bytes_seen += len(segment.data)
        stream.seen += len(segment.data)
        if self.verdict == "not-kafka":
            return
        log, framed = self._log, self.both("framed")
        before = log.order, log.time_ns, log.packet
        was_kafka = self.verdict == "kafka"
        log.at(segment.order, segment.released, segment.packet)
        stream.began = True
        if stream.framer is not None:
            self._work_off(direction, [segment])
        elif stream.trial is not None:
            self._try(direction, segment)
        else:
            self._boundaries.searcher(direction).add(segment)
            self._search(direction)
        self._compare_streams()
        if was_kafka and stream.framer is not None and self.both("framed") == framed:
            # A piece of a frame is not an event, however the packets are batched.
            log.order, log.time_ns, log.packet = before

    def _gap(self, item: Gap) -> None:
        self.bytes_lost += item.size
        stream = self._streams[item.direction]
        stream.lost += item.size
        self._dialogue.gapped = True
        if self.verdict == "not-kafka":
            return
        direction = item.direction
        self._log.at(item.order, item.time_ns, item.packet)
        if item.unheard:
            self._one_direction(item)
            return
        if not item.snapped:
            detail = f"{item.size} bytes of the stream are not in the capture"
            place = item.packet, item.time_ns
            self._tcp_problem(TcpProblem(item.order, direction, "tcp-gap", detail, *place, item.size))
        if stream.framer is None:
            self._gap_in_search(item)
            return
        in_step, frame = stream.framer.gap(item)
        if frame is not None:
            self._take_frame(frame)
        if not in_step:
            stream.leave()
            self._boundaries.release(direction)
            if direction == self._log.client:
                self._dialogue.lose_requests()
            else:
                self._dialogue.lose_responses(item.resumed_ns, has_head=True)
            self._compare_streams()

    def _one_direction(self, item: Gap) -> None:
        """Nothing of one stream was captured, but the other one's acknowledgements show that it had data."""
        client = self._log.client
        if client is None:
            return
        if item.direction == client:
            captured, missing, by = "broker → client", "requests", "broker"
        else:
            captured, missing, by = "client → broker", "responses", "client"
            self._dialogue.one_sided = True
        detail = f"only {captured} was captured: the {by} acknowledged {item.size:,} bytes of {missing}"
        place = item.packet, item.time_ns
        self._tcp_problem(TcpProblem(item.order, item.direction, "one-direction", detail, *place, item.size))

    def _gap_in_search(self, item: Gap) -> None:
        direction = item.direction
        stream = self._streams[direction]
        trial = stream.trial
        if trial is None:
            trial = self._boundaries.begin_trial(item, kafka=self.verdict == "kafka")
        self._boundaries.release(direction)
        if trial is None:
            self._lose_in_search(direction, item.resumed_ns)
            return
        in_step, frame = trial.framer.gap(item)
        if not in_step:
            # Otherwise, if the trial is right, no message begins in the gap.
            self._lose_in_search(direction, item.resumed_ns)
        if frame is not None:
            trial.frames.append(frame)
        stream.trial = trial
        self._judge_trial(direction)
        if not in_step:
            stream.leave()
        self._compare_streams()

    def _late(self, item: Late) -> None:
        """Process whole frames that arrive after their gap was declared, if they certainly are messages."""
        direction, size = item.direction, len(item.data)
        self.bytes_seen += size
        self.bytes_lost -= size
        self._streams[direction].seen += size
        self._streams[direction].lost -= size
        if self.verdict != "kafka":
            return
        framer = Framer(direction, self._options.max_frame)
        frames = framer.cut(Segment(item.order, direction, item.data, item.packet, item.time_ns, item.time_ns))
        if framer.lost_at is None and framer.at_boundary and self._dialogue.are_messages(frames):
            for frame in frames:
                self._take_frame(frame)

    def _rejected(self, item: Rejected) -> None:
        if self.verdict == "undecided":
            self._log.at(item.order, item.time_ns, item.packet)
            self._judge_not_kafka(item.detail, item.kind, likely=item.likely)
        elif self.verdict == "kafka":
            place = item.packet, item.time_ns
            self._tcp_problem(TcpProblem(item.order, item.direction, item.kind, item.detail, *place))

    # -- the end ----------------------------------------------------------------------------------------------------

    def _close(self, item: Closed) -> None:
        if self._closed:
            return
        self._closed = True
        self._log.at(item.order, item.time_ns, item.packet)
        if self.verdict == "undecided" and self._log.client is not None:
            searcher = self._boundaries.searcher(self._log.client)
            if searcher.began:
                # The connection ended after a request that is only plausible: better evidence will not follow.
                self._enter(self._log.client, 0)
        if self.verdict == "undecided" and self._log.client is not None:
            held = self._streams[self._log.client].hole
            self._judge_not_kafka(self._boundaries.reason_against(1 - self._log.client, peer_held=held, over=True))
        if self.verdict != "kafka":
            return
        assert self._log.client is not None
        self._repeat_search(self._log.client, MAX_SEARCH)
        broker = 1 - self._log.client
        responses = self._streams[broker]
        if responses.framer is None and responses.trial is None and self._dialogue.ids_rise:
            # Better evidence will not follow: the id is that of a request, and the length ends with the stream.
            start = self._boundaries.searcher(broker).find_last_response()
            if start is not None:
                self._enter(broker, start)
        for direction, stream in enumerate(self._streams):
            framer = stream.framer
            pending = framer.pending if framer is not None else len(self._boundaries.searcher(direction))
            if framer is not None:
                stream.pending = pending
            if pending:
                what = "of an incomplete frame" if framer is not None else "in which no frame was found"
                self._log.problem("stream-cut", f"the stream ended with {pending} bytes {what}", direction, pending)
        rejected = self._rejected_by_broker(item)
        by_broker = self._log.client is not None and item.by == 1 - self._log.client
        self._dialogue.close(item.reason, item.by_ns if by_broker else NO_TIME)
        if rejected is not None:
            assert self._log.client is not None
            self._log.problem("connection-rejected", rejected, 1 - self._log.client)

    def _release(self) -> None:
        """Keep no bytes of an ended connection, which is remembered for a while."""
        for direction, stream in enumerate(self._streams):
            stream.leave()
            self._boundaries.release(direction)

    def _rejected_by_broker(self, item: Closed) -> str | None:
        """Why the broker closed the connection, as far as the messages reveal it, else None."""
        client, dialogue = self._log.client, self._dialogue
        if client is None or item.reason not in ("fin", "rst") or not self._is_whole():
            return None
        opening = dialogue.opening
        if item.by != 1 - client:
            return None if opening is None or len(dialogue.ledger) else opening.why_left()
        requests, responses = self._streams[client].framer, self._streams[1 - client].framer
        announced = self._oversized if requests is None else requests.announced
        if announced is not None and (large := too_large(announced, opened=opening is None)) is not None:
            return large
        answering = self._streams[1 - client].began if responses is None else responses.pending > 0
        if opening is None or requests is None or requests.pending or answering:
            return None
        return opening.why_left() or opening.why_closed(dialogue.ledger.first, item.by_ns)
