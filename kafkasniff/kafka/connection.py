"""One connection as Kafka: whether it is, where its frames are, what answers what.

Takes the items of a reassembled connection (streams.py) and yields events in capture order. What it yields depends on
the items of this connection only, not on how they were batched: while a boundary or the verdict is not known, the
streams are looked at segment by segment in capture order; once both streams are in step, whole stretches are cut at
once, which gives the same frames.

The verdict. Kafka has no magic number. A connection is Kafka when one request decodes to its last byte, or when
frames follow each other that plausibly are requests (or, where only the broker's side was captured, responses). With a
forced port the roles are given, and one plausible frame will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from struct import Struct
from typing import Final, Literal

import msgspec

from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.dialogue import Dialogue
from kafkasniff.kafka.events import Event, EventLog
from kafkasniff.kafka.framing import MAX_FRAME, Frame, Framer
from kafkasniff.kafka.message import request_header
from kafkasniff.kafka.other_protocols import is_gssapi_token, name_protocol
from kafkasniff.kafka.proxy import MAX_PROLOGUE, proxy_prologue
from kafkasniff.kafka.search import MIN_CHAIN, RESPONSE_CHAIN, Searcher
from kafkasniff.kafka.trial import Trial
from kafkasniff.streams import Closed, Gap, Item, Retransmit, Run, Started, Stretch, TcpProblem

__all__ = ["ConnectionOptions", "KafkaConnection"]

_INT = Struct(">i")
_SHORTEST_HEADER: Final = 12
"""Bytes of a frame up to the correlation id of a request."""

Verdict = Literal["undecided", "kafka", "not-kafka"]


class ConnectionOptions(msgspec.Struct, frozen=True):
    """What all connections of a run have in common."""

    decode: DecodeOptions = DecodeOptions()
    max_frame: int = MAX_FRAME
    every_end: bool = True
    """Tell the end of every exchange; False: not of those that end with their response, which tells it anyway."""


class KafkaConnection:
    """The state of one connection."""

    __slots__ = (
        "_closed",
        "_dialogue",
        "_forced",
        "_framers",
        "_held_problems",
        "_log",
        "_options",
        "_proxied",
        "_searchers",
        "_trials",
        "bytes_decoded",
        "bytes_lost",
        "bytes_of",
        "bytes_seen",
        "retransmits",
        "verdict",
    )

    def __init__(self, options: ConnectionOptions, forced_client: int | None = None) -> None:
        self._options = options
        self._forced = forced_client is not None
        self._log = EventLog(forced_client)
        self._dialogue = Dialogue(self._log, options.decode, every_end=options.every_end)
        self.verdict: Verdict = "undecided"
        # Per direction: a framer where the stream is in step, else a searcher with its bytes, or a trial.
        self._framers: list[Framer | None] = [None, None]
        self._searchers: list[Searcher | None] = [None, None]
        self._trials: list[Trial | None] = [None, None]
        self._proxied = [False, False]
        self._held_problems: list[TcpProblem] = []
        """Problems of an undecided connection: told if it is Kafka. Bounded by what the TCP side tells."""
        self._closed = False
        self.bytes_seen = 0
        """Bytes of both streams."""
        self.bytes_of = [0, 0]
        """Bytes of each stream."""
        self.retransmits = 0
        """Retransmitted segments of both streams."""
        self.bytes_decoded = 0
        """Bytes of both streams that became frames."""
        self.bytes_lost = 0
        """Bytes of both streams that the capture lacks."""

    @property
    def client(self) -> int | None:
        """Direction of the client's stream, as far as it is known: by the verdict, the SYN or a forced port."""
        return self._log.client

    def feed(self, items: Sequence[Item]) -> list[Event]:
        """Take what happened on the connection; returns what it means, in capture order."""
        for item in items:
            if isinstance(item, Stretch):
                self._stretch(item)
            elif isinstance(item, Retransmit):
                self._dialogue.retransmits += 1
                self.retransmits += 1
            elif isinstance(item, Started):
                self._started(item)
            elif isinstance(item, Gap):
                self._gap(item)
            elif isinstance(item, TcpProblem):
                self._tcp_problem(item)
            else:
                self._close(item)
        return self._log.take()

    # -- items ------------------------------------------------------------------------------------------------------

    def _searcher(self, direction: int) -> Searcher:
        """The searcher of a stream; made when there is something to search, which is a moment for most."""
        searcher = self._searchers[direction]
        if searcher is None:
            searcher = self._searchers[direction] = Searcher(aligned=False, max_size=self._options.max_frame)
        return searcher

    def _started(self, item: Started) -> None:
        if not self._forced and self._log.client is None and self.verdict == "undecided":
            self._log.client = item.direction if item.client else 1 - item.direction
        if self._framers[item.direction] is None and not self._searchers[item.direction]:
            self._searchers[item.direction] = Searcher(aligned=True, max_size=self._options.max_frame)

    def _stretch(self, item: Stretch) -> None:
        runs = item.runs
        for direction, run in enumerate(runs):
            if run is not None:
                size = run.end[run.last - 1] - run.end[run.first] + run.length[run.first]
                self.bytes_seen += size
                self.bytes_of[direction] += size
        if self.verdict == "not-kafka":
            return
        if self.verdict == "kafka" and all(
            run is None or framer is not None for run, framer in zip(runs, self._framers, strict=True)
        ):
            saved = [None if framer is None else framer.copy() for framer in self._framers]
            frames: list[Frame] = []
            in_step = True
            for run, framer in zip(runs, self._framers, strict=True):
                if run is not None and framer is not None:
                    frames += framer.cut(run, run.first, run.last)
                    in_step = in_step and framer.lost_at is None
            if in_step:
                if runs[0] is not None and runs[1] is not None:
                    frames.sort(key=itemgetter(0))
                for frame in frames:
                    self._take_frame(frame)
                return
            self._framers = saved
        segments = [
            (run.order[index], direction, run, index)
            for direction, run in enumerate(runs)
            if run is not None
            for index in range(run.first, run.last)
        ]
        segments.sort(key=itemgetter(0))
        for _, direction, run, index in segments:
            self._segment(direction, run, index)

    def _segment(self, direction: int, run: Run, index: int) -> None:
        """One segment, while the verdict or a boundary is not known."""
        if self.verdict == "not-kafka":
            return
        self._log.at(run.order[index], run.released[index], run.packet[index])
        framer = self._framers[direction]
        if framer is not None:
            self._cut(direction, framer, run, index, index + 1)
        elif self._trials[direction] is not None:
            self._try(direction, run, index)
        else:
            self._searcher(direction).add(run, index)
            self._search(direction)

    def _cut(self, direction: int, framer: Framer, run: Run, first: int, last: int) -> None:
        """Cut segments of a stream in step; where it falls out of step, search what follows."""
        for frame in framer.cut(run, first, last):
            self._take_frame(frame)
        lost_at = framer.lost_at
        if lost_at is None:
            return
        self._framers[direction] = None
        self._log.problem(
            "frame-size", "a frame of impossible size: its stream is searched for the next frame", direction
        )
        searcher = self._searcher(direction)
        for index in range(first, last):
            start = run.end[index] - run.length[index]
            if run.end[index] > lost_at:
                searcher.add(run, index, max(lost_at - start, 0))
                self._search(direction)
                if self._framers[direction] is not None:
                    rest = self._framers[direction]
                    assert rest is not None
                    if index + 1 < last:
                        self._cut(direction, rest, run, index + 1, last)
                    return

    def _gap(self, item: Gap) -> None:
        self.bytes_lost += item.size
        self._dialogue.gapped = True
        if self.verdict == "not-kafka":
            return
        direction = item.direction
        self._log.at(item.order, item.time_ns, item.packet)
        framer = self._framers[direction]
        if framer is None:
            self._gap_in_search(item)
            return
        if not item.snapped:
            detail = f"{item.size} bytes of the stream are not in the capture"
            self._log.problem("tcp-gap", detail, direction, item.size)
        in_step, frame = framer.gap(item.size, item.order, item.time_ns, item.packet)
        if frame is not None:
            self._take_frame(frame)
        if not in_step:
            self._framers[direction] = None
            self._searchers[direction] = None
            if direction != self._log.client:
                self._dialogue.ledger.gap()

    def _gap_in_search(self, item: Gap) -> None:
        direction = item.direction
        if self.verdict == "kafka" and not item.snapped:
            detail = f"{item.size} bytes of the stream are not in the capture"
            self._log.problem("tcp-gap", detail, direction, item.size)
        if self.verdict == "kafka" and direction != self._log.client:
            self._dialogue.ledger.gap()
        trial = self._trials[direction]
        if trial is None:
            trial = self._begin_trial(direction, item)
        self._searchers[direction] = None
        if trial is None:
            return
        in_step, frame = trial.framer.gap(item.size, item.order, item.time_ns, item.packet)
        if frame is not None:
            trial.frames.append(frame)
        self._trials[direction] = trial
        self._judge_trial(direction)
        if not in_step:
            self._trials[direction] = None
            self._framers[direction] = None

    def _tcp_problem(self, item: TcpProblem) -> None:
        if self.verdict == "undecided":
            self._held_problems.append(item)
        elif self.verdict == "kafka":
            self._tell(item)

    def _tell(self, item: TcpProblem) -> None:
        self._log.at(item.order, item.time_ns, item.packet)
        self._log.problem(item.kind, item.detail, item.direction, item.bytes)

    def _take_frame(self, frame: Frame) -> None:
        self.bytes_decoded += 4 + frame.end - frame.start
        self._dialogue.frame(frame, both=self._framers[1 - frame.direction] is not None)

    # -- trials: streams with gaps before their first whole frame -------------------------------------------

    def _begin_trial(self, direction: int, gap: Gap) -> Trial | None:
        """What is there so far, as frames, if it begins like one.

        A response has little to tell it by: in mid-stream it is tried only where segments are cut short, so that none
        will be whole, and only if it ends where its segment did; at its stream's beginning it waits for the verdict.
        """
        searcher = self._searcher(direction)
        beginning = searcher.beginning(len(searcher))
        if len(beginning) < _SHORTEST_HEADER or not (gap.snapped or searcher.aligned):
            return None
        if self._log.client in (None, direction):
            # A client id may be longer than what there is: the header is judged by what stands before it.
            plausible = request_header(beginning[:_SHORTEST_HEADER] + b"\xff\xff\0", 4, 15, strict=True) is not None
        elif self.verdict == "kafka":
            fits = len(beginning) + gap.size == 4 + _INT.unpack_from(beginning)[0]
            plausible = gap.snapped and fits and self._dialogue.is_beginning_of_response(beginning[4:])
        else:
            plausible = searcher.aligned
        size = _INT.unpack_from(beginning)[0]
        if not plausible or not 4 <= size <= self._options.max_frame:
            return None
        run = searcher.take(0)
        assert run is not None
        framer = Framer(direction, self._options.max_frame)
        return Trial(framer, framer.cut(run, run.first, run.last))

    def _try(self, direction: int, run: Run, index: int) -> None:
        trial = self._trials[direction]
        assert trial is not None
        trial.frames += trial.framer.cut(run, index, index + 1)
        if trial.framer.lost_at is not None:
            self._trials[direction] = None
            self._searcher(direction).add(run, index)
            self._search(direction)
            return
        self._judge_trial(direction)

    def _judge_trial(self, direction: int) -> None:
        trial = self._trials[direction]
        assert trial is not None
        if self._log.client in (None, direction):
            if not trial.may_be_requests(known=self._log.client is not None):
                self._trials[direction] = None
                return
            enough = len(trial.frames) >= (1 if self.verdict == "kafka" or self._forced else 2)
        else:
            enough = self.verdict == "kafka" and bool(trial.frames)
        if not enough:
            return
        self._trials[direction] = None
        if self.verdict == "undecided":
            self._judge_kafka(direction if self._log.client is None else self._log.client)
        undecided = self._framers[1 - direction] is None
        self._framers[direction] = trial.framer
        for frame in trial.frames:
            self._take_frame(frame)
        if undecided:
            self._settle(1 - direction)

    def _settle(self, direction: int) -> None:
        """The verdict is there: what was held back of the other stream goes its way."""
        if self._trials[direction] is not None:
            self._judge_trial(direction)
        else:
            self._search(direction)

    # -- searching --------------------------------------------------------------------------------------------------

    def _search(self, direction: int) -> None:
        """Look whether the bytes of a stream that is not in step tell where its frames are, and what it is."""
        while self._framers[direction] is None and self.verdict != "not-kafka":
            searcher = self._searcher(direction)
            if not len(searcher) or not self._without_prologue(direction, searcher):
                return
            start = self._find(direction, searcher)
            if start is None:
                if self.verdict == "undecided":
                    self._judge_hopeless(direction, searcher)
                searcher.forget()
                return
            self._enter_step(direction, searcher, start)

    def _enter_step(self, direction: int, searcher: Searcher, start: int) -> None:
        skipped = start + searcher.dropped
        undecided = self.verdict == "undecided"
        if undecided:
            self._judge_kafka(self._role_of(direction))
        if skipped:
            detail = f"{skipped} bytes were passed over before the first frame that could be told"
            self._log.problem("stream-resync", detail, direction, skipped)
        run = searcher.take(start)
        assert run is not None
        if undecided and is_gssapi_token(run.buffer, 4, len(run.buffer)):
            self._dialogue.begin_raw_sasl("GSSAPI")
        self._searchers[direction] = None
        framer = self._framers[direction] = Framer(direction, self._options.max_frame)
        self._cut(direction, framer, run, run.first, run.last)
        if undecided:
            self._settle(1 - direction)

    def _role_of(self, direction: int) -> int:
        """The client's direction, when the searcher of `direction` has just accepted a chain."""
        if self._log.client is not None:
            return self._log.client
        return direction if self._searcher(direction).accepted_requests else 1 - direction

    def _find(self, direction: int, searcher: Searcher) -> int | None:
        if self.verdict == "kafka" and searcher.aligned:
            return 0
        start = None
        if self._log.client in (None, direction):
            chain = 1 if self._forced else MIN_CHAIN
            start = searcher.find_request(None if self._log.client is None else chain)
        if start is None and self._log.client in (None, 1 - direction):
            # Anywhere in a stream a single response would be too little even if it is known to be a broker's.
            chain = (1 if searcher.aligned else MIN_CHAIN) if self._forced else RESPONSE_CHAIN
            start = searcher.find_response(self._dialogue, chain)
        return start

    def _without_prologue(self, direction: int, searcher: Searcher) -> bool:
        """Take off a PROXY protocol header in front of the client's stream; False while it is not complete."""
        if self._proxied[direction] or not searcher.aligned or self._log.client not in (None, direction):
            return True
        prologue = proxy_prologue(searcher.beginning(MAX_PROLOGUE))
        if prologue is None:
            return False
        self._proxied[direction] = True
        length, detail = prologue
        if length:
            searcher.strip(length)
            log = self._log
            problem = TcpProblem(log.order, direction, "proxy-protocol", detail, log.packet, log.time_ns, length)
            self._tcp_problem(problem)
        return len(searcher) > 0

    def _judge_hopeless(self, direction: int, searcher: Searcher) -> None:
        other = self._searcher(1 - direction)
        if not self._is_hopeless(direction):
            return
        # The client's stream has the say, where there is one: ids of responses need not rise.
        alone = searcher.aligned and self._log.client in (None, direction)
        if not alone and other.seen and not self._is_hopeless(1 - direction):
            return
        name = name_protocol(searcher.beginning(16))
        detail = f"this is {name}" if name else "its bytes are no Kafka"
        if name is None and searcher.aligned:
            # Where a length or a magic number stands. What follows, or what mid-stream bytes are, could be a secret.
            detail += f"; it begins with {searcher.beginning(4).hex(' ')}"
        self.verdict = "not-kafka"
        self._held_problems = []
        self._searchers = [None, None]
        self._trials = [None, None]
        self._log.verdict(False, detail)

    def _is_hopeless(self, direction: int) -> bool:
        searcher = self._searcher(direction)
        as_requests = self._log.client in (None, direction) and not searcher.hopeless_for_requests
        as_responses = self._log.client in (None, 1 - direction) and not searcher.hopeless_for_responses
        return not (as_requests or as_responses)

    def _judge_kafka(self, client: int) -> None:
        self.verdict = "kafka"
        self._log.client = client
        self._log.verdict(True, "")
        here = self._log.time_ns, self._log.packet
        for item in self._held_problems:
            self._tell(item)
        self._held_problems = []
        self._log.at(0, *here)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _close(self, item: Closed) -> None:
        if self._closed:
            return
        self._closed = True
        self._log.at(item.order, item.time_ns, item.packet)
        if self.verdict == "undecided" and self._log.client is not None:
            searcher = self._searcher(self._log.client)
            if searcher.began:
                # A connection that ended behind a request that is plausible only: nothing better will come.
                self._enter_step(self._log.client, searcher, 0)
        if self.verdict != "kafka":
            return
        for direction, framer in enumerate(self._framers):
            pending = framer.pending if framer is not None else len(self._searcher(direction))
            if pending:
                what = "of a frame that was not complete" if framer is not None else "in which no frame was found"
                self._log.problem("stream-cut", f"the stream ended with {pending} bytes {what}", direction, pending)
        self._dialogue.close(item.reason)
