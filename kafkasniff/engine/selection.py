"""Which messages of connections in step a filter selects, decided from columns before anything is decoded or rendered.

Headers, sizes and latencies are columns of the feed (`native.feed.MESSAGE`). If they leave the answer open, the kernel
reads error codes, topics and the like from bodies (`kernel/exchanges.zig`). Exchanges that the columns do not settle
are left to Python: a `filters.Selector` is asked with their decoded messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.asked_columns import BODY_FIELDS, HEADER_FIELDS, AskedBatch, AskedColumns, ReadFacts
from kafkasniff.engine.message_table import Messages
from kafkasniff.engine.roles import ExchangeKinds, settle_choices
from kafkasniff.engine.selected_messages import DEFERRED, REJECTED, SELECTED, UNDECIDED
from kafkasniff.engine.stream_messages import HELD
from kafkasniff.engine.versions import distinct
from kafkasniff.enrich.plan import reads_nothing
from kafkasniff.filters import Predicate, Selector, fields_of
from kafkasniff.filters.columns import NONE as OPEN
from kafkasniff.filters.columns import TRUE, column_test
from kafkasniff.kafka.messages.rendered import wordings
from kafkasniff.native.exchanges import PAIR, ExchangeReader
from kafkasniff.native.feed import MAX_FRAME, NONE, REQUEST, VERSIONS
from kafkasniff.native.library import Kernel
from kafkasniff.native.names import NameFacts

LEAST_TOPIC: Final = 18
"""Fewest bytes of a message that name a topic: its id, and a name of one character."""

NAMED_FIELDS: Final = frozenset({"topic", "partition"})
"""Fields with values that earlier messages add to a request: names of topic ids, topics of a fetch session."""

Answers = NDArray[np.uint8]


class RoomForNames(NameFacts, Protocol):
    """Names of topic ids (`sinks.native_names.AddedNames`)."""

    @property
    def room(self) -> int:
        """Number of topics that can be learned before others are evicted."""


def asks_columns(predicate: Predicate) -> bool:
    """Whether columns can answer any part of a predicate."""
    return not fields_of(predicate).isdisjoint(HEADER_FIELDS | BODY_FIELDS)


class FactReader:
    """Reads the values of fields that are in headers and in bodies.

    `names`: of topic ids, as far as earlier batches named them; exchanges with other ids have no facts, unless topics
    are not asked for (`unnamed`), and without names none with ids has.
    """

    def __init__(
        self, kernel: Kernel, names: RoomForNames | None, *, show_secrets: bool, unnamed: bool = False
    ) -> None:
        self._kernel = kernel
        self._unnamed = unnamed
        self._names = names
        self._show_secrets = show_secrets
        self.kinds = ExchangeKinds(kernel, show_secrets=show_secrets, names=names is not None)
        self._readers: dict[bool, ExchangeReader] = {}
        """For headers alone, and for bodies."""

    def has_bodies(self, columns: AskedColumns) -> NDArray[np.bool_]:
        """Which of these exchanges are of a kind whose bodies can be read."""
        messages = columns.batch.messages
        # No name may be evicted by others that these messages teach.
        size = len(messages.buffer) + len(messages.arena)
        if self._names is not None and self._names.room * LEAST_TOPIC <= size:
            return np.zeros(len(columns), bool)
        return self.kinds.are_known(messages.rows["code"][columns.asked].astype(np.int64))

    def parts(self, columns: AskedColumns, *, headers: bool) -> Iterator[AskedColumns]:
        """The same exchanges with `facts`, in consecutive parts; `headers`: only those of headers are needed."""
        reader = self._reader(headers)
        pairs = np.zeros(len(columns), PAIR)
        pairs["request"], pairs["response"] = columns.asked, NONE if columns.answered is None else columns.answered
        messages = columns.batch.messages
        first = 0
        while first < len(pairs):
            facts, last = reader.read(messages.rows, messages.buffer, messages.arena, pairs, first)
            codes = messages.rows["code"][pairs["request"][facts.rows["pair"]]].astype(np.int64)
            if not headers:
                settle_choices(facts.rows, codes, self.kinds.known)
            part = columns.take(np.arange(first, last))
            part.facts = ReadFacts(facts, self.kinds.known, first, last, headers)
            yield part
            first = last

    def _reader(self, headers: bool) -> ExchangeReader:
        found = self._readers.get(headers)
        if found is None:
            found = self._readers[headers] = ExchangeReader(
                self._kernel,
                self.kinds.programs,
                headers=headers,
                show_secrets=self._show_secrets,
                most=MAX_FRAME,
                names=None if headers else self._names,
                unnamed=self._unnamed,
                problems=None if headers else (wordings(), self.kinds.careful),
            )
        return found


class Selection:
    """Asks a predicate about messages of the feed; `selector` answers for those that are left to Python.

    `names`: see `FactReader`.
    `writes`: selected messages have lines; else they are left to Python, and the kernel reads the others.
    """

    def __init__(
        self,
        predicate: Predicate,
        selector: Selector,
        kernel: Kernel,
        names: RoomForNames | None = None,
        *,
        show_secrets: bool,
        writes: bool,
    ) -> None:
        self._test = column_test(predicate)
        self._selector = selector
        self._writes = writes
        fields = fields_of(predicate)
        self._asks_client_id = "client_id" in fields
        self._asks_bodies = not fields.isdisjoint(BODY_FIELDS)
        self._ignores_names = fields <= (HEADER_FIELDS | BODY_FIELDS) - NAMED_FIELDS
        self._facts = FactReader(kernel, names, show_secrets=show_secrets, unnamed=self._ignores_names)
        self._movable: dict[int, bool] = {}

    def pin(self, exchange: int, answer: bool) -> None:
        """Record the answer for an exchange whose messages will be left to Python."""
        self._selector.pin(exchange, answer)

    def unpin(self, exchange: int) -> None:
        """Forget an exchange whose messages were taken."""
        self._selector.unpin(exchange)

    def can_move(self, code: int) -> bool:
        """Whether requests may have their lines later: nothing is added to them or learnt from them."""
        found = self._movable.get(code)
        if found is None:
            found = self._movable[code] = reads_nothing(*divmod(code, VERSIONS), "request")
        return found

    def requests(self, messages: Messages, capture: Callable[[int], str | None]) -> Answers:
        """The answers for requests whose responses come later: `SELECTED`, `REJECTED`, `HELD` or `UNDECIDED`.

        There is an entry for each message; those of other messages have no answer.
        """
        rows = messages.rows
        found = np.full(len(rows), UNDECIDED, np.uint8)
        index = np.flatnonzero((rows["pair"] == NONE) & ((rows["flags"] & REQUEST) > 0))
        if not len(index):
            return found
        found[index] = self._answers(AskedColumns(self._batch(messages, capture), index, None))
        if self._selector.holds and self._writes:
            # If the response leaves it open, too, the request is decoded by then, without what was added to it.
            codes = rows["code"][index].astype(np.int64)
            waits = {code: self._ignores_names or self.can_move(code) for code in distinct(codes)}
            found[index[(found[index] == UNDECIDED) & np.array([waits[code] for code in codes.tolist()])]] = HELD
        return found

    def exchanges(self, messages: Messages, answers: NDArray[np.intp], capture: Callable[[int], str | None]) -> Answers:
        """The answers for the exchanges of these responses, whose requests are among the messages; or `DEFERRED`."""
        asked = messages.rows["pair"][answers].astype(np.intp)
        return self._answers(AskedColumns(self._batch(messages, capture), asked, answers))

    def _batch(self, messages: Messages, capture: Callable[[int], str | None]) -> AskedBatch:
        return AskedBatch(messages, capture, self._selector.start_ns)

    def _answers(self, everything: AskedColumns) -> Answers:
        if self._asks_client_id:
            found = self._read(everything, headers=True)
        else:
            found = self._ask(everything)
        if self._asks_bodies:
            open_ = np.flatnonzero(found == UNDECIDED)
            open_ = open_[self._facts.has_bodies(everything.take(open_))]
            if len(open_):
                found[open_] = self._read(everything.take(open_), headers=False)
        if not self._writes:
            found[found != REJECTED] = UNDECIDED
        return found

    def _ask(self, columns: AskedColumns) -> Answers:
        """The answers that these columns give."""
        found = np.full(len(columns), UNDECIDED, np.uint8)
        asked = self._test(columns, False)
        if columns.answered is None:
            found[asked.high < OPEN] = REJECTED
        else:
            ended = self._test(columns, True)
            # Answers to which the response added nothing stay.
            found[(ended.low == TRUE) & (asked.high < TRUE)] = SELECTED if self._selector.holds else DEFERRED
            found[ended.high < TRUE] = REJECTED
        found[asked.low == TRUE] = SELECTED
        return found

    def _read(self, columns: AskedColumns, *, headers: bool) -> Answers:
        """The same with the values that the kernel reads from headers, or from bodies."""
        parts = self._facts.parts(columns, headers=headers)
        return np.concatenate([np.empty(0, np.uint8), *map(self._ask, parts)])
