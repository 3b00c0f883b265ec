"""Predicates as closures over candidates, and the selector that applies one to the events of an inspector."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kafkasniff.filters.fields import LATE, Values, unknown_fields, values_of
from kafkasniff.filters.patterns import compile_pattern
from kafkasniff.filters.record_paths import Candidate
from kafkasniff.filters.tree import And, Compare, Moment, Not, Or, Predicate
from kafkasniff.kafka.apis.entities import text
from kafkasniff.model import NO_TIME, DecidedRequest, Exchange, Lines, Message, Problem, SaslToken

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MAX_SEARCHED: Final = 1 << 16
"""Characters (for bytes: bytes) of one value that a pattern is matched against: a value may be as long as a message."""

Test = Callable[[Candidate], bool | None]
_Holds = Callable[[Any], bool]

_ORDER: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def compiled(predicate: Predicate) -> Test:
    """Compiles a predicate. Raises KeyError for an unknown field, ValueError for an invalid pattern."""
    match predicate:
        case Compare():
            return _comparison(predicate)
        case And(parts):
            return _joined(tuple(map(compiled, parts)), False)
        case Or(parts):
            return _joined(tuple(map(compiled, parts)), True)
        case Not(part):
            return _not(compiled(part))


def _joined(tests: tuple[Test, ...], decides: bool) -> Test:
    """All tests where False decides, any of them where True does."""

    def joined(candidate: Candidate) -> bool | None:
        answer: bool | None = not decides
        for test in tests:
            one = test(candidate)
            if one is decides:
                return decides
            if one is None:
                answer = None
        return answer

    return joined


def _not(test: Test) -> Test:
    def complement(candidate: Candidate) -> bool | None:
        one = test(candidate)
        return None if one is None else not one

    return complement


# -- comparisons -------------------------------------------------------------------------------------------------------


def _comparison(compare: Compare) -> Test:
    root, values = values_of(compare.field)
    value = compare.value
    if isinstance(value, Moment):
        return _timed(root, values, compare.operator, value)
    quantified = _no_value if compare.operator in ("!=", "not in", "!~") else _any_value
    return quantified(root, values, holds_of(compare.operator, value))


def _any_value(root: str, values: Values, holds: _Holds) -> Test:
    def test(candidate: Candidate) -> bool | None:
        for value in values(candidate):
            if holds(value):
                return True
        return None if root in candidate.unknown else False

    return test


def _no_value(root: str, values: Values, holds: _Holds) -> Test:
    """True if there are values and `holds` is true of none."""

    def test(candidate: Candidate) -> bool | None:
        found = False
        for value in values(candidate):
            if holds(value):
                return False
            found = True
        return None if root in candidate.unknown else found

    return test


def _timed(root: str, values: Values, name: str, moment: Moment) -> Test:
    """A comparison with a time relative to the first packet; until that is known, it is as without a value."""
    quantified = _no_value if name == "!=" else _any_value

    def test(candidate: Candidate) -> bool | None:
        wanted = moment.resolve(candidate.start_ns)
        if wanted is None:
            return None if root in candidate.unknown else False
        return quantified(root, values, holds_of(name, wanted))(candidate)

    return test


def holds_of(name: str, wanted: Any) -> _Holds:
    """Whether a comparison holds for one value; it is false for a value of another type, which bodies may have."""
    match name:
        case "exists":
            return lambda value: True
        case "==" | "!=":
            return _one_of((wanted,))
        case "in" | "not in":
            return _one_of(wanted)
        case "=~" | "!~":
            return _found_by(compile_pattern(wanted).found_in)
        case "contains" | "startswith" | "endswith":
            return _part(name, wanted)
        case "glob":
            # It begins at the first character, and each part of the text is found once (atomic groups).
            matches = re.compile(translate(wanted)).match
            return _found_by(lambda value: matches(value) is not None)
    compare = _ORDER[name]

    def ordered(value: Any) -> bool:
        kind = type(value)
        return (kind is int or kind is float) and bool(compare(value, wanted))

    return ordered


def _one_of(wanted: Iterable[Any]) -> _Holds:
    # Python's True equals 1, the wire's does not; unhashable values are never looked up.
    flags = frozenset(one for one in wanted if isinstance(one, bool))
    others = frozenset(one for one in wanted if not isinstance(one, bool))

    def equal(value: Any) -> bool:
        kind = type(value)
        if kind is str or kind is int or kind is float:
            return value in others
        if kind is bytes:
            return text(value) in others
        return kind is bool and value in flags

    return equal


def _found_by(found_in: Callable[[str], bool]) -> _Holds:
    def found(value: Any) -> bool:
        kind = type(value)
        if kind is str or kind is bytes:
            shown = text(value[:MAX_SEARCHED])
            return shown is not None and found_in(shown)
        return False

    return found


def _part(name: str, wanted: str) -> _Holds:
    """Whether text contains another one, or begins or ends with it."""
    data = wanted.encode("utf-8", "surrogatepass")
    # Bytes that are not UTF-8 are shown as `\\xff`, and so they may be asked for.
    as_shown = "\\x" in wanted

    def holds(value: Any) -> bool:
        if type(value) is str:
            return bool(in_text(value, wanted))
        if type(value) is not bytes:
            return False
        return bool(in_bytes(value, data)) or (as_shown and bool(in_text(text(value) or "", wanted)))

    in_text: Callable[[str, str], bool]
    in_bytes: Callable[[bytes, bytes], bool]
    match name:
        case "contains":
            in_text, in_bytes = operator.contains, operator.contains
        case "startswith":
            in_text, in_bytes = str.startswith, bytes.startswith
        case _:
            in_text, in_bytes = str.endswith, bytes.endswith
    return holds


MAX_DECIDED: Final = 1 << 20
"""Exchanges whose result is remembered until they end; the inspector's own bounds allow far fewer open ones."""


class HeldRequest(msgspec.Struct, frozen=True, gc=False):
    """A request on which the filter cannot decide yet; `DecidedRequest` follows."""

    request: Message


Event = Message | Lines | SaslToken | Exchange | Problem | DecidedRequest


class Selector:
    """Passes on the events that a predicate selects: both messages of an exchange or none.

    Feed it all events of an inspector, including `Exchange` events, which end undecided exchanges. Tokens pass if the
    predicate is true of them. Problems of an exchange pass with it; other problems pass unless a known fact rules them
    out, since they report what may be missing.

    `holds`: the request of an undecided exchange is returned as `HeldRequest`, and `DecidedRequest` when the exchange
    ends. Otherwise the request is returned only then.
    """

    def __init__(self, predicate: Predicate | None, *, holds: bool = False) -> None:
        self.predicate = predicate
        self._test = None if predicate is None else compiled(predicate)
        self.holds = holds
        self._decided: dict[int, bool] = {}
        self._last: tuple[int, bool] | None = None
        """The exchange that ended last and its result: its problems follow immediately."""
        self.start_ns: int | None = None
        """Time of the run's first packet, for relative times."""

    def begins(self, time_ns: NDArray[np.int64]) -> None:
        """Note the first time of packets that are about to be decoded."""
        if self.start_ns is None:
            times = time_ns[time_ns != NO_TIME]
            self.start_ns = int(times[0]) if len(times) else None

    def feed(self, events: Iterable[Event]) -> list[Event | HeldRequest | DecidedRequest]:
        """The selected events, in order; those of an undecided exchange are returned when it ends."""
        if self._test is None:
            return list(events)
        out: list[Event | HeldRequest | DecidedRequest] = []
        for event in events:
            if isinstance(event, Message):
                self._message(event, out)
            elif isinstance(event, Lines | DecidedRequest):
                out.append(event)  # decided before
            elif isinstance(event, Exchange):
                self._exchange(event, out)
            elif isinstance(event, Problem) and self._last is not None and event.exchange == self._last[0]:
                if self._last[1]:
                    out.append(event)
            else:
                unknown = unknown_fields(event) if isinstance(event, Problem) else frozenset()
                answer = self._test(Candidate(other=event, unknown=unknown, start_ns=self.start_ns))
                if answer or (answer is None and unknown):
                    out.append(event)
        return out

    def pin(self, exchange: int, answer: bool) -> None:
        """An exchange is selected, or not, until it ends or is unpinned."""
        if len(self._decided) >= MAX_DECIDED:
            del self._decided[next(iter(self._decided))]
        self._decided[exchange] = answer

    def unpin(self, exchange: int) -> None:
        """No more of its messages follow."""
        self._decided.pop(exchange, None)

    def _message(self, message: Message, out: list[Event | HeldRequest | DecidedRequest]) -> None:
        assert self._test is not None
        number = message.exchange
        if number is not None and number in self._decided:
            if self._decided[number]:
                out.append(message)
        elif message.type == "request" and number is not None:
            answer = self._test(Candidate(request=message, unknown=LATE, start_ns=self.start_ns))
            if answer is not None:
                self.pin(number, answer)
                if answer:
                    out.append(message)
            elif self.holds:
                out.append(HeldRequest(message))

    def _exchange(self, exchange: Exchange, out: list[Event | HeldRequest | DecidedRequest]) -> None:
        assert self._test is not None
        answer = self._decided.pop(exchange.exchange, None)
        if answer is None:
            candidate = Candidate(
                request=exchange.request, response=exchange.response, ended=exchange, start_ns=self.start_ns
            )
            answer = self._test(candidate) is True
            request, response = exchange.request, exchange.response
            if request is not None and self.holds:
                out.append(DecidedRequest(exchange.exchange, exchange.connection, answer))
            elif request is not None and answer:
                out.append(request)
            if response is not None and answer:
                out.append(response)
        self._last = (exchange.exchange, answer)
        if answer:
            out.append(exchange)
