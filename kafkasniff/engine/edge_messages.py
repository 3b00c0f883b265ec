"""Messages whose exchange begins or ends in another batch of packets.

They become events as in Python (`edges`), so that the state of an open exchange is always in one place. If exchanges
become lines or columns, they wait as columns (`plain_edges`, `whole`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.in_step_messages import EVENTS, HEADER, Edges, Entry, Messages
from kafkasniff.engine.kernel_connections import KernelConnections
from kafkasniff.engine.outstanding import HIDDEN, ROW, keys_of
from kafkasniff.engine.versions import distinct
from kafkasniff.kafka.connection.events import ExchangeEvent, MessageEvent
from kafkasniff.kafka.connection.exchange import Pending
from kafkasniff.kafka.connection.framing import Frame
from kafkasniff.kafka.connection.opening import GREETING
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.native.feed import ARENA, ENDED, KEYS, NONE, REQUEST, SILENT, VERSIONS
from kafkasniff.native.rows import joined

__all__ = ["EdgeMessages"]

MAX_BEGUN: Final = 16 << 10
MAX_BEGUN_BYTES: Final = 16 << 20
"""Bytes of a request that waits as a column with its body, and of all of them; larger ones are events."""


class EdgeMessages:
    """Reads the messages at the edges of batches."""

    def __init__(self, kernel: KernelConnections, options: ConnectionOptions) -> None:
        self._kernel = kernel
        self._options = options

    def edges(self, messages: Messages, without: NDArray[np.bool_] | None = None) -> Iterator[Entry]:
        """The events of exchanges that began earlier or end later, with the inspector's sort key.

        All of them have to be consumed before connections are taken back, because they set which requests wait.
        `without`: messages that are not events (`plain_edges`, `whole`).
        """
        chosen = messages.rows["pair"] == NONE
        if without is not None:
            chosen &= ~without
        for index in np.flatnonzero(chosen).tolist():
            yield from self._edge(messages, index)

    def plain_edges(self, messages: Messages, selected: NDArray[np.uint8] | None = None) -> tuple[Messages, Edges]:
        """Messages whose exchange is not whole in the batch, and that need not be events.

        That is true if responses of this version of the API depend on their bytes alone. At a level that hides
        exchanges, and where they were hidden, they are counted and removed from the returned messages.

        `selected`: whether a filter selects a request that is answered later, by message. Above 1 the decision is open:
        such requests and their responses are events, since an `Exchange` has to be emitted.
        """
        ended = messages.rows[:0]
        if selected is None:
            messages, ended = self._without_ended(messages)
        rows, hides = messages.rows, self._options.detail.hides
        alone, is_request = rows["pair"] == NONE, (rows["flags"] & REQUEST) > 0
        plain = _of_codes(rows, alone, _answers_alone)
        if selected is not None:
            # Exchanges without a response also need an `Exchange`.
            plain &= (~is_request | (selected <= 1)) & ((rows["flags"] & (SILENT | ENDED)) == 0)
        hidden = ~alone if hides else np.zeros(len(rows), bool)
        answers = np.flatnonzero(plain & ~is_request)
        found, answered = self._kernel.outstanding.take(keys_of(rows.take(answers)))
        hidden[answers[found][answered["number"] == HIDDEN]] = True
        others: list[tuple[int, Pending]] = []
        if selected is not None:
            plain[answers[~found]] = False
        for index in answers[~found].tolist() if selected is None else ():
            pending = self._kernel.waiting.pop((int(rows["connection"][index]), int(rows["ordinal"][index])))
            others.append((index, pending))
            hidden[index] = pending.hidden
        begun = np.flatnonzero(plain & is_request)
        if hides:
            hidden[begun] = True
        begun = self._end_silent(messages, begun, ended)
        own = np.zeros(len(begun), np.uint8) if selected is None else selected[begun]
        self._begin(messages, begun, own)
        answers = answers[found]
        if hidden.any():
            self._count_hidden(is_request[hidden])
        for index in np.flatnonzero(alone & ~plain).tolist():
            hidden[index] = self._hidden_edge(messages, index)
        if hidden.any():
            shown = ~hidden
            place = np.cumsum(shown) - 1
            answered, answers = answered[shown[answers]], place[answers[shown[answers]]]
            others = [(int(place[index]), pending) for index, pending in others if shown[index]]
            own, begun = own[shown[begun]], place[begun[shown[begun]]]
            plain, rows = plain[shown], rows.compress(shown)
            whole = rows["pair"] != NONE
            rows["pair"][whole] = place[rows["pair"][whole]]
        return messages._replace(rows=rows), Edges(plain, begun, own, answers, answered, others)

    def _hidden_edge(self, messages: Messages, index: int) -> bool:
        """Whether this message belongs to an exchange that is hidden; if so, it is counted, and needs no event."""
        row = messages.rows[index]
        if row["flags"] & REQUEST and not row["flags"] & ENDED:
            hidden = self._options.detail.hides and int(row["code"]) // VERSIONS != GREETING
        else:
            pending = self._kernel.waiting.get((int(row["connection"]), int(row["ordinal"])))
            hidden = pending is not None and pending.hidden
        if hidden:
            for _ in self._edge(messages, index):
                raise AssertionError("a hidden exchange has no events")
        return hidden

    @staticmethod
    def _without_ended(messages: Messages) -> tuple[Messages, NDArray[np.void]]:
        """The messages alone, and the ends of exchanges without a response."""
        rows = messages.rows
        is_ended = (rows["flags"] & ENDED) > 0
        if not is_ended.any():
            return messages, rows[:0]
        place = np.cumsum(~is_ended) - 1
        ended, rows = rows.compress(is_ended), rows.compress(~is_ended)
        whole = rows["pair"] != NONE
        rows["pair"][whole] = place[rows["pair"][whole]]
        return messages._replace(rows=rows), ended

    def _end_silent(self, messages: Messages, begun: NDArray[np.intp], ended: NDArray[np.void]) -> NDArray[np.intp]:
        """Remove exchanges that had no response; returns those of `begun` that are not among them."""
        if not len(ended):
            return begun
        keys = keys_of(ended)
        found = self._kernel.outstanding.drop(keys)
        asked = keys_of(messages.rows.take(begun))
        for row in ended[~found & ~np.isin(keys, asked)]:
            place, ordinal = int(row["connection"]), int(row["ordinal"])
            if not self._kernel.waiting.pop((place, ordinal)).hidden:
                owner = messages.owners[place]
                assert owner is not None
                del owner.exchanges[ordinal]
        return begun[~np.isin(asked, keys)]

    def whole(self, messages: Messages, takes: Callable[[int], bool]) -> tuple[Messages, NDArray[np.bool_]]:
        """The messages, with requests of earlier batches that are answered now, and which of them wait from now on.

        Those that wait are not events. `takes`: whether exchanges of a version of an API, by its code, become columns.
        """
        rows = messages.rows
        alone, is_request = rows["pair"] == NONE, (rows["flags"] & REQUEST) > 0
        # Requests that expect no response are events, and so are their ends.
        alone &= (rows["flags"] & (SILENT | ENDED)) == 0
        answers = np.flatnonzero(alone & ~is_request)
        found, asked = self._kernel.begun.take(keys_of(rows.take(answers)))
        begun = alone & is_request & (rows["size"] <= MAX_BEGUN)
        begun = _of_codes(rows, begun, lambda code: _answers_alone(code) and takes(code))
        begun &= (
            np.cumsum(np.where(begun, rows["size"], 0), dtype=np.int64) + len(self._kernel.begun.data)
            <= MAX_BEGUN_BYTES
        )
        before = self._kernel.begun.data
        self._kernel.begun.add(rows.compress(begun), messages.buffer, messages.arena)
        if not len(asked):
            return messages, begun
        answers = answers[found]
        asked["start"] += np.uint64(self._kernel.feed.put(before))
        asked["pair"] = answers
        rows["pair"][answers] = len(rows) + np.arange(len(asked))
        begun = np.append(begun, np.zeros(len(asked), np.bool_))
        return messages._replace(rows=joined((rows, asked)), arena=self._kernel.feed.arena), begun

    def _begin(self, messages: Messages, begun: NDArray[np.intp], selected: NDArray[np.uint8]) -> None:
        """Store these requests until their responses arrive."""
        if not len(begun):
            return
        rows = messages.rows.take(begun)
        buffer, arena = messages.buffer, messages.arena
        starts = (rows["start"] + np.uint64(HEADER)).tolist()
        columns = (starts, rows["client_id"].tolist(), (rows["flags"] & ARENA).tolist())
        ids = [
            None if size < 0 else (arena if place else buffer)[start : start + size]
            for start, size, place in zip(*columns, strict=True)
        ]
        made = np.zeros(len(rows), ROW)
        for name in ("first_time", "time", "ordinal", "correlation", "code"):
            made[name] = rows[name]
        made["client_id"], made["selected"] = self._kernel.outstanding.indices(ids), selected
        made["number"] = HIDDEN if self._options.detail.hides else 0
        self._kernel.outstanding.add(keys_of(rows), made)

    def count_hidden_pairs(self, messages: Messages) -> None:
        """Count the messages of whole exchanges that are not shown."""
        rows = messages.rows
        self._count_hidden((rows["flags"][rows["pair"] != NONE] & REQUEST) > 0)

    def _count_hidden(self, is_request: NDArray[np.bool_]) -> None:
        left_out, requests = self._options.detail.left_out, int(np.count_nonzero(is_request))
        left_out.requests += requests
        left_out.responses += len(is_request) - requests

    def _edge(self, messages: Messages, index: int) -> Iterator[Entry]:
        (
            order,
            start,
            first_packet,
            last_packet,
            packet,
            first_time,
            time_ns,
            latency,
            duration,
            ordinal,
            connection,
            size,
            _,
            correlation_id,
            _,
            code,
            _,
            step,
            flags,
            _,
            retransmits,
        ) = messages.rows[index].item()
        owner = messages.owners[connection]
        assert owner is not None
        kafka = owner.kafka
        client = kafka.client
        assert client is not None
        data = messages.arena if flags & ARENA else messages.buffer
        is_request = bool(flags & REQUEST)
        end = start + size
        frame = Frame(
            order,
            client if is_request else 1 - client,
            data,
            start,
            end,
            size,
            first_packet,
            last_packet,
            first_time,
            time_ns,
            packet,
        )
        detail, memory = kafka.detail, kafka.memory
        options = detail.decode
        place = step * EVENTS
        if flags & ENDED:
            if not self._kernel.waiting.pop((connection, ordinal)).hidden:
                over = ExchangeEvent(order, ordinal, "no_response", time_ns, packet, retransmits=retransmits)
                yield order, place, owner, over
            return
        if is_request:
            decoded = decode_request(data, start, end, options, memory=memory, later=True)
            key, version = divmod(code, VERSIONS)
            self._kernel.waiting[connection, ordinal] = Pending(
                ordinal,
                key,
                version,
                correlation_id,
                decoded.client_id,
                first_time,
                time_ns,
                silent=bool(flags & SILENT),
                carry=decoded.carry,
                hidden=detail.hides and key != GREETING,
            )
            if self._kernel.waiting[connection, ordinal].hidden:
                detail.left_out.requests += 1
                return
            problems = detail.omissions(key, is_request=True, has_body=decoded.body is not None) if detail.level else ()
            event = MessageEvent(order, ordinal, frame, True, decoded, decoded.client_id, problems)
            yield order, place, owner, event
            return
        pending = self._kernel.waiting.pop((connection, ordinal))
        if pending.hidden:
            detail.left_out.responses += 1
            return
        decoded = decode_response(
            data,
            start,
            end,
            pending.api_key,
            pending.api_version,
            options,
            memory=memory,
            request=pending.carry,
            later=True,
        )
        if pending.api_key == GREETING:
            kafka.greeted(pending, decoded, time_ns)
        problems = ()
        if detail.level:
            problems = detail.omissions(pending.api_key, is_request=False, has_body=decoded.body is not None)
        event = MessageEvent(order, ordinal, frame, False, decoded, pending.client_id, problems, latency, duration)
        yield order, place, owner, event
        if self._options.every_end:
            end_ = ExchangeEvent(
                order, ordinal, "answered", time_ns, packet, latency, duration, retransmits=retransmits
            )
            yield order, place + 1, owner, end_


def _of_codes(rows: NDArray[np.void], chosen: NDArray[np.bool_], wanted: Callable[[int], bool]) -> NDArray[np.bool_]:
    """Which of the chosen messages have a wanted version of an API."""
    codes = rows["code"].astype(np.int64)
    known = np.zeros(KEYS * VERSIONS, bool)
    if chosen.any():
        known[[code for code in distinct(codes[chosen]) if wanted(code)]] = True
    of: NDArray[np.bool_] = chosen & known[codes]
    return of


@functools.cache  # bounded by the number of codes
def _answers_alone(code: int) -> bool:
    """Whether decoding responses needs only their bytes."""
    key, version = divmod(code, VERSIONS)
    return request_plan(key, version).alone and response_plan(key, version).alone and key != GREETING
