"""How the exchanges of a Kafka connection end: answered, without the need for an answer, or without the answer."""

from __future__ import annotations

from typing import Literal

from kafkasniff.kafka.connection.events import CLOSED_BEFORE, Detail, ExchangeEvent, span_text
from kafkasniff.model import Problem, Status
from tests.oracle.kafka.correlation import Correlation, elapsed
from tests.oracle.kafka.event_log import EventLog
from tests.oracle.kafka.exchange import Pending
from tests.oracle.kafka.turns import Turns


class ExchangeEnds(Correlation):
    """The part of a dialogue that logs the ends of exchanges. `every_end`: log also those that were answered."""

    def __init__(self, log: EventLog, detail: Detail, *, every_end: bool) -> None:
        super().__init__(log, detail)
        self._every_end = every_end
        self.one_sided = False
        """The capture lacks responses, and it is unknown which requests they answered."""
        self.retransmits = 0
        """Retransmitted segments since the last exchange ended."""
        self.turns = Turns()

    def _end(
        self,
        ordinal: int,
        status: Status,
        latency: int | None = None,
        duration: int | None = None,
        waited: tuple[int, int] | tuple[None, None] = (None, None),
    ) -> None:
        if not self._every_end and status in ("answered", "orphan"):
            return
        log, behind, muted = self._log, *waited
        if status not in ("answered", "orphan"):
            muted = self.turns.muted_until
        place = log.order, ordinal, status, log.time_ns, log.packet
        log.events.append(ExchangeEvent(*place, latency, duration, (), self.retransmits, behind, muted))
        self.retransmits = 0

    def _end_silent(self, pending: Pending) -> None:
        """End an exchange that needs no response."""
        self.turns.over = True
        if not pending.hidden:
            self._end(pending.ordinal, "no_response")

    def _end_without(self, pending: Pending, status: Status, reason: str = "", *, reported: bool = True) -> None:
        """End an exchange that should have had a response and has none.

        `reason`: why, as text; `reported`: the loss is reported here, not for the connection as a whole.
        """
        self.turns.over = True
        problems: tuple[Problem, ...] = ()
        if status == "unanswered":
            detail = "the connection ended without a response to this request"
            problems = (Problem("request-unanswered", f"{detail}: {reason}" if reason else detail),)
        elif status == "lost" and reported:
            problems = (Problem("response-lost", "the response was in bytes that are not in the capture"),)
        if pending.hidden:
            client = self._log.client
            assert client is not None  # there was a request
            for problem in problems:
                what = f"API {pending.api_key} v{pending.api_version} corr {pending.correlation_id}, not shown"
                self._log.problem(problem.kind, f"{what}: {problem.detail}", client)
            return
        self._end(pending.ordinal, status)
        event = self._log.events[-1]
        assert isinstance(event, ExchangeEvent)
        event.problems = problems

    def _end_rest(self, reason: Literal["fin", "rst", "reused", "idle", "end"], left_ns: int) -> None:
        """End the exchanges that are open at the end of the connection; arguments as of `Dialogue.close`."""
        for rest in self.ledger.drain():
            if rest.silent:
                self._end_silent(rest)
            elif rest.lost:
                self._end_without(rest, "lost")
            elif (late := elapsed(left_ns, rest.first_time)) is not None and late > 0:
                # Such a request gets no response, whenever the capture ends.
                self._end_without(rest, "unanswered", f"{CLOSED_BEFORE} {span_text(late)} before the request")
            elif self.one_sided:
                self._end_without(rest, "lost", reported=False)
            else:
                self._end_without(rest, "open" if reason == "end" else "unanswered")
