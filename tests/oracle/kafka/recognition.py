"""Recognizing Kafka: the verdict on a connection, and where the frames of its streams begin.

While a boundary or the verdict is unknown, the streams are examined segment by segment in capture order: a search goes
through the bytes of a stream, and a stream with a gap before its first whole frame is cut provisionally.
`connection.py` passes the items of the connection on.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from kafkasniff.kafka.connection.events import MAX_FRAME, Detail, Frame
from kafkasniff.kafka.messages.plausibility import MAX_SIZE, is_gssapi_token, name_answer
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.tls.items import Segment, TcpProblem
from tests.oracle.kafka.boundaries import Boundaries
from tests.oracle.kafka.dialogue import Dialogue
from tests.oracle.kafka.event_log import EventLog
from tests.oracle.kafka.framer import Framer
from tests.oracle.kafka.search import Searcher
from tests.oracle.kafka.stream_progress import StreamProgress
from tests.oracle.kafka.trial import Trial

Verdict = Literal["undecided", "kafka", "not-kafka"]

MAX_AGAIN: Final = 64 << 10
"""Bytes of the broker's stream that are searched again each time when requests arrive that were held back."""


class ConnectionOptions(msgspec.Struct, frozen=True):
    """Options common to all connections of a run."""

    detail: Detail = msgspec.field(default_factory=lambda: Detail(DecodeOptions()))
    max_frame: int = MAX_FRAME
    every_end: bool = True
    """Report the end of every exchange; False: not if it ends with its response, which implies it."""


class _Entered(msgspec.Struct, frozen=True):
    """The result of a search was processed: the stream is in step again, unless it fell out once more."""

    undecided: bool
    """The verdict came from it."""


_Work = list[Segment | _Entered]
"""Work to do for a stream, the last first. A list instead of recursion: a stream may fall out of step as often as its
bytes allow."""


class Recognition:
    """The state of one connection, as far as it is recognized."""

    def __init__(self, options: ConnectionOptions, forced_client: int | None = None) -> None:
        self._options = options
        self._forced = forced_client is not None
        self._log = EventLog(forced_client)
        self._dialogue = Dialogue(self._log, options.detail, every_end=options.every_end)
        self.verdict: Verdict = "undecided"
        self._streams = StreamProgress(), StreamProgress()
        self._oversized = 0
        """Size of a request above the limit, whose stream was in step until then."""
        self._boundaries = Boundaries(self._log, self._dialogue, forced=self._forced, max_frame=options.max_frame)
        self._closed = False
        self.bytes_seen = 0
        """Bytes of both streams."""
        self.retransmits = 0
        """Retransmitted segments of both streams."""
        self.bytes_lost = 0
        """Bytes of both streams missing from the capture."""

    def both(self, name: str) -> list[int]:
        """A number of both streams."""
        return [getattr(stream, name) for stream in self._streams]

    @property
    def client(self) -> int | None:
        """Direction of the client's stream, if known: by the verdict, the SYN or a forced port."""
        return self._log.client

    def _take_frame(self, frame: Frame) -> None:
        self._streams[frame.direction].framed += 4 + frame.end - frame.start
        self._dialogue.frame(frame)

    def _compare_streams(self) -> None:
        """Record whose frames may be present and not cut yet, because of a hole or a search."""
        client = self._log.client
        if client is None:
            return
        requests, dialogue = self._streams[client], self._dialogue
        if requests.is_late:
            dialogue.requests = "behind"
        elif requests.began:
            dialogue.requests = "here"
        dialogue.ledger.responses_behind = self._streams[1 - client].is_late

    def _tcp_problem(self, item: TcpProblem) -> None:
        if self.verdict == "undecided":
            self._log.hold(item)
        elif self.verdict == "kafka":
            self._log.report(item)

    def _is_whole(self) -> bool:
        """Whether all of both streams was seen so far."""
        return not self._dialogue.gapped and all(one.from_start and not one.hole for one in self._streams)

    # -- cutting ----------------------------------------------------------------------------------------------------

    def _work_off(self, direction: int, work: _Work) -> None:
        """Cut the segments of a stream; if it falls out of step, search the rest, segment by segment."""
        while work:
            todo = work.pop()
            if isinstance(todo, _Entered):
                self._compare_streams()
                if todo.undecided:
                    self._settle(1 - direction)
                else:
                    self._repeat_search(direction)
                self._seek(direction, work)
                continue
            skip = 0
            stream = self._streams[direction]
            framer = stream.framer
            if framer is not None:
                for frame in framer.cut(todo):
                    self._take_frame(frame)
                if framer.lost_at is None:
                    continue
                stream.leave()
                if direction == self._log.client:
                    self._dialogue.lose_requests()
                self._report_impossible(direction, framer.size)
                skip = framer.lost_at
                if skip == len(todo.data):
                    continue
            self._boundaries.searcher(direction).add(todo, skip)
            self._seek(direction, work)

    def _report_impossible(self, direction: int, size: int) -> None:
        """Report an impossible length prefix, and what it may be instead."""
        dialogue = self._dialogue
        opening, dialogue.opening = dialogue.opening, None
        if direction != self._log.client and opening is not None and not opening.heard and self._is_whole():
            answer = name_answer(size)
            if answer is not None:
                self._log.problem("answer-not-kafka", answer, direction)
                return
        announced = ""
        if self._options.max_frame < size < MAX_SIZE:
            announced = f": {size:,} bytes, and at most {self._options.max_frame:,} are read"
            if direction == self._log.client and self._is_whole():
                self._oversized = size
        detail = f"a frame of impossible size{announced}; its stream is searched for the next frame"
        self._log.problem("frame-size", detail, direction)

    # -- trials: streams with gaps before their first whole frame -------------------------------------------

    def _try(self, direction: int, segment: Segment) -> None:
        trial = self._streams[direction].trial
        assert trial is not None
        trial.frames += trial.framer.cut(segment)
        if trial.framer.lost_at is not None:
            self._drop_trial(direction)
            self._boundaries.searcher(direction).add(segment)
            self._search(direction)
            return
        self._judge_trial(direction)

    def _judge_trial(self, direction: int) -> None:
        trial = self._streams[direction].trial
        assert trial is not None
        in_step = self._boundaries.judge_trial(trial, direction, kafka=self.verdict == "kafka")
        if in_step is None and (self._match_trials() or not trial.full):
            return
        if in_step:
            self._end_trial(direction, trial)
        else:
            self._drop_trial(direction)

    def _drop_trial(self, direction: int) -> None:
        """The stream of `direction` is not in step as its trial says: messages may begin in its gaps."""
        self._streams[direction].leave()
        self._lose_in_search(direction, self._log.time_ns)

    def _lose_in_search(self, direction: int, resumed_ns: int) -> None:
        """Bytes are missing, up to a packet of this time, of a stream whose frames are unknown."""
        if direction != self._log.client:
            self._dialogue.lose_responses(resumed_ns, has_head=False)

    def _match_trials(self) -> bool:
        """Recognize a connection as Kafka if a truncated request is followed by a response with its id."""
        if self.verdict != "undecided":
            return False
        client = self._log.client
        for direction, stream in enumerate(self._streams):
            trial = stream.trial
            if trial is None or client not in (None, direction):
                continue
            other = self._streams[1 - direction].trial
            asked = trial.first_id(of_request=True)
            answered = self._boundaries.first_id(1 - direction) if other is None else other.first_id(of_request=False)
            if (
                asked is not None
                and answered is not None
                and asked[0] == answered[0]
                and asked[1] <= answered[1]
                and trial.may_be_requests(known=client is not None)
            ):
                self._end_trial(direction, trial)
                return True
        return False

    def _end_trial(self, direction: int, trial: Trial) -> None:
        """The stream of `direction` is in step as its trial says."""
        stream = self._streams[direction]
        stream.leave()
        if self.verdict == "undecided":
            self._judge_kafka(direction if self._log.client is None else self._log.client)
        undecided = self._streams[1 - direction].framer is None
        stream.framer = trial.framer
        for frame in trial.frames:
            self._take_frame(frame)
        self._compare_streams()
        if undecided:
            self._settle(1 - direction)

    def _settle(self, direction: int) -> None:
        """The verdict is known: process the segments held back of the other stream."""
        if self._streams[direction].trial is not None:
            self._judge_trial(direction)
        else:
            self._search(direction)

    # -- searching --------------------------------------------------------------------------------------------------

    def _search(self, direction: int) -> None:
        """Check whether the bytes of a stream that is not in step reveal its frame boundaries, and its role."""
        work: _Work = []
        self._seek(direction, work)
        self._work_off(direction, work)

    def _seek(self, direction: int, work: _Work) -> None:
        """The same, once; what it finds is appended to the work."""
        if self._streams[direction].framer is not None or self.verdict == "not-kafka":
            return
        boundaries = self._boundaries
        searcher = boundaries.searcher(direction)
        if not len(searcher) or not self._without_prologue(direction):
            return
        start = boundaries.find(direction, kafka=self.verdict == "kafka")
        if start is not None:
            self._enter_step(direction, searcher, start, work)
            return
        if self.verdict == "undecided":
            exchange = boundaries.find_exchange()
            if exchange is not None:
                # Then the stream of `direction` is searched again, or is in step.
                self._enter(*exchange)
                return
            if self._match_trials():
                return
            self._judge_not_kafka(boundaries.reason_against(direction, peer_held=self._streams[1 - direction].hole))
        boundaries.forget(direction)

    def _repeat_search(self, direction: int, most: int = MAX_AGAIN) -> None:
        """Search the broker's stream again if the client's stream, of `direction`, has progressed.

        After a gap, bytes of the broker may arrive before the requests that they answer.
        """
        broker = 1 - direction
        if (
            self.verdict == "kafka"
            and direction == self._log.client
            and self._dialogue.gapped
            and self._streams[broker].framer is None
            and self._streams[broker].trial is None
            and 0 < self._boundaries.collected(broker) <= most
        ):
            self._boundaries.restart_responses(broker)
            self._search(broker)

    def _without_prologue(self, direction: int) -> bool:
        """Remove a PROXY protocol header from the client's stream; False if nothing follows it."""
        prologue = self._boundaries.take_prologue(direction)
        if prologue is None:
            return False
        length, detail = prologue
        if length:
            log = self._log
            self._tcp_problem(
                TcpProblem(log.order, direction, "proxy-protocol", detail, log.packet, log.time_ns, length)
            )
        return len(self._boundaries.searcher(direction)) > 0

    def _enter_step(self, direction: int, searcher: Searcher, start: int, work: _Work) -> None:
        skipped = start + searcher.dropped
        undecided = self.verdict == "undecided"
        if undecided:
            self._judge_kafka(self._boundaries.client_by(direction))
            if direction == self._log.client:
                self._boundaries.restart_responses(1 - direction, searcher.order_at(start))
        if skipped:
            detail = f"{skipped} bytes were skipped before the first recognized frame"
            self._log.problem("stream-resync", detail, direction, skipped)
        segments = searcher.take(start)
        data = b"".join(segment.data for segment in segments)
        if undecided and is_gssapi_token(data, 4, len(data)):
            self._dialogue.begin_raw_sasl()
        self._boundaries.release(direction)
        self._streams[direction].framer = Framer(direction, self._options.max_frame)
        work += [_Entered(undecided), *reversed(segments)]

    def _enter(self, direction: int, start: int) -> None:
        """The stream of `direction` is in step from this position on."""
        work: _Work = []
        self._enter_step(direction, self._boundaries.searcher(direction), start, work)
        self._work_off(direction, work)

    # -- the verdict ------------------------------------------------------------------------------------------------

    def _judge_not_kafka(self, reason: str | None, kind: str = "not-kafka", *, likely: bool = False) -> None:
        """The connection is not Kafka if there is a reason; then no more of it is read or kept."""
        if reason is None:
            return
        self.verdict = "not-kafka"
        self._log.held.clear()
        for direction, stream in enumerate(self._streams):
            self._boundaries.release(direction)
            stream.trial = None
        self._log.verdict(False, reason, kind, likely=likely)

    def _judge_kafka(self, client: int) -> None:
        self.verdict = "kafka"
        self._log.client = client
        self._compare_streams()
        self._log.verdict(True, "")
        self._log.report_held()
