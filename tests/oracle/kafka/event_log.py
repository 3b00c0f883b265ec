"""The log that collects the events of one connection."""

from __future__ import annotations

import msgspec

from kafkasniff.kafka.connection.events import MAX_HELD, Event, ProblemEvent, VerdictEvent
from kafkasniff.model import NO_TIME
from kafkasniff.tls.items import TcpProblem


class EventLog:
    """The events of one connection, and the current packet: new events belong to that packet."""

    def __init__(self, client: int | None) -> None:
        self.client = client
        """Direction of the client's stream; None while the roles are unknown."""
        self.events: list[Event] = []
        self.held: list[TcpProblem] = []
        """Problems of an undecided connection, reported if it turns out to be Kafka."""
        self.order = 0
        self.time_ns = NO_TIME
        self.packet = 0

    def at(self, order: int, time_ns: int, packet: int) -> None:
        """Advance to this packet; the order never decreases."""
        self.order = max(self.order, order)
        self.time_ns = time_ns
        self.packet = packet

    def take(self) -> list[Event]:
        """Return the events so far and clear the log."""
        events, self.events = self.events, []
        return events

    def problem(self, kind: str, detail: str, direction: int, count: int | None = None) -> None:
        """Report a problem of the stream of `direction`."""
        is_request = None if self.client is None else direction == self.client
        self.events.append(ProblemEvent(self.order, kind, detail, self.time_ns, self.packet, is_request, count))

    def report(self, item: TcpProblem) -> None:
        """Report a problem at its own packet."""
        self.at(item.order, item.time_ns, item.packet)
        self.problem(item.kind, item.detail, item.direction, item.bytes)

    def hold(self, item: TcpProblem) -> None:
        """Keep a problem until the verdict."""
        same = sum(other.kind == item.kind for other in self.held)
        if same == MAX_HELD - 1:
            item = msgspec.structs.replace(item, detail=f"{item.detail} (further ones are not reported)")
        if same < MAX_HELD:
            self.held.append(item)

    def report_held(self) -> None:
        """Report the kept problems, and return to the current packet."""
        here = self.time_ns, self.packet
        held, self.held = self.held, []
        for item in held:
            self.report(item)
        self.at(0, *here)

    def verdict(self, is_kafka: bool, detail: str, kind: str = "not-kafka", *, likely: bool = False) -> None:
        """Report the verdict."""
        place = self.time_ns, self.packet
        self.events.append(VerdictEvent(self.order, is_kafka, self.client, detail, *place, kind, likely))
