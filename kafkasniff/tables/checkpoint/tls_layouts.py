"""Layouts of TLS, and of the items of streams that wait in it."""

from __future__ import annotations

from collections import deque
from typing import Final

from kafkasniff.tables.checkpoint.graph import Layout
from kafkasniff.tables.checkpoint.layout_types import Side, most, pair
from kafkasniff.tls import gate, items, keylog, session
from kafkasniff.tls.half import Epoch, Half, Loss, Negotiated
from kafkasniff.tls.negotiation import Negotiation
from kafkasniff.tls.record import ClientHello, HandshakeBuffer, Mark, Record, RecordCutter, ServerHello

__all__ = ["ITEMS", "TLS"]


ITEMS: Final = tuple(
    Layout(kind, made=kind)
    for kind in (
        items.Segment,
        items.Started,
        items.Gap,
        items.Hole,
        items.Retransmit,
        items.Late,
        items.TcpProblem,
        items.Wrapped,
        items.Rejected,
        items.Closed,
    )
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
            "_held": most(list[items.Item], gate.MAX_HELD),
        },
    ),
    Layout(
        session.TlsSession,
        {
            "_halves": tuple[Half, Half],
            "_talk": Negotiation,
            "_turns": session.Turns,
            "_flowing": bool,
            "_over": bool,
            "_problems_found": int,
            "_order": int,
            "_time": int,
            "_packet": int,
            "_keys": keylog.KeyLog,
        },
        new=lambda: session.TlsSession(keylog.KeyLog(), 0),
        without=frozenset({"_out", "_passed"}),
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
        session.Turns,
        {
            "_first": int,
            "_settled": int,
            "_sealed": int,
            "_lossy": bool,
            "_skips": bool,
            "_speaker": int,
            "_since": int,
            "_size": int,
            "_longest": pair(int),
            "_counts": most(dict[int, int], session.MAX_BUCKETS),
        },
    ),
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
)
