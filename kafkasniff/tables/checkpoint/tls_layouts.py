"""Layouts of TLS, and of the items of streams that wait in it."""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import Any, Final

from kafkasniff.tables.checkpoint.graph import Layout
from kafkasniff.tables.checkpoint.layout_types import Side, most, pair
from kafkasniff.tables.checkpoint.wire import DamagedError
from kafkasniff.tcp import segments
from kafkasniff.tls import clear, gate, keylog, session
from kafkasniff.tls.half import Half, Loss
from kafkasniff.tls.handshake import ClientHello, HandshakeBuffer, ServerHello
from kafkasniff.tls.negotiation import Negotiation
from kafkasniff.tls.protection import Epoch, Negotiated
from kafkasniff.tls.record import Mark, Record, RecordCutter

__all__ = ["ITEMS", "TLS"]


def _bytes_of(run: segments.Run) -> bytes:
    return b"".join(
        run.buffer[run.offset[index] : run.offset[index] + run.length[index]] for index in range(run.first, run.last)
    )


def _column(name: str) -> Any:
    return lambda run: getattr(run, name)[run.first : run.last]


def _run(buffer: bytes, *columns: list[int]) -> segments.Run:
    """A run without a batch, from its bytes and the columns of its segments."""
    length, packet, time, order, released = columns
    if {len(column) for column in columns} != {len(length)} or not length or min(length) < 0:
        raise DamagedError("segments without packets")
    ends = list(accumulate(length))
    if ends[-1] != len(buffer):
        raise DamagedError("segments of another length than their bytes")
    return segments.Run(buffer, [0, *ends[:-1]], length, ends, packet, time, order, released, 0, len(length))


ITEMS: Final = (
    Layout(
        segments.Run,
        {
            "buffer": bytes,
            "length": list[int],
            "packet": list[int],
            "time": list[int],
            "order": list[int],
            "released": list[int],
        },
        made=_run,
        views={
            "buffer": _bytes_of,
            **{name: _column(name) for name in ("length", "packet", "time", "order", "released")},
        },
    ),
    *(
        Layout(kind, made=kind)
        for kind in (
            segments.Stretch,
            segments.Started,
            segments.Gap,
            segments.Hole,
            segments.Retransmit,
            segments.Late,
            segments.TcpProblem,
            segments.Wrapped,
            segments.Rejected,
            segments.Closed,
        )
    ),
)

TLS: Final = (
    Layout(
        keylog.KeyLog,
        {
            "_captured": most(dict[tuple[str, bytes], tuple[int, bytes]], keylog.MAX_SECRETS),
            "_since": int | None,
            "_flaws": most(list[str], keylog.MAX_FLAWS),
            "_flaw_count": int,
            "_counted": int,
        },
        new=keylog.KeyLog,
        # The file's content is not stored: a resumed run names the file again.
        without=frozenset({"_file", "_lines", "_more", "grows", "reports"}),
    ),
    Layout(
        gate.TlsGate,
        {
            "plain": bool,
            "_session": session.TlsSession | None,
            "_aligned": pair(bool),
            "_heads": pair(bytes),
            "_held": most(list[segments.Item], gate.MAX_HELD),
        },
    ),
    Layout(
        session.TlsSession,
        {
            "_halves": tuple[Half, Half],
            "_clear": clear.ClearBytes,
            "_talk": Negotiation,
            "_flowing": bool,
            "_over": bool,
            "_problems_found": int,
            "_order": int,
            "_time": int,
            "_packet": int,
            "_keys": keylog.KeyLog,
        },
        new=lambda: session.TlsSession(keylog.KeyLog(), 0),
        without=frozenset({"_out"}),
    ),
    Layout(
        Half,
        {
            "direction": Side,
            "cutter": RecordCutter,
            "handshake": HandshakeBuffer,
            "queue": deque[Record | Loss],
            "held": int,
            "negotiated": Negotiated | None,
            "epoch": Epoch,
            "seq": int,
            "slack": int,
            "opened": bool,
            "failed": int,
            "skippable": int,
            "whole": bool,
            "started": bool,
            "dead": bool,
            "_budget": int,
            "_refused": str | None,
        },
        new=lambda: Half(0),
        # The opener of records and its secret are made again from the key log.
        without=frozenset({"_opener", "_secret"}),
    ),
    Layout(Record, made=Record),
    Layout(Loss, made=Loss),
    Layout(
        RecordCutter,
        {
            "_data": bytearray,
            "_start": int,
            "_base": int,
            "_marks": deque[Mark],
            "_skip": int,
            "lost": bool,
            "passed": int,
            "searched": int,
        },
    ),
    Layout(HandshakeBuffer, {"_data": bytearray}),
    Layout(
        Negotiation,
        {
            "_halves": tuple[Half, Half],
            "client": Side | None,
            "hello": ClientHello | None,
            "server": ServerHello | None,
            "retried": bool,
            "agreed": Negotiated | None,
            "lacks_certificate": bool,
            "_certificate": bytes | None,
            "_hidden": most(dict[int, bytes], 2),
            "_alpn": str | None,
        },
        new=lambda: Negotiation((Half(0), Half(1))),
    ),
    Layout(clear.ClearBytes, {"_pieces": tuple[clear._Pieces, clear._Pieces], "size": pair(int)}),
    Layout(
        clear._Pieces,
        {"data": list[bytes], "packet": list[int], "time": list[int], "order": list[int], "released": list[int]},
    ),
)
