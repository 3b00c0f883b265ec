"""Exchanges in bulk: whole frames of many connections, cut, read and paired as columns.

Most of the traffic of a busy cluster is small requests, each in a segment of its own, answered in turn. Of connections
that had nothing else in a batch of packets, the frames, the headers of requests and which response answers which come
out of a few vectorised steps here; what is left to do for each message is its body. A connection is taken when all of
this is true, else it takes the way of all others (kafka/connection.py), which yields the same:

- it is Kafka, both streams are in step and at a frame's boundary, nothing special goes on (`KafkaConnection.is_plain`);
- every segment holds whole frames;
- its requests have known versions, expect a response, and are none of those that change how later ones are read;
- its responses answer the oldest outstanding request, each.

At its edges (responses to requests of earlier batches, requests without a response yet) frames go through the
connection's `Dialogue`, which so is always in the state that it would be in without this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from kafkasniff.accounts import InspectedConnection
from kafkasniff.bulk_frames import Bools, Frames, Headers, Ints, Views
from kafkasniff.bulk_repeats import Repeats
from kafkasniff.bulk_versions import (
    KEYS,
    NO_CODE,
    VERSIONS,
    Version,
    client_id_text,
    header_kinds,
    version_of,
    versions,
)
from kafkasniff.kafka.ahead import Ahead, BodyMaker
from kafkasniff.kafka.connection import ConnectionOptions
from kafkasniff.kafka.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.events import Event
from kafkasniff.kafka.exchange import MAX_OUTSTANDING
from kafkasniff.kafka.framing import Frame
from kafkasniff.kafka.named_apis import PRODUCE
from kafkasniff.model import Message
from kafkasniff.streams import NO_TIME, Stretch
from kafkasniff.tcp.plan import BatchPlan
from kafkasniff.tcp.reassembly import Delta

__all__ = [
    "Bulk",
    "BulkEntry",
    "Open",
    "PairColumns",
    "Pairs",
    "Taken",
    "Version",
    "client_id_text",
    "take",
    "version_of",
]

MAX_IN_SEGMENT: Final = 64
"""Frames in one segment; connections with more of them take the other way."""
PLACES: Final = 64
"""Events that one frame yields at most, for their place behind each other."""

_HEADER: Final = 10
"""Bytes of a request's header up to its client id, whose length is the last two."""

BulkEntry = tuple[
    int, int, int, InspectedConnection, "Bulk", int, int, int, int, int, int, int, int, "Version | None", int
]
"""Order, place of the connection and place within it, as the inspector sorts; connection; where the exchange is noted
(`Bulk.open`), at what index; its ordinal within the connection; the message's start, its size, the length of the client
id; correlation id; packet, time_ns; the API's version, None for a response; latency of a response."""


class Bulk:
    """What the messages of one batch have in common: `buffer` with their bytes, and their exchanges."""

    __slots__ = ("ahead", "buffer", "context", "open", "repeats")

    def __init__(self, buffer: bytes, exchanges: int, options: DecodeOptions, repeats: Repeats | None = None) -> None:
        self.buffer = buffer
        self.ahead: Ahead | None = None
        """Bodies as JSON: of requests at the exchange's index, of responses behind those of all requests."""
        self.repeats = repeats
        """Bodies that may be those of several messages."""
        if repeats is not None:
            repeats.use(options)
        self.context = DecodeContext(options)
        """Of all messages in which there is nothing to note (`message.decode_body`)."""
        self.open: list[Open | None] = [None] * exchanges
        """What a request leaves for its response, at the exchange's index; for whoever tells the messages."""


Open = tuple[int, "Version", str | bytes | None, object, Message | None]
"""What is known of an exchange whose request was told: its number, the API's version, client id, what the response is
read by, and the request, where an `Exchange` is to be told."""


class Taken(NamedTuple):
    """What came of the connections' bytes in a batch."""

    rest: list[Delta]
    """Of connections that are not taken in bulk."""
    pairs: Pairs | None = None
    edges: Sequence[tuple[int, int, int, InspectedConnection, Event]] = ()
    """What frames at the edges yield, with what the inspector sorts by; in no order."""


class PairColumns(NamedTuple):
    """Exchanges as columns of one length, by connection and in its order."""

    owners: list[InspectedConnection | None]
    connection: Ints
    """Index in `owners`."""
    ordinal: Ints
    packet: Ints
    """Of the request, with the capture's index (streams.PACKET_SHIFT)."""
    time_ns: Ints
    """Of the request."""
    code: Ints
    """`version_of` tells what it stands for."""
    correlation_id: Ints
    client_id: list[str | None]
    request_size: Ints
    response_size: Ints
    latency_ns: Ints


def take(
    deltas: list[Delta],
    plan: BatchPlan | None,
    options: ConnectionOptions,
    repeats: Repeats | None = None,
    maker: BodyMaker | None = None,
) -> Taken:
    """Take what connections yielded of a batch of packets, where all of it can be taken in bulk.

    `plan` is the batch's; `repeats`: bodies that messages may share; `maker`: makes bodies, some at a time.
    """
    # A batch may have payload alone, and of that less than the length of one frame.
    if plan is None or len(plan.batch.buffer) < _HEADER:
        return Taken(deltas)
    candidates, rest = _candidates(deltas, plan)
    if not candidates:
        return Taken(deltas)
    pairs = Pairs(candidates, plan, options, repeats, maker)
    taken = pairs.taken.tolist()
    if not any(taken):
        return Taken(deltas)
    rest += [delta for (delta, _), is_taken in zip(candidates, taken, strict=True) if not is_taken]
    edges = list(pairs.settle())
    return Taken(rest, pairs, edges)


_Candidate = tuple[Delta, tuple[int, int, int, int]]
"""What a connection yielded, and its rows: the client's first and last, the broker's."""


def _candidates(deltas: list[Delta], plan: BatchPlan) -> tuple[list[_Candidate], list[Delta]]:
    """Connections that had plain data only, and the others. Hot: once for each connection and batch."""
    candidates: list[_Candidate] = []
    rest: list[Delta] = []
    shared = plan.order
    for delta in deltas:
        tcp, items = delta
        stretch = items[0]
        connection: InspectedConnection = tcp.owner  # type: ignore[assignment]
        if (
            len(items) == 1
            and type(stretch) is Stretch
            and connection.tls is None
            and stretch.runs[0] is not None
            and stretch.runs[1] is not None
            and stretch.runs[0].order is shared
            and connection.kafka.is_plain()
        ):
            client = connection.kafka.client
            assert client is not None
            one, other = stretch.runs[client], stretch.runs[1 - client]
            assert one is not None
            assert other is not None
            candidates.append((delta, (one.first, one.last, other.first, other.last)))
        else:
            rest.append(delta)
    return candidates, rest


class Pairs:
    """Frames, headers and pairs of the connections that can be taken; `taken` says which."""

    def __init__(
        self,
        candidates: Sequence[_Candidate],
        plan: BatchPlan,
        options: ConnectionOptions,
        repeats: Repeats | None = None,
        maker: BodyMaker | None = None,
    ) -> None:
        self._candidates = candidates
        self._plan = plan
        self._options = options.detail.decode
        self._repeats = repeats
        self._maker = maker
        self._max_frame = options.max_frame
        self._views = Views(plan.batch.buffer)
        self._ranges: Ints = np.array([rows for _, rows in candidates], np.int64)
        self.taken: Bools = np.ones(len(candidates), bool)
        self.bytes = 0
        """Bytes of the streams that were taken; all of them are of messages."""
        requests = self._cut(self._ranges[:, 0], self._ranges[:, 1], _HEADER)
        responses = self._cut(self._ranges[:, 2], self._ranges[:, 3], 4)
        headers = self._headers(requests)
        self._carried = [self._owner(index).kafka.outstanding for index in range(len(candidates))]
        self._requests, self._responses, self._header = requests, responses, headers
        self._narrow()
        self._pair()

    # -- frames -----------------------------------------------------------------------------------------------------

    def _cut(self, first: Ints, last: Ints, least: int) -> Frames:
        """The frames in rows [first, last) of each connection, of at least so many bytes; refuses other connections."""
        counts = last - first
        connection = np.repeat(np.arange(len(first)), counts)
        rows = np.arange(len(connection)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        columns = self._plan.rows
        begin, length = columns.offset[rows], columns.length[rows].astype(np.int64)
        end = begin + length
        index = np.arange(len(rows))
        position = begin
        highest = len(self._views.bytes) - 4
        found: list[tuple[Ints, Ints, Ints, int]] = []
        for step in range(MAX_IN_SEGMENT):
            size = self._views.ints(np.minimum(position, highest))
            behind = position + 4 + size
            whole = (position + 4 + least <= end[index]) & (size >= least) & (size <= self._max_frame)
            whole &= behind <= end[index]
            if not whole.all():
                self.taken[connection[index[~whole]]] = False
                index, position, size, behind = index[whole], position[whole], size[whole], behind[whole]
            found.append((index, position + 4, size, step))
            going = behind < end[index]
            if not going.any():
                break
            index, position = index[going], behind[going]
        else:
            self.taken[connection[index]] = False
        index = np.concatenate([part[0] for part in found])
        start = np.concatenate([part[1] for part in found])
        size = np.concatenate([part[2] for part in found])
        step_of = np.concatenate([np.full(len(part[0]), part[3]) for part in found])
        if len(found) > 1:
            arranged = np.argsort(index, kind="stable")
            index, start, size, step_of = index[arranged], start[arranged], size[arranged], step_of[arranged]
        return Frames(rows[index], connection[index], start, size, step_of, columns.order[rows[index]])

    def _headers(self, requests: Frames) -> Headers:
        """The requests' headers; refuses connections with one that is not as most are."""
        views, start, end = self._views, requests.start, requests.start + requests.size
        key, version = views.shorts(start), views.shorts(start + 2)
        client_id = views.shorts(start + 8)
        known = (key >= 0) & (key < KEYS) & (version >= 0) & (version < VERSIONS)
        code = np.where(known, key * VERSIONS + version, NO_CODE)
        kind = header_kinds(code)
        body = start + _HEADER + np.maximum(client_id, 0) + (kind == 2)
        good = (kind > 0) & (client_id >= -1) & (body <= end)
        # The tag section of a flexible header is empty, in practice.
        good &= (kind != 2) | (views.unsigned(np.minimum(body, end) - 1) == 0)
        produce = np.flatnonzero(good & (key == PRODUCE))
        if len(produce):
            good[produce] = self._expects_response(version[produce], body[produce], end[produce])
        self.taken[requests.connection[~good]] = False
        return Headers(code, views.ints(start + 4), client_id)

    def _expects_response(self, version: Ints, body: Ints, end: Ints) -> Bools:
        """Which Produce requests have acks other than 0, which is behind the transactional id as of version 3."""
        views, last = self._views, end - 2
        compact = version >= 9
        length = np.where(compact, views.unsigned(np.minimum(body, last)), views.shorts(np.minimum(body, last)))
        behind = np.where(compact, body + np.maximum(length, 1), body + 2 + np.maximum(length, 0))
        acks_at = np.where(version >= 3, behind, body)
        good = (acks_at <= last) & ((length < 0x80) | ~compact)
        expects: Bools = good & (views.shorts(np.minimum(acks_at, last)) != 0)
        return expects

    # -- pairs ------------------------------------------------------------------------------------------------------

    def _narrow(self) -> None:
        """Forget the frames of connections that are not taken."""
        if not self.taken.all():
            chosen = self.taken[self._requests.connection]
            self._requests, self._header = self._requests.only(chosen), self._header.only(chosen)
            self._responses = self._responses.only(self.taken[self._responses.connection])

    def _pair(self) -> None:
        """Find each response's request; refuses connections where it is not the oldest outstanding one."""
        for _ in range(2):
            self._match()
            if not self._refused.any():
                return
            self.taken[self._refused] = False
            self._narrow()
        # Refused connections do not change what others' frames match.
        assert not self._refused.any()

    def _match(self) -> None:
        count = len(self._candidates)
        requests, responses, header = self._requests, self._responses, self._header
        times = self._plan.rows.time
        asked = np.bincount(requests.connection, minlength=count)
        answered = np.bincount(responses.connection, minlength=count)
        self._first_request = np.cumsum(asked) - asked
        first_response = np.cumsum(answered) - answered
        carried = np.array([len(waiting) for waiting in self._carried], np.int64)
        self._refused: Bools = np.zeros(count, bool)
        nth = np.arange(len(responses.row)) - first_response[responses.connection]
        # Among the requests of this batch; below zero: the response to one of an earlier batch.
        turn = nth - carried[responses.connection]
        there = turn < asked[responses.connection]
        self._paired: Bools = there & (turn >= 0)
        self._refused[responses.connection[~there]] = True
        request = np.where(self._paired, self._first_request[responses.connection] + turn, 0)
        correlation_id = self._views.ints(responses.start)
        sent, came = times[requests.row], times[responses.row]
        self._latency = np.zeros(len(nth), np.int64)
        if len(requests.row):
            fits = correlation_id == header.correlation_id[request]
            fits &= responses.order > requests.order[request]
            fits &= (came != NO_TIME) & (sent[request] != NO_TIME)
            np.subtract(came, sent[request], out=self._latency, where=fits)
            fits &= self._latency >= 0
            self._refused[responses.connection[self._paired & ~fits]] = True
        self._request_of, self._correlation_id = request, correlation_id
        self._pairs = np.bincount(responses.connection[self._paired], minlength=count)
        # Nothing is gained where there is no pair.
        self._refused |= self._pairs == 0
        self._refused &= self.taken
        early = np.flatnonzero(there & (turn < 0))
        for index in early.tolist():
            connection = int(responses.connection[index])
            if self._carried[connection][int(nth[index])].correlation_id != correlation_id[index]:
                self._refused[connection] = True
        # How many requests were outstanding when each response came, this one's included.
        wide = int(max(requests.order.max(initial=0), responses.order.max(initial=0))) + 1
        before = np.searchsorted(
            requests.connection * wide + requests.order, responses.connection * wide + responses.order
        )
        waiting = before - self._first_request[responses.connection] - turn
        self._most = np.zeros(count, np.int64)
        np.maximum.at(self._most, responses.connection, waiting)
        self._refused |= self.taken & (self._most > MAX_OUTSTANDING)

    # -- results ----------------------------------------------------------------------------------------------------

    def settle(self) -> Iterator[tuple[int, int, int, InspectedConnection, Event]]:
        """Bring the connections into the state behind these frames; yields the events of those at the edges."""
        requests, responses, header = self._requests, self._responses, self._header
        columns = self._plan.rows
        buffer = self._plan.batch.buffer
        is_open = np.ones(len(requests.row), bool)
        is_open[self._request_of[self._paired]] = False
        edges: dict[int, list[tuple[int, int, Frame]]] = {}
        for frames, chosen, is_request in (
            (responses, np.flatnonzero(~self._paired), False),
            (requests, np.flatnonzero(is_open), True),
        ):
            for index in chosen.tolist():
                connection = int(frames.connection[index])
                kafka = self._owner(connection).kafka
                assert kafka.client is not None
                row, start, size = int(frames.row[index]), int(frames.start[index]), int(frames.size[index])
                order, packet, time_ns = int(frames.order[index]), int(columns.packet[row]), int(columns.time[row])
                direction = kafka.client if is_request else 1 - kafka.client
                place = packet, packet, time_ns, time_ns, packet
                frame = Frame(order, direction, buffer, start, start + size, size, *place)
                edges.setdefault(connection, []).append((order, int(frames.step[index]), frame))
        count = len(self._candidates)
        self._ordinal = np.zeros(count, np.int64)
        ranges = self._ranges
        last = ranges[:, [1, 3]] - 1
        lengths = columns.end_at[last] - columns.end_at[ranges[:, [0, 2]]] + columns.length[ranges[:, [0, 2]]]
        # Of each connection's last packet with a frame, and its last response.
        latest = np.where(columns.order[last[:, 0]] > columns.order[last[:, 1]], last[:, 0], last[:, 1])
        behind = np.cumsum(np.bincount(responses.connection, minlength=count)) - 1
        answers = self._correlation_id[np.maximum(behind, 0)] if len(responses.row) else behind
        self.bytes = int(lengths[self.taken].sum())
        steps = zip(
            self.taken.tolist(),
            self._first_request.tolist(),
            self._pairs.tolist(),
            lengths.tolist(),
            self._most.tolist(),
            columns.order[latest].tolist(),
            columns.time[latest].tolist(),
            columns.packet[latest].tolist(),
            answers.tolist(),
            strict=True,
        )
        ids = header.correlation_id.tolist()
        falls = (header.correlation_id[1:] <= header.correlation_id[:-1]) & (
            requests.connection[1:] == requests.connection[:-1]
        )
        falling = set(requests.connection[1:][falls].tolist())
        for index, (is_taken, first, pairs, sizes, most, order, time_ns, packet, answer) in enumerate(steps):
            if not is_taken:
                continue
            owner = self._owner(index)
            kafka = owner.kafka
            self._ordinal[index] = kafka.next_ordinal
            client_bytes, broker_bytes = sizes
            kafka.take_pairs(ids[first : first + pairs], client_bytes, broker_bytes, most, index not in falling)
            if index in edges:
                for _, step, frame in sorted(edges[index], key=itemgetter(0, 1)):
                    for number, event in enumerate(kafka.take_edge(frame)):
                        yield event.order, owner.place, step * PLACES + number, owner, event
            kafka.end_pairs(order, time_ns, packet, answer)

    def _owner(self, index: int) -> InspectedConnection:
        owner = self._candidates[index][0][0].owner
        assert isinstance(owner, InspectedConnection)
        return owner

    def __len__(self) -> int:
        return int(np.count_nonzero(self._paired))

    def entries(self, chosen: Bools | None = None) -> list[BulkEntry]:
        """The messages of all pairs, or of those chosen; after `settle`."""
        requests, responses, header, columns = self._requests, self._responses, self._header, self._plan.rows
        answer = np.flatnonzero(self._paired)
        if chosen is not None:
            answer = answer[chosen]
        ask = self._request_of[answer]
        count = len(ask)
        bulk = Bulk(self._plan.batch.buffer, count, self._options, self._repeats)
        owners = self._owners()
        place = np.array([0 if owner is None else owner.place for owner in owners], np.int64)

        def both(one: Ints, other: Ints) -> Ints:
            return np.concatenate((one, other))

        row = both(requests.row[ask], responses.row[answer])
        order = columns.order[row]
        connection = both(requests.connection[ask], responses.connection[answer])
        within = both(requests.step[ask], responses.step[answer]) * PLACES
        nothing = np.zeros(count, np.int64)
        sorted_by = np.lexsort((within, place[connection], order))
        ordinal = self._ordinals(ask)
        numbers: list[Ints] = [
            both(np.arange(count), np.arange(count)),
            both(ordinal, ordinal),
            both(requests.start[ask], responses.start[answer]),
            both(requests.size[ask], responses.size[answer]),
            both(header.client_id[ask], nothing),
            both(header.correlation_id[ask], self._correlation_id[answer]),
            columns.packet[row],
            columns.time[row],
        ]
        code, latency = both(header.code[ask], nothing - 1), both(nothing, self._latency[answer])
        if self._maker is not None and self._maker.use(self._options):
            bulk.ahead = self._ahead(self._maker, ask, answer, sorted_by)
        arranged = connection[sorted_by]
        found = zip(
            order[sorted_by].tolist(),
            place[arranged].tolist(),
            within[sorted_by].tolist(),
            map(owners.__getitem__, arranged.tolist()),
            repeat(bulk),
            *(column[sorted_by].tolist() for column in numbers),
            map(versions(code).__getitem__, code[sorted_by].tolist()),
            latency[sorted_by].tolist(),
            strict=False,  # `repeat` has no end
        )
        return list(found)

    def _ahead(self, maker: BodyMaker, ask: Ints, answer: Ints, order: Ints) -> Ahead:
        """The bodies of these requests and responses, which are told in this order."""
        requests, responses, header = self._requests, self._responses, self._header
        code = header.code[ask]
        programs = np.zeros((2, NO_CODE + 1), np.uint64)
        flexible = np.zeros((2, NO_CODE + 1), np.int64)
        for one, version in versions(code).items():
            assert version is not None
            for row, (direction, tags) in enumerate(
                (("request", version.flexible), ("response", version.flexible_response))
            ):
                program = maker.program(version.key, version.version, direction)  # type: ignore[arg-type]
                programs[row, one] = 0 if program is None else program.address
                flexible[row, one] = tags
        asked, answered = requests.start[ask], responses.start[answer]
        answer_end = answered + responses.size[answer]
        body = answered + 4
        # The tag section of a flexible header is empty, in practice.
        tags = flexible[1, code]
        first = self._views.unsigned(np.minimum(body, answer_end - 1))
        answer_programs = np.where((tags == 0) | ((body < answer_end) & (first == 0)), programs[1, code], 0)
        return Ahead(
            maker,
            self._plan.batch.buffer,
            np.concatenate((programs[0, code], answer_programs.astype(np.uint64))),
            np.concatenate((asked, answered)),
            np.concatenate((asked + _HEADER + np.maximum(header.client_id[ask], 0) + flexible[0, code], body + tags)),
            np.concatenate((asked + requests.size[ask], answer_end)),
            order,
        )

    def columns(self) -> tuple[PairColumns, list[BulkEntry]]:
        """All pairs as columns; as messages those with a client id that is not text, of which that is to be told."""
        requests, header, columns = self._requests, self._header, self._plan.rows
        answer = np.flatnonzero(self._paired)
        ask = self._request_of[answer]
        buffer = self._plan.batch.buffer
        begin = requests.start[ask] + _HEADER
        length = header.client_id[ask]
        client_ids: list[str | bytes | None] = [
            None if size < 0 else client_id_text(buffer[start : start + size])
            for start, size in zip(begin.tolist(), length.tolist(), strict=True)
        ]
        odd = np.array([one.__class__ is bytes for one in client_ids], bool)
        entries: list[BulkEntry] = []
        if odd.any():
            entries = self.entries(odd)
            answer, ask = answer[~odd], ask[~odd]
        row = requests.row[ask]
        return PairColumns(
            self._owners(),
            requests.connection[ask],
            self._ordinals(ask),
            columns.packet[row],
            columns.time[row],
            header.code[ask],
            header.correlation_id[ask],
            [one for one in client_ids if not isinstance(one, bytes)],
            requests.size[ask],
            self._responses.size[answer],
            self._latency[answer],
        ), entries

    def _owners(self) -> list[InspectedConnection | None]:
        return [self._owner(index) if is_taken else None for index, is_taken in enumerate(self.taken.tolist())]

    def _ordinals(self, ask: Ints) -> Ints:
        """Ordinals within their connections of the exchanges with these requests."""
        connection = self._requests.connection[ask]
        ordinal: Ints = self._ordinal[connection] + ask - self._first_request[connection]
        return ordinal
