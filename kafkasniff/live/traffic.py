"""Rates and latencies of rows, and what messages say besides: records of topics, lag of groups, requests that wait.

`topic_traffic` finds in the definitions where records are. Requests with records produce, and so do their responses;
responses with records to requests without any fetch. The question `analyze lag` also knows what was produced and
fetched, from tables.

Counts cover a sliding window of the packet clock: a ring of one-second slots; slots that leave the ring are added to
the sums since the start. Latencies are counted in the buckets of `analysis.percentiles`, so any slots merge exactly.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from kafkasniff.analysis.percentiles import percentiles
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.dissectors import COMMITS, FETCH
from kafkasniff.kafka.apis.entities import mentions, text
from kafkasniff.kafka.connection.waits import UNLIMITED_NS, wait_of
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.model import Body, Direction, Exchange, Message

SLOT_NS: Final = 1_000_000_000
WINDOW_SLOTS: Final = 10
"""Number of slots that rates and latencies cover."""
TREND_SLOTS: Final = 60
"""Number of slots that a sparkline shows."""

_BITS: Final = 7
"""As in `analysis.percentiles`."""

_Key = TypeVar("_Key", bound=Hashable)
_Entry = TypeVar("_Entry", bound="Entry")


def latency_bucket(microseconds: int) -> int:
    """`analysis.percentiles.bucket_of` of one value, without arrays. Hot."""
    magnitude = microseconds if microseconds >= 0 else -microseconds
    shift = magnitude.bit_length() - 1 - _BITS
    bucket = shift * (1 << _BITS) + (magnitude >> shift) if shift > 0 else magnitude
    return bucket if microseconds >= 0 else -bucket


def latency_quantiles(groups: Sequence[dict[int, int]], quantiles: Sequence[float]) -> list[list[int] | None]:
    """For each dictionary bucket → count, the quantiles in microseconds; None if it is empty."""
    filled = [index for index, group in enumerate(groups) if group]
    found: list[list[int] | None] = [None] * len(groups)
    if not filled:
        return found
    number = np.repeat(np.arange(len(filled)), [len(groups[index]) for index in filled])
    buckets = np.array([bucket for index in filled for bucket in groups[index]], np.int64)
    counts = np.array([count for index in filled for count in groups[index].values()], np.int64)
    columns = percentiles(number, buckets, counts, quantiles, len(filled))
    for place, index in enumerate(filled):
        found[index] = [int(column[place]) for column in columns]
    return found


class Counts:
    """Counts of an API, a client, a topic or a connection within some time. Sizes in bytes."""

    __slots__ = (
        "errors",
        "fetched",
        "latency",
        "latency_max",
        "latency_sum",
        "measured",
        "poll_sum",
        "polls",
        "produced",
        "received",
        "requests",
        "responses",
        "sent",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.errors = 0
        """Responses with an error code; for a topic: its partitions in responses with one."""
        self.sent = 0
        """By clients."""
        self.received = 0
        """By clients."""
        self.produced = 0
        """Records."""
        self.fetched = 0
        self.measured = 0
        """Responses with a known latency."""
        self.latency_sum = 0
        """In microseconds."""
        self.polls = 0
        """Responses to requests that ask the broker to wait (long polls), which have no latency."""
        self.poll_sum = 0
        """Their time in microseconds."""
        self.latency_max = 0
        self.latency: dict[int, int] = {}
        """Bucket → responses, if latencies are counted in buckets."""

    def add(self, more: Counts, *, latency: bool = True) -> None:
        """Add the counts of another one; its buckets only if `latency`."""
        self.requests += more.requests
        self.responses += more.responses
        self.errors += more.errors
        self.sent += more.sent
        self.received += more.received
        self.produced += more.produced
        self.fetched += more.fetched
        self.measured += more.measured
        self.latency_sum += more.latency_sum
        self.polls += more.polls
        self.poll_sum += more.poll_sum
        self.latency_max = max(self.latency_max, more.latency_max)
        if latency:
            own = self.latency
            for bucket, count in more.latency.items():
                own[bucket] = own.get(bucket, 0) + count


Load = tuple[int, int, int, int]
"""Requests, errors, latencies known and their sum in microseconds, within a slot."""


class Entry:
    """The counts of one subject: those of the window's slots, the sum of earlier ones, and the load of the last."""

    __slots__ = ("_loads", "_past", "_ring", "now", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        """Slot of the last event."""
        self.now = Counts()
        """Counts of that slot."""
        self._ring: list[tuple[int, Counts]] = [(slot, self.now)]
        self._past = Counts()
        self._loads: deque[tuple[int, Load]] = deque(maxlen=TREND_SLOTS - WINDOW_SLOTS)
        """Loads of slots that left the window."""

    def at(self, slot: int) -> Counts:
        """The counts of a slot; those of the last one if the clock goes back. Hot."""
        if slot > self.slot:
            first = slot - WINDOW_SLOTS
            while self._ring and self._ring[0][0] <= first:
                before, counts = self._ring.pop(0)
                self._past.add(counts, latency=False)
                self._loads.append((before, _load(counts)))
            self.slot = slot
            self.now = Counts()
            self._ring.append((slot, self.now))
        return self.now

    def window(self, slot: int, *, latency: bool = False) -> Counts:
        """Counts of the window that ends with this slot; with latency buckets if `latency`."""
        counts = Counts()
        if self.slot > slot - WINDOW_SLOTS:
            for at, more in self._ring:
                if at > slot - WINDOW_SLOTS:
                    counts.add(more, latency=latency)
        return counts

    def loads(self, slot: int) -> Iterator[tuple[int, Load]]:
        """What happened in each of the `TREND_SLOTS` up to this one, by its place; silent slots are skipped."""
        first = slot - TREND_SLOTS + 1
        for at, load in self._loads:
            if at >= first:
                yield at - first, load
        for at, counts in self._ring:
            if at >= first:
                yield at - first, _load(counts)

    def total(self) -> Counts:
        """Counts since the start, without latency buckets."""
        counts = Counts()
        counts.add(self._past, latency=False)
        for _, more in self._ring:
            counts.add(more, latency=False)
        return counts

    def absorb(self, others: Iterable[Entry]) -> None:
        """Add another's counts since the start to the earlier ones."""
        for other in others:
            self._past.add(other.total(), latency=False)


def _load(counts: Counts) -> Load:
    return counts.requests, counts.errors, counts.measured, counts.latency_sum


class BoundedTable(Generic[_Key, _Entry]):
    """Entries by key, at most `bound` of them; excess entries are counted in `other`.

    If the table is full, entries that were silent for a window are folded into `other` to make room. `make` creates an
    entry for a slot.
    """

    def __init__(self, bound: int, make: Callable[[int], _Entry]) -> None:
        self._bound = bound
        self._make = make
        self._entries: dict[_Key, _Entry] = {}
        self._looked: int | None = None
        """Slot in which silent entries were last searched for: once per slot, so that newcomers stay cheap."""
        self.other: _Entry | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[_Key, _Entry]]:
        return iter(self._entries.items())

    def get(self, key: _Key) -> _Entry | None:
        """The entry of a key; None if it has none of its own."""
        return self._entries.get(key)

    def at(self, key: _Key, slot: int) -> _Entry:
        """The entry of a key, or `other`, for an event in a slot. Hot."""
        entry = self._entries.get(key)
        return entry if entry is not None else self._admit(key, slot)

    def _admit(self, key: _Key, slot: int) -> _Entry:
        if len(self._entries) >= self._bound and (self._looked is None or slot > self._looked):
            self._looked = slot
            silent = [one for one, entry in self._entries.items() if entry.slot <= slot - WINDOW_SLOTS]
            if silent:
                self._rest(slot).absorb(self._entries.pop(one) for one in silent)
        if len(self._entries) >= self._bound:
            return self._rest(slot)
        entry = self._entries[key] = self._make(slot)
        return entry

    def _rest(self, slot: int) -> _Entry:
        if self.other is None:
            self.other = self._make(slot)
        return self.other


PRODUCED: Final = "produced"
FETCHED: Final = "fetched"

BATCH_OVERHEAD: Final = 12
"""Bytes before those that `batch_length` counts: base offset and the length itself, alike in all three formats."""


class TopicTraffic(NamedTuple):
    """The data of one message for one topic."""

    topic: str | bytes
    """Its name; its id if no name is known."""
    flow: str
    """PRODUCED or FETCHED."""
    records: int
    """Records of batches with a known count; compressed message sets (before 0.11) have none."""
    bytes: int
    """Bytes of the batches, as on the wire."""
    errors: int
    """Partitions with an error code."""


class _CountedStruct(NamedTuple):
    """What counts in a struct, over all versions, and the nested structs in which something does."""

    topic: tuple[str, ...]
    """Fields with the topic's name, or its id; the first one that exists."""
    error: str | None
    records: tuple[str, ...]
    inner: tuple[tuple[str, _CountedStruct], ...]


@lru_cache(maxsize=1024)  # keys come from the wire
def _place_of(api_key: int | None, direction: Direction) -> tuple[_CountedStruct, str] | None:
    """Where messages carry records of topics, or answer those that do, and the direction of the records."""
    api = None if api_key is None else dissectors.api(api_key)
    if api is None:
        return None
    request, response = api.definition.request, api.definition.response
    produces = _carries(request.fields)
    if not produces and (direction == "request" or not _carries(response.fields)):
        return None
    place = _place(request.fields if direction == "request" else response.fields)
    return place, PRODUCED if produces else FETCHED


def _carries(fields: tuple[FieldDefinition, ...]) -> bool:
    """Whether there are records other than slices of files (FetchSnapshot)."""
    return any((field.type == "records" and not field.unaligned) or _carries(field.fields) for field in fields)


def _place(fields: tuple[FieldDefinition, ...]) -> _CountedStruct:
    names = [field.name for field in fields if field.entity == "topic_name" and not field.array]
    ids = [field.name for field in fields if field.name == "topic_id" and field.type == "uuid"]
    error = next((field.name for field in fields if field.type == "error" and not field.array), None)
    records = tuple(field.name for field in fields if field.type == "records" and not field.unaligned)
    below = [(field.name, _place(field.fields)) for field in fields if field.fields]
    inner = tuple((name, place) for name, place in below if any(place))
    named = (*names, "_topic_name", *ids) if (names or ids) and (error or records or inner) else ()
    return _CountedStruct(named, error, records, inner)


def topic_traffic(message: Message) -> list[TopicTraffic]:
    """One entry for each topic of the message, none for messages without records. Hot: once per message."""
    found = _place_of(message.api_key, message.type)
    if found is None or message.body is None:
        return []
    place, flow = found
    counts: list[_Counts] = []
    _count(place, message.body, None, counts)
    return [TopicTraffic(topic, flow, records, size, errors) for topic, records, size, errors in counts]


_Counts = list[Any]
"""A topic, and its records, bytes and errors so far."""


def _count(place: _CountedStruct, struct: dict[str, Any], into: _Counts | None, counts: list[_Counts]) -> None:
    """Count the contents of a struct; `into`: for the topic that an enclosing struct names. Hot."""
    topic, error, records, inner = place
    if topic:
        into = None
        for field in topic:
            name = struct.get(field)
            if name is not None:
                if isinstance(name, str | bytes):
                    into = [name, 0, 0, 0]
                    counts.append(into)
                break
    if into is not None:
        if error is not None and struct.get(error):
            into[3] += 1
        for field in records:
            value = struct.get(field)
            for held in value if value.__class__ is list else (value,):
                if isinstance(held, dict):
                    for batch in held["batches"]:
                        into[1] += batch.get("record_count") or 0
                        into[2] += BATCH_OVERHEAD + batch["batch_length"]
    for field, below in inner:
        value = struct.get(field)
        # A truncated body may lack it, or end in a struct that does.
        for one in value if value.__class__ is list else (value,):
            if one.__class__ is dict:
                _count(below, one, into, counts)


MAX_COMMITS: Final = 1 << 12
"""Partitions of groups whose committed offsets are kept; each is a row or a time series."""
MAX_CONSUMERS: Final = 1 << 12
"""Consumers whose group is kept; those first seen are forgotten."""
MAX_ENDS: Final = 1 << 14
"""Partitions whose ends are kept."""

_Partition = tuple[str, int]


class GroupLag(NamedTuple):
    """One partition of a group. Names are as on the wire."""

    group: str
    topic: str
    partition: int
    committed: int
    """The last offset that the group committed, or that a broker said it had."""
    end: int
    """The high watermark of the last Fetch response."""

    @property
    def lag(self) -> int:
        """Records from the one to the other; 0 if the end is older than the commit."""
        return max(self.end - self.committed, 0)


class ClientGroups:
    """The group of a consumer, which its commits and heartbeats name, and its Fetch requests do not.

    A consumer is a client id at an address. If it named several groups, which one it fetches for is unknown.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str | bytes | None, str], str] = {}

    def of(self, request: Message | None) -> str:
        """The group that a request names, or whose member fetches; empty if unknown. Hot: once per exchange."""
        if request is None:
            return ""
        named = None if request.body is None else request.body.get("group_id")
        group = named if isinstance(named, str) else ""
        if request.client is None or not (group or request.api_key == FETCH):
            return group
        client = request.client_id, request.client.address
        known = self._groups.get(client)
        if not group:
            return known or ""
        if known is None:
            if len(self._groups) >= MAX_CONSUMERS:
                del self._groups[next(iter(self._groups))]
            self._groups[client] = group
        elif known != group:
            self._groups[client] = ""
        return group


class GroupLags:
    """Takes exchanges as they end. Above its bounds, it forgets what was committed longest ago, or first seen."""

    def __init__(self) -> None:
        self._commits: OrderedDict[tuple[str, _Partition], int] = OrderedDict()
        self._ends: dict[_Partition, int] = {}

    def feed(self, exchange: Exchange) -> None:
        """Take an exchange."""
        response = exchange.response
        if response is None:
            return
        if response.api_key == FETCH:
            self._fetched(response.body)
        elif response.api_key in COMMITS:
            named = mentions(exchange.request, response)
            # An OffsetFetch of several groups (v8) does not say here which partition belongs to which.
            if len(named.groups) == 1:
                (group,) = named.groups
                for facts in named.partitions.values():
                    # An id without a name cannot be matched with commits by name.
                    offset = -1 if facts.offset is None else facts.offset
                    if offset >= 0 and facts.topic is not None and facts.error_code == 0:
                        self._commit((group, (facts.topic, facts.partition)), offset)

    def _commit(self, key: tuple[str, _Partition], offset: int) -> None:
        self._commits[key] = offset
        self._commits.move_to_end(key)
        if len(self._commits) > MAX_COMMITS:
            self._commits.popitem(last=False)

    def _fetched(self, body: Body | None) -> None:
        """Take the watermarks of a Fetch response. Hot: `mentions` would take more than twice as long.

        A truncated body lacks fields.
        """
        ends = self._ends
        for topic in () if body is None else body.get("responses") or ():
            name = text(topic.get("topic", topic.get("_topic_name")))
            if name is None:
                continue
            for one in topic.get("partitions") or ():
                watermark = one.get("high_watermark", -1)
                if watermark >= 0 and one["error_code"] == 0:
                    partition = (name, one["partition_index"])
                    if partition not in ends and len(ends) >= MAX_ENDS:
                        # If somebody still fetches it, it soon comes back.
                        del ends[next(iter(ends))]
                    ends[partition] = watermark

    def rows(self) -> Iterator[GroupLag]:
        """The partitions of which both a commit and an end are known."""
        for (group, partition), committed in self._commits.items():
            end = self._ends.get(partition)
            if end is not None:
                yield GroupLag(group, *partition, committed, end)


MAX_OUTSTANDING: Final = 65_536
"""Maximum number of requests that are kept; later ones are only counted. A client has five in flight by default."""


class OpenRequests:
    """Requests by exchange, in order of completion; fed with messages and the ends of exchanges."""

    def __init__(self) -> None:
        self._waiting: dict[int, Message] = {}
        self.overlooked = 0
        """Number of requests above the bound."""

    def __len__(self) -> int:
        return len(self._waiting)

    def message(self, message: Message) -> Message | None:
        """A request waits, or a response has arrived; returns the request of a response if it is known. Hot."""
        number = message.exchange
        if number is None:
            return None
        if message.type == "response":
            return self._waiting.pop(number, None)
        elif len(self._waiting) < MAX_OUTSTANDING:
            # The inspector keeps the request itself until the exchange is over, so this costs no more.
            self._waiting[number] = message
        else:
            self.overlooked += 1
        return None

    def exchange(self, exchange: Exchange) -> None:
        """An exchange is over, with or without a response."""
        self._waiting.pop(exchange.exchange, None)

    def since(self, time_ns: int) -> Iterator[Message]:
        """Requests that were complete by this time, in order of completion; those without a time are skipped."""
        for message in self._waiting.values():
            # No early end: requests that waited for their connection's verdict follow younger ones.
            if message.time_ns is not None and message.time_ns <= time_ns:
                yield message

    def overdue(self, time_ns: int) -> Iterator[Message]:
        """The same, without those whose broker may still wait by then as requested (`connection.waits`)."""
        for message in self.since(time_ns):
            wait = wait_of(message.api_key, message.body, None, 0, 0)
            if wait is None or wait.reason == "replicas":
                yield message
            elif message.time_ns is not None:
                limit = UNLIMITED_NS if wait.limit_ns is None else wait.limit_ns
                if message.time_ns + limit <= time_ns:
                    yield message
