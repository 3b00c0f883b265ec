"""The two forms of lines: what a shard makes of an event, and what the first process writes of it."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final, Protocol

import numpy as np

from kafkasniff.model import Endpoint, Exchange, Message, Problem, SaslToken
from kafkasniff.parallel.areas import Block
from kafkasniff.parallel.interleave import Runs
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.lines import ByteStream
from kafkasniff.sinks.text import PIECE_CHARACTERS, TextSink

__all__ = ["LONG", "Form", "JsonForm", "TextForm", "size_of"]

LONG: Final = 16 << 10
"""Lines, or runs of them, that are so long on average are written one by one: it takes less than joining them."""
_LINE_FEED: Final = 0x0A
MAX_ENDPOINTS: Final = 1 << 16
"""Endpoints of which there is one object each."""

Event = Message | SaslToken | Exchange | Problem


class Form(Protocol):
    """How events become lines."""

    def render(self, event: Event) -> Any:
        """What a shard hands on of an event; None where it has no line, an iterator where it has several pieces."""

    def write(self, runs: Runs) -> None:
        """Write lines of shards, in order."""

    @property
    def within(self) -> bool:
        """Whether what was written last ends within a line."""

    def flush(self) -> None:
        """Hand on all lines so far."""


def size_of(line: Any) -> int:
    """Bytes or characters of a line, or a piece of one, as `render` makes them; 0 of what is no text."""
    if isinstance(line, bytes | str):
        return len(line)
    return len(line[-1]) if isinstance(line, tuple) else 0


class JsonForm:
    """JSON lines: lines, and pieces of large ones, are handed on and written as they are."""

    def __init__(self, sink: JsonSink, stream: ByteStream) -> None:
        self.render = sink.line
        self._stream = stream
        self.within = False

    def write(self, runs: Runs) -> None:
        """Write lines of shards, in order. Hot."""
        blocks: list[Any] = [chunk.data for chunk in runs.chunks]
        if not all(isinstance(block, Block) for block in blocks):
            for chunk, first, last in runs:
                data = chunk.data[first:last]
                if isinstance(data, list):
                    data = b"".join(data)
                self._stream.write(data)
                self.within = data[-1] != _LINE_FEED
            return
        # What `Block` does for a slice, for all runs at once: where lines are short, shards take turns at each.
        offsets = np.concatenate([block.offsets for block in blocks])
        begin = np.cumsum([0, *(len(block.offsets) for block in blocks[:-1])])[runs.chunk]
        starts, ends = offsets[begin + runs.first], offsets[begin + runs.last]
        views = [block.view for block in blocks]
        # A line feed is nowhere else in a line.
        self.within = views[int(runs.chunk[-1])][int(ends[-1]) - 1] != _LINE_FEED
        pieces = [
            views[number][start:end]
            for number, start, end in zip(runs.chunk.tolist(), starts.tolist(), ends.tolist(), strict=True)
        ]
        if int((ends - starts).sum()) > LONG * len(pieces):
            for piece in pieces:
                self._stream.write(piece)
        else:
            self._stream.write(b"".join(pieces))

    def flush(self) -> None:
        """Hand on all lines so far."""
        self._stream.flush()


class TextForm:
    """Text: how wide columns are and what else depends on the lines before is up to the one who writes."""

    within = False
    """Pieces are whole lines."""

    def __init__(self, sink: TextSink) -> None:
        self._sink = sink
        self._endpoints: dict[tuple[str, int], Endpoint] = {}

    def render(self, event: Event) -> Any:
        """A tuple of what a message's line says; other events are handed on as they are. Hot.

        Where there is much below the line, further pieces of that come after the tuple.
        """
        if isinstance(event, Message):
            client, broker = event.client, event.broker
            told, pieces = self._sink.apart(event)
            below = next(pieces, "")
            line = (
                event.type,
                event.correlation_id,
                event.api_key,
                event.api,
                event.api_version,
                event.client_id,
                event.exchange,
                event.connection,
                event.capture,
                event.time_ns,
                None if client is None else (client.address, client.port),
                None if broker is None else (broker.address, broker.port),
                event.latency_ns,
                told,
                below,
            )
            # The first piece says whether there may be more, without asking for the next.
            return line if len(below) < PIECE_CHARACTERS else chain((line,), pieces)
        return None if isinstance(event, Exchange) else event

    def write(self, runs: Runs) -> None:
        """Write lines of shards, in order."""
        for chunk, first, last in runs:
            for line in chunk.data[first:last]:
                if isinstance(line, tuple):
                    self._put(*line)
                elif isinstance(line, str):
                    self._sink.put_below(line)
                else:
                    self._sink.write(line)

    def _put(  # noqa: PLR0917 - as `render` has them
        self,
        kind: Any,
        correlation_id: int | None,
        api_key: int | None,
        api: str | None,
        api_version: int | None,
        client_id: str | bytes | None,
        exchange: int | None,
        connection: int | None,
        capture: str | None,
        time_ns: int | None,
        client: tuple[str, int] | None,
        broker: tuple[str, int] | None,
        latency_ns: int | None,
        told: str,
        below: str,
    ) -> None:
        message = Message(
            kind,
            0,
            correlation_id,
            api_key,
            api,
            api_version,
            client_id,
            exchange=exchange,
            connection=connection,
            capture=capture,
            time_ns=time_ns,
            client=self._endpoint(client),
            broker=self._endpoint(broker),
            latency_ns=latency_ns,
        )
        self._sink.put(message, told, below)

    def _endpoint(self, place: tuple[str, int] | None) -> Endpoint | None:
        """The same object each time: the sink compares them by what they are first."""
        if place is None:
            return None
        known = self._endpoints.get(place)
        if known is None:
            if len(self._endpoints) >= MAX_ENDPOINTS:
                self._endpoints.clear()
            known = self._endpoints[place] = Endpoint(*place)
        return known

    def flush(self) -> None:
        """Hand on all lines so far."""
        self._sink.flush()
