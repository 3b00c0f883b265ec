"""Frame boundaries of a connection's streams, and the roles of its sides, as long as these are unknown.

Holds the bytes of streams that are not in step, with a `Searcher` for each. It answers questions about them by the
rules of the verdict (docs/design.md); the connection acts on the answers.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kafkasniff.kafka.messages.message import request_header
from kafkasniff.kafka.messages.plausibility import MAX_PROLOGUE, NAMED, name_protocol, proxy_prologue
from kafkasniff.tls.items import Gap
from tests.oracle.kafka.correlation import Correlation
from tests.oracle.kafka.event_log import EventLog
from tests.oracle.kafka.framer import Framer
from tests.oracle.kafka.search import MIN_CHAIN, RESPONSE_CHAIN, Searcher
from tests.oracle.kafka.trial import Trial

_INT = Struct(">i")
_RESPONSE = Struct(">ii")
_SHORTEST_HEADER: Final = 12
"""Bytes of a frame up to the correlation id of a request."""
_SHORTEST_RESPONSE: Final = 8
"""The same of a response."""
MAX_GREETING: Final = 4096
"""Services that speak first say less than this before their client speaks."""


class Boundaries:
    """The streams of one connection that are not in step.

    `log` knows the client's direction once it is known; `requests` those that are outstanding. With `forced` the port
    is assumed to be Kafka, and less evidence suffices. In all methods `kafka` is whether the verdict is Kafka.
    """

    def __init__(self, log: EventLog, requests: Correlation, *, forced: bool, max_frame: int) -> None:
        self._log = log
        self._outstanding = requests
        self._forced = forced
        self._max_frame = max_frame
        self._searchers: list[Searcher | None] = [None, None]
        self._proxied = [False, False]

    def searcher(self, direction: int) -> Searcher:
        """The searcher of a stream, created on first use, which most streams need only for a moment."""
        searcher = self._searchers[direction]
        if searcher is None:
            searcher = self._searchers[direction] = Searcher(
                aligned=False, max_size=self._max_frame, forced=self._forced
            )
        return searcher

    def collected(self, direction: int) -> int:
        """Bytes of a stream collected until its frame boundaries are known."""
        return len(self._searchers[direction] or ())

    def release(self, direction: int) -> None:
        """The stream is in step, or its collected bytes are useless after a gap."""
        self._searchers[direction] = None

    def begin(self, direction: int) -> None:
        """The stream begins here, unless it had bytes before."""
        if not self._searchers[direction]:
            self._searchers[direction] = Searcher(aligned=True, max_size=self._max_frame, forced=self._forced)

    # -- where frames begin -----------------------------------------------------------------------------------------

    def find(self, direction: int, *, kafka: bool) -> int | None:
        """Position of the first frame among the bytes of a stream; None if unknown yet."""
        searcher = self.searcher(direction)
        if kafka and searcher.aligned:
            return 0
        client = self._log.client
        start = None
        if client in (None, direction):
            chain = 1 if self._forced else MIN_CHAIN
            start = searcher.find_request(None if client is None else chain)
        if start is None and client in (None, 1 - direction):
            # Within a stream, a single response is too little evidence even from a known broker.
            chain = (1 if searcher.aligned else MIN_CHAIN) if self._forced else RESPONSE_CHAIN
            start = searcher.find_response(self._outstanding, chain)
        return start

    def forget(self, direction: int) -> None:
        """Drop the bytes of a stream in which no frame starts."""
        client = self._log.client
        self.searcher(direction).forget(requests=client in (None, direction), responses=client in (None, 1 - direction))

    def find_exchange(self) -> tuple[int, int] | None:
        """A plausible request and its response, each in a stream that is not in step: direction and place of the first.

        A request with an oddity, such as the surplus bytes of librdkafka's Metadata, is too little evidence alone.
        """
        for direction in (0, 1):
            searcher, other = self._searchers[direction], self._searchers[1 - direction]
            if searcher is None or other is None or self._log.client not in (None, direction):
                continue
            requests = searcher.whole_requests()
            start = other.find_answer(requests, searcher) if requests else None
            if start is not None:
                searcher.accepted_requests = True
                return direction, start
        return None

    def restart_responses(self, direction: int, order: int = -1) -> None:
        """Search the broker's stream after this packet again: now the requests are known."""
        searcher = self._searchers[direction]
        if searcher is not None:
            searcher.restart_responses(order)

    def client_by(self, direction: int) -> int:
        """The client's direction, after a chain of frames was found in the stream of `direction`."""
        if self._log.client is not None:
            return self._log.client
        return direction if self.searcher(direction).accepted_requests else 1 - direction

    def take_prologue(self, direction: int) -> tuple[int, str] | None:
        """Remove a PROXY protocol header from the front of the client's stream.

        Returns its length and description; (0, "") if there is none (any more), None while it is incomplete.
        """
        searcher = self.searcher(direction)
        if self._proxied[direction] or not searcher.aligned or self._log.client not in (None, direction):
            return 0, ""
        prologue = proxy_prologue(searcher.beginning(MAX_PROLOGUE))
        if prologue is not None:
            self._proxied[direction] = True
            if prologue[0]:
                searcher.strip(prologue[0])
        return prologue

    # -- damaged frames ---------------------------------------------------------------------------------------------

    def begin_trial(self, gap: Gap, *, kafka: bool) -> Trial | None:
        """The bytes of a stream before a gap as frames, if they begin like one.

        A response is hard to recognize: in mid-stream it is tried only if segments are truncated, so that none will be
        whole, and only if it ends where its segment did; at its stream's beginning it waits for the verdict.
        """
        direction = gap.direction
        searcher = self.searcher(direction)
        beginning = searcher.beginning(len(searcher))
        may_ask = self._log.client in (None, direction)
        least = _SHORTEST_HEADER if may_ask else _SHORTEST_RESPONSE
        if len(beginning) < least or not (gap.snapped or searcher.aligned):
            return None
        size = _INT.unpack_from(beginning)[0]
        if may_ask:
            # A client id may be longer than the available bytes: judge the header by the fields before it.
            plausible = request_header(beginning[:_SHORTEST_HEADER] + b"\xff\xff\0", 4, 15, strict=True) is not None
        elif kafka:
            fits = len(beginning) + gap.size == 4 + size
            plausible = gap.snapped and fits and self._outstanding.is_beginning_of_response(beginning[4:])
        else:
            plausible = searcher.aligned
        if not plausible or not 4 <= size <= self._max_frame:
            return None
        return Trial(Framer(direction, self._max_frame), searcher.take(0))

    def judge_trial(self, trial: Trial, direction: int, *, kafka: bool) -> bool | None:
        """True: the stream of `direction` is in step as its trial says; False: it is not; None: undecided."""
        client = self._log.client
        if client not in (None, direction):
            return True if kafka and trial.frames else None
        if not trial.may_be_requests(known=client is not None):
            return False
        return True if len(trial.frames) >= (1 if kafka or self._forced else 2) else None

    def first_id(self, direction: int) -> tuple[int, int] | None:
        """Correlation id of the first response of a stream captured from its beginning, and its packet's order.

        None if the beginning, or a part of the response, is missing.
        """
        searcher = self._searchers[direction]
        if searcher is None or not searcher.aligned or searcher.dropped or len(searcher) < _SHORTEST_RESPONSE:
            return None
        size, correlation_id = _RESPONSE.unpack(searcher.beginning(_SHORTEST_RESPONSE))
        return (correlation_id, searcher.order_at(3 + size)) if 0 < size <= len(searcher) - 4 else None

    # -- not Kafka --------------------------------------------------------------------------------------------------

    def reason_against(self, direction: int, *, peer_held: bool, over: bool = False) -> str | None:
        """Why the connection is not Kafka, judged by the stream of `direction`; None if it may be.

        The client's stream decides, if there is one: ids of responses need not rise. So the greeting of a service that
        speaks first (SSH, SMTP, MySQL) waits for what its client says, until the connection is `over`. `peer_held`:
        more bytes of the other stream are held back after a hole.
        """
        if not self._is_hopeless(direction):
            return None
        searcher, other = self.searcher(direction), self.searcher(1 - direction)
        silent = not (other.seen or peer_held)
        greeting = len(searcher) + searcher.dropped <= MAX_GREETING
        if silent and greeting and not over and self._log.client == 1 - direction:
            return None
        alone = searcher.aligned and self._log.client in (None, direction)
        if not alone and (other.seen or peer_held) and not self._is_hopeless(1 - direction):
            return None
        name = name_protocol(searcher.beginning(16))
        if name is not None:
            return f"{NAMED}{name}"
        if not searcher.aligned:
            return "its bytes are not Kafka"
        # The position of a length or magic number. Further bytes, or bytes in mid-stream, could be a secret.
        return f"its bytes are not Kafka; it begins with {searcher.beginning(4).hex(' ')}"

    def _is_hopeless(self, direction: int) -> bool:
        searcher = self.searcher(direction)
        as_requests = self._log.client in (None, direction) and not searcher.hopeless_for_requests
        as_responses = self._log.client in (None, 1 - direction) and not searcher.hopeless_for_responses
        return not (as_requests or as_responses)
