"""The two forms of lines: what a shard makes of an event, and what the first process writes of it."""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

from kafkasniff.model import Endpoint, Exchange, Message, Problem, SaslToken
from kafkasniff.parallel.areas import Block
from kafkasniff.parallel.interleave import Runs
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.lines import ByteStream
from kafkasniff.sinks.text import TextSink

__all__ = ["LONG", "Form", "JsonForm", "TextForm"]

LONG: Final = 16 << 10
"""Lines, or runs of them, that are so long on average are written one by one: it takes less than joining them."""
MAX_ENDPOINTS: Final = 1 << 16
"""Endpoints of which there is one object each."""

Event = Message | SaslToken | Exchange | Problem


class Form(Protocol):
    """How events become lines."""

    def render(self, event: Event) -> Any:
        """What a shard hands on of an event; None where it has no line."""

    def write(self, runs: Runs) -> None:
        """Write lines of shards, in order."""

    def flush(self) -> None:
        """Hand on all lines so far."""


class JsonForm:
    """JSON lines: whole lines are handed on, and written as they are."""

    def __init__(self, sink: JsonSink, stream: ByteStream) -> None:
        self.render = sink.line
        self._stream = stream

    def write(self, runs: Runs) -> None:
        """Write lines of shards, in order. Hot."""
        blocks: list[Any] = [chunk.data for chunk in runs.chunks]
        if not all(isinstance(block, Block) for block in blocks):
            for chunk, first, last in runs:
                data = chunk.data[first:last]
                self._stream.write(b"".join(data) if isinstance(data, list) else data)
            return
        # What `Block` does for a slice, for all runs at once: where lines are short, shards take turns at each.
        offsets = np.concatenate([block.offsets for block in blocks])
        begin = np.cumsum([0, *(len(block.offsets) for block in blocks[:-1])])[runs.chunk]
        starts, ends = offsets[begin + runs.first], offsets[begin + runs.last]
        views = [block.view for block in blocks]
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

    def __init__(self, sink: TextSink) -> None:
        self._sink = sink
        self._endpoints: dict[tuple[str, int], Endpoint] = {}

    def render(self, event: Event) -> Any:
        """A tuple of what a message's line says; other events are handed on as they are. Hot."""
        if isinstance(event, Message):
            client, broker = event.client, event.broker
            return (
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
                *self._sink.apart(event),
            )
        return None if isinstance(event, Exchange) else event

    def write(self, runs: Runs) -> None:
        """Write lines of shards, in order."""
        for chunk, first, last in runs:
            for line in chunk.data[first:last]:
                if isinstance(line, tuple):
                    self._put(*line)
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
