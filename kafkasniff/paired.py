"""Messages of connections in step, with their exchanges: as entries that are told one by one, and as columns.

What is told of them here has both messages in one batch of packets; the others are events (`in_step.InStep.edges`).
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.accounts import InspectedConnection
from kafkasniff.in_step import EVENTS, HEADER, Messages
from kafkasniff.kafka.ahead import Ahead, BodyMaker
from kafkasniff.kafka.context import DecodeContext, DecodeOptions
from kafkasniff.model import Message
from kafkasniff.native.feed import ARENA, KEYS, NONE, REQUEST, TAGS, VERSIONS
from kafkasniff.repeats import Repeats
from kafkasniff.versions import Version, client_id_text, distinct, version_of

__all__ = ["Open", "PairColumns", "Paired", "PairedEntry", "entries", "pair_columns"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PairedEntry = tuple[
    int,
    int,
    int,
    InspectedConnection,
    "Paired",
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    "Version | None",
    int,
    int,
    int,
    int,
    int,
    int,
]
"""Order, place of the connection and place within it, as the inspector sorts; connection; where the exchange is noted
(`Paired.open`), at what index; its ordinal within the connection; the message's start, its size, the length of the
client id; correlation id; packet, time_ns; the API's version, None for a response; latency of a response; its duration;
the lowest and the highest of the message's packets; the index of the message; of a response, the retransmissions since
the exchange before."""


class Paired:
    """What messages of one batch have in common: `buffer` with their bytes, and their exchanges."""

    __slots__ = ("ahead", "buffer", "context", "open", "repeats")

    def __init__(
        self, buffer: bytes, exchanges: list[Open | None], options: DecodeOptions, repeats: Repeats | None = None
    ) -> None:
        self.buffer = buffer
        self.ahead: Ahead | None = None
        """Bodies, by the index of the message."""
        self.repeats = repeats
        """Bodies that may be those of several messages."""
        if repeats is not None:
            repeats.use(options)
        self.context = DecodeContext(options)
        """Of all messages in which there is nothing to note (`message.decode_body`)."""
        self.open = exchanges
        """What a request leaves for its response, at the exchange's index; for whoever tells the messages."""


Open = tuple[int, "Version", str | bytes | None, object, Message | None]
"""What is known of an exchange whose request was told: its number, the API's version, client id, what the response is
read by, and the request, where an `Exchange` is to be told."""


class PairColumns(NamedTuple):
    """Exchanges as columns of one length, in the order of their responses."""

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
    duration_ns: Ints


def entries(
    messages: Messages,
    options: DecodeOptions,
    repeats: Repeats | None = None,
    maker: BodyMaker | None = None,
    chosen: Bools | None = None,
) -> list[PairedEntry]:
    """The messages of exchanges that are whole, or those chosen of them, in their order.

    `repeats`: bodies that messages may share; `maker`: makes bodies, some at a time.
    """
    rows = messages.rows
    whole = rows["pair"] != NONE
    index = np.flatnonzero(whole if chosen is None else whole & chosen)
    if not len(index):
        return []
    rows = rows[index]
    is_request, in_arena = (rows["flags"] & REQUEST) > 0, (rows["flags"] & ARENA) > 0
    exchange = np.where(is_request, index, rows["pair"])
    open_: list[Open | None] = [None] * len(messages.rows)
    kinds = [Paired(messages.buffer, open_, options, repeats)]
    if in_arena.any():
        kinds.append(Paired(messages.arena, open_, options, repeats))
    if maker is not None and maker.use(options):
        for paired, mine in zip(kinds, (~in_arena, in_arena), strict=False):
            if mine.any():
                paired.ahead = _ahead(maker, messages.rows, index[mine], paired.buffer)
    places = [0 if owner is None else owner.place for owner in messages.owners]
    connection = rows["connection"].tolist()
    versions: dict[int, Version | None] = {-1: None}
    for code in distinct(rows["code"].astype(np.int64)):
        versions[code] = version_of(code)
    columns: list[list[Any]] = [
        exchange.tolist(),
        *(rows[name].tolist() for name in ("ordinal", "start", "size")),
        np.where(is_request, rows["client_id"], 0).tolist(),
        *(rows[name].tolist() for name in ("correlation", "packet", "time")),
        [versions[code] for code in np.where(is_request, rows["code"].astype(np.int64), -1).tolist()],
        *(rows[name].tolist() for name in ("latency", "duration", "first_packet", "last_packet")),
        index.tolist(),
        rows["retransmits"].tolist(),
    ]
    return list(
        zip(
            rows["order"].tolist(),
            map(places.__getitem__, connection),
            (rows["step"] * EVENTS).tolist(),
            map(messages.owners.__getitem__, connection),
            map(kinds.__getitem__, in_arena.tolist()) if len(kinds) > 1 else repeat(kinds[0]),
            *columns,
            strict=False,  # `repeat` has no end
        )
    )


def _ahead(maker: BodyMaker, rows: NDArray[np.void], index: Ints, buffer: bytes) -> Ahead:
    """The bodies of these messages, which are told in this order."""
    programs = np.zeros((2, KEYS * VERSIONS), np.uint64)
    for code in distinct(rows["code"][index].astype(np.int64)):
        key, version = divmod(code, VERSIONS)
        for row, direction in enumerate(("response", "request")):
            program = maker.program(key, version, direction)  # type: ignore[arg-type]
            programs[row, code] = 0 if program is None else program.address
    flags = rows["flags"]
    chosen = np.where(flags & TAGS, 0, programs[flags & REQUEST, rows["code"]]).astype(np.uint64)
    start = rows["start"].astype(np.int64)
    return Ahead(maker, buffer, chosen, start, start + rows["body"], start + rows["size"], index)


def pair_columns(messages: Messages) -> tuple[PairColumns, Bools]:
    """Exchanges as columns, and which of all messages are not among them.

    These have a client id that is not text, or segments that were retransmitted.
    """
    rows, buffer, arena = messages.rows, messages.buffer, messages.arena
    answer = np.flatnonzero((rows["pair"] != NONE) & (rows["flags"] & REQUEST == 0))
    ask = rows["pair"][answer].astype(np.int64)
    asked = rows[ask]
    begins = (asked["start"] + np.uint64(HEADER)).tolist()
    client_ids: list[str | bytes | None] = [
        None if size < 0 else client_id_text((arena if place else buffer)[start : start + size])
        for start, size, place in zip(
            begins, asked["client_id"].tolist(), (asked["flags"] & ARENA).tolist(), strict=True
        )
    ]
    odd = np.array([one.__class__ is bytes for one in client_ids], bool) | (rows["retransmits"][answer] > 0)
    others = np.zeros(len(rows), bool)
    if odd.any():
        others[answer[odd]] = others[ask[odd]] = True
        answer, ask = answer[~odd], ask[~odd]
        asked = rows[ask]
    answered = rows[answer]
    return PairColumns(
        messages.owners,
        asked["connection"].astype(np.int64),
        asked["ordinal"],
        asked["packet"],
        asked["time"],
        asked["code"].astype(np.int64),
        asked["correlation"].astype(np.int64),
        [one for one, left in zip(client_ids, odd.tolist(), strict=True) if not (left or isinstance(one, bytes))],
        asked["size"].astype(np.int64),
        answered["size"].astype(np.int64),
        answered["latency"],
        answered["duration"],
    ), others
