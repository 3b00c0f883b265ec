"""Filters: one tree of predicates over exchanges, built by every filter option, and the selector that applies it.

A predicate is asked about a `Candidate`, an exchange as far as it is known. The answer is three-valued (Kleene): True,
False, or None where the response is not there yet and could still decide. So what the request alone decides is decided
at the request, without any predicate having to say so; what needs the response waits for the end of the exchange. Both
sides of an exchange always share one answer.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, get_args

import msgspec

from kafkasniff.entities import mentions
from kafkasniff.errors import UsageError
from kafkasniff.kafka import dissectors
from kafkasniff.model import Endpoint, Exchange, Message, Problem, SaslToken
from kafkasniff.moments import Moment, parse_duration, parse_moment

__all__ = [
    "MAX_DECIDED",
    "And",
    "Candidate",
    "Compare",
    "Field",
    "Moment",
    "Not",
    "Operator",
    "Or",
    "Predicate",
    "Selector",
    "all_of",
    "any_of",
    "api_filter",
    "client_filter",
    "host_filter",
    "parse_duration",
    "parse_moment",
    "topic_filter",
]

MAX_DECIDED: Final = 1 << 20
"""Exchanges whose answer is remembered until they end; the inspector's own bounds let far fewer be open."""

Field = Literal[
    "api",
    "api_version",
    "client_id",
    "connection",
    "correlation_id",
    "endpoint",
    "errors",
    "exchange",
    "host",
    "latency",
    "time",
    "topic",
]
"""api: key; endpoint, host: of either end, `address:port` and address; errors: codes, non-zero ones; latency, time: ns,
the time that of the request (of an orphan response, its own)."""

Operator = Literal["==", "<", "<=", ">", ">=", "glob", "exists"]

_FIELDS: Final[frozenset[Field]] = frozenset(get_args(Field))
_OPEN: Final[frozenset[Field]] = frozenset({"errors", "latency", "topic"})
"""What a response may add to its request."""


class Candidate:
    """An exchange as far as it is known, or what else can be asked about."""

    __slots__ = ("_topics", "connection", "ends", "exchange", "request", "response", "start_ns", "time_ns", "unknown")

    def __init__(
        self,
        *,
        request: Message | None = None,
        response: Message | None = None,
        other: SaslToken | Problem | None = None,
        unknown: frozenset[Field] = frozenset(),
        start_ns: int | None = None,
    ) -> None:
        self.request = request
        self.response = response
        self.unknown = unknown
        """Fields that may have more values than are known; of the others, what is missing stays missing."""
        self.start_ns = start_ns
        """Time of the run's first packet."""
        seen: Message | SaslToken | Problem | None = request or response or other
        self.exchange = None if seen is None or isinstance(seen, SaslToken) else seen.exchange
        self.connection = None if seen is None else seen.connection
        self.time_ns = None if seen is None else seen.time_ns
        self.ends: tuple[Endpoint, ...] = ()
        if isinstance(seen, Message | SaslToken) and seen.client is not None and seen.broker is not None:
            self.ends = (seen.client, seen.broker)
        self._topics: tuple[str, ...] | None = None

    def values(self, field: Field) -> tuple[Any, ...]:
        """All values that a field has; none where it has none (yet)."""
        request = self.request
        match field:
            case "api" | "api_version" | "correlation_id" | "client_id":
                seen = request or self.response
                value = None if seen is None else getattr(seen, "api_key" if field == "api" else field)
                return () if value is None else (value,)
            case "connection" | "exchange":
                value = getattr(self, field)
                return () if value is None else (value,)
            case "time":
                return () if self.time_ns is None else (self.time_ns,)
            case "host":
                return tuple(end.address for end in self.ends)
            case "endpoint":
                return tuple(str(end) for end in self.ends)
            case "errors":
                return tuple(error.code for error in self.response.errors) if self.response is not None else ()
            case "latency":
                latency = self.response.latency_ns if self.response is not None else None
                return () if latency is None else (latency,)
            case "topic":
                if self._topics is None:
                    self._topics = tuple(mentions(request, self.response).topics)
                return self._topics


class Compare(msgspec.Struct, frozen=True):
    """True where any of the field's values compares so; `exists`: where it has one."""

    field: Field
    operator: Operator
    value: int | str | Moment | None = None

    def test(self, candidate: Candidate) -> bool | None:
        """True, False, or None where a value that may still come could make it true."""
        found = candidate.values(self.field)
        if any(self._holds(value, candidate) for value in found):
            return True
        return None if self.field in candidate.unknown else False

    def _holds(self, value: Any, candidate: Candidate) -> bool:
        wanted = self.value
        if isinstance(wanted, Moment):
            wanted = wanted.resolve(candidate.start_ns)
        match self.operator:
            case "exists":
                return True
            case "==":
                return bool(_text(value) == wanted)
            case "glob":
                return isinstance(wanted, str) and fnmatchcase(str(_text(value)), wanted)
        if not isinstance(value, int) or not isinstance(wanted, int):
            return False
        match self.operator:
            case "<":
                return value < wanted
            case "<=":
                return value <= wanted
            case ">":
                return value > wanted
            case ">=":
                return value >= wanted


def _text(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


class And(msgspec.Struct, frozen=True):
    """True where all parts are."""

    parts: tuple[Predicate, ...]

    def test(self, candidate: Candidate) -> bool | None:
        """False where a part is, whatever the others will be."""
        answer: bool | None = True
        for part in self.parts:
            one = part.test(candidate)
            if one is False:
                return False
            if one is None:
                answer = None
        return answer


class Or(msgspec.Struct, frozen=True):
    """True where a part is."""

    parts: tuple[Predicate, ...]

    def test(self, candidate: Candidate) -> bool | None:
        """True where a part is, whatever the others will be."""
        answer: bool | None = False
        for part in self.parts:
            one = part.test(candidate)
            if one is True:
                return True
            if one is None:
                answer = None
        return answer


class Not(msgspec.Struct, frozen=True):
    """True where the part is not."""

    part: Predicate

    def test(self, candidate: Candidate) -> bool | None:
        """None where the part is undecided."""
        one = self.part.test(candidate)
        return None if one is None else not one


Predicate = Compare | And | Or | Not


def all_of(parts: Iterable[Predicate | None]) -> Predicate | None:
    """All predicates together; None (everything) where there are none."""
    found = tuple(part for part in parts if part is not None)
    return found[0] if len(found) == 1 else And(found) if found else None


def any_of(parts: Iterable[Predicate]) -> Predicate | None:
    """Any of the predicates; None (everything) where there are none."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else Or(found) if found else None


# -- the short forms ------------------------------------------------------------------------------------------------


def api_filter(names: Sequence[str]) -> Predicate | None:
    """Exchanges of these APIs: names or keys, each may be a comma list. Raises UsageError for a name not known."""
    keys = []
    for name in (part.strip() for text in names for part in text.split(",")):
        if re.fullmatch(r"\d{1,5}", name):
            # Any number: an API that is newer than the definitions has a key, too.
            keys.append(int(name))
            continue
        found = dissectors.api_by_name(name)
        if found is None:
            raise UsageError(f"no API is called {name!r}; `kafkasniff api` lists them")
        keys.append(found.key)
    return any_of(Compare("api", "==", key) for key in keys)


def topic_filter(patterns: Sequence[str]) -> Predicate | None:
    """Exchanges that name one of these topics; `*`, `?` and `[…]` as in a shell."""
    # Kafka's topic names have letters, digits, ".", "_" and "-" only, so a pattern is never a name.
    return any_of(Compare("topic", "glob" if re.search(r"[*?\[]", one) else "==", one) for one in patterns)


def client_filter(patterns: Sequence[str]) -> Predicate | None:
    """Exchanges of clients with one of these ids; as a name, else as a pattern: an id may hold any character."""
    return any_of(Or((Compare("client_id", "==", one), Compare("client_id", "glob", one))) for one in patterns)


def host_filter(text: str) -> Predicate:
    """`10.0.0.5`, `10.0.0.5:9092`, `::1` or `[::1]:9092`, either end. Raises UsageError for anything else."""
    match = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(\d{1,5}))?|([0-9.]+):(\d{1,5})|([0-9A-Fa-f:.]+)", text)
    address = match and (match[1] or match[3] or match[5])
    try:
        shown = str(ipaddress.ip_address(address or text))
    except ValueError:
        raise UsageError(f"{text!r} is not an address (10.0.0.5, 10.0.0.5:9092, ::1, [::1]:9092)") from None
    port = match and (match[2] or match[4])
    return Compare("endpoint", "==", str(Endpoint(shown, int(port)))) if port else Compare("host", "==", shown)


# -- applying -------------------------------------------------------------------------------------------------------

Event = Message | SaslToken | Exchange | Problem


def _not_told(problem: Problem) -> frozenset[Field]:
    """The fields that a problem says nothing about."""
    told: set[Field] = set()
    if problem.connection is not None:
        told.add("connection")
    if problem.time_ns is not None:
        told.add("time")
    if problem.exchange is not None:
        told.add("exchange")
    return _FIELDS - told


class Selector:
    """Passes on what a predicate selects: both messages of an exchange or none.

    Feed it what an inspector yields, `Exchange` events included: they end the undecided. Tokens pass where the
    predicate is true of them; problems of an exchange with their exchange, others where nothing known of them speaks
    against it: they tell what may be missing.
    """

    def __init__(self, predicate: Predicate | None) -> None:
        self._predicate = predicate
        self._decided: dict[int, bool] = {}
        self._last: tuple[int, bool] | None = None
        """The exchange that ended last and its answer: its problems come right behind it."""
        self.start_ns: int | None = None
        """Time of the run's first packet, for relative times."""

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """The events that pass, in order; those of an undecided exchange come when it ends."""
        if self._predicate is None:
            return list(events)
        out: list[Event] = []
        for event in events:
            if isinstance(event, Message):
                self._message(event, out)
            elif isinstance(event, Exchange):
                self._exchange(event, out)
            elif isinstance(event, Problem) and self._last is not None and event.exchange == self._last[0]:
                if self._last[1]:
                    out.append(event)
            else:
                unknown = _not_told(event) if isinstance(event, Problem) else frozenset()
                answer = self._predicate.test(Candidate(other=event, unknown=unknown, start_ns=self.start_ns))
                if answer or (answer is None and unknown):
                    out.append(event)
        return out

    def _message(self, message: Message, out: list[Event]) -> None:
        assert self._predicate is not None
        number = message.exchange
        if message.type == "request" and number is not None:
            answer = self._predicate.test(Candidate(request=message, unknown=_OPEN, start_ns=self.start_ns))
            if answer is not None:
                if len(self._decided) >= MAX_DECIDED:
                    del self._decided[next(iter(self._decided))]
                self._decided[number] = answer
                if answer:
                    out.append(message)
        elif number is not None and self._decided.get(number):
            out.append(message)

    def _exchange(self, exchange: Exchange, out: list[Event]) -> None:
        assert self._predicate is not None
        answer = self._decided.pop(exchange.exchange, None)
        if answer is None:
            candidate = Candidate(request=exchange.request, response=exchange.response, start_ns=self.start_ns)
            answer = self._predicate.test(candidate) is True
            if answer:
                out.extend(message for message in (exchange.request, exchange.response) if message is not None)
        self._last = (exchange.exchange, answer)
        if answer:
            out.append(exchange)
