"""One TLS connection: the items of its streams in, the items of its clear streams out.

Theory of operation. Records of both streams are cut and processed in the order in which they were complete. Hellos
contain the client random that the secrets are looked up by. From then on each stream has an epoch (half.py), which
changes at ChangeCipherSpec (TLS 1.2) or at Finished, EndOfEarlyData and KeyUpdate (TLS 1.3). A record that cannot be
processed yet waits in its stream's queue for the other stream's hello, or for its secret (key logs grow while a live
capture runs). The queues are bounded (waiting.py). A connection that cannot be decrypted is rejected with one problem
that describes what is visible of it.

Clear bytes are emitted as segments, so later stages need not know about TLS. Missing bytes are a gap whose size in
clear bytes is unknown (`Gap.exact`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from kafkasniff.model import NO_TIME, TlsHandshake
from kafkasniff.tls.descriptions import alert_name
from kafkasniff.tls.failing import why_failed
from kafkasniff.tls.half import Half, Loss
from kafkasniff.tls.items import Closed, Gap, Item, Late, Rejected, Segment, Started, TcpProblem, Wrapped
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.negotiation import Negotiation
from kafkasniff.tls.readiness import is_clear, next_ready
from kafkasniff.tls.record import ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, Record
from kafkasniff.tls.turns import Turns
from kafkasniff.tls.waiting import reason_at_end, why_useless
from kafkasniff.tls.wording import NAMED, NO_CLIENT_CERTIFICATE, ended_with_alert

__all__ = ["MAX_DAMAGED", "TlsSession"]

SESSION_BYTES: Final = 6_000
"""Bytes of memory of a session that buffers nothing."""
RECORD_BYTES: Final = 500
"""Bytes of memory of a record that waits, without its own."""
MAX_DAMAGED: Final = 8
"""Number of consecutive records that cannot be opened before a stream is given up."""
MAX_PROBLEMS: Final = 20
"""Maximum number of damaged records and alerts that are reported per connection."""

_FATAL: Final = 2
_QUIET: Final = frozenset({0, 90})
"""close_notify and user_canceled: normal ends of connections."""


class TlsSession:
    """The state of one connection, from the first bytes of either stream on."""

    __slots__ = (
        "_flowing",
        "_halves",
        "_keys",
        "_order",
        "_out",
        "_over",
        "_packet",
        "_passed",
        "_problems_found",
        "_talk",
        "_time",
        "_turns",
    )

    def __init__(self, keys: KeyLog, order: int) -> None:
        """`order`: of the packet that showed that this is TLS; nothing is emitted at an earlier one."""
        self._halves = (Half(0), Half(1))
        self._talk = Negotiation(self._halves)
        self._turns = Turns()
        self._flowing = False
        """Clear bytes were emitted."""
        self._over = False
        """Nothing more is read of either stream."""
        self._problems_found = 0
        # The current packet of the connection.
        self._order, self._time, self._packet = order, NO_TIME, 0
        # Results of a call of `feed`.
        self._out: list[Item] = []
        self._passed = [0, 0]
        """Clear bytes of each stream among them."""
        self._keys = keys

    def seen(self, client: int, last_ns: int) -> TlsHandshake:
        """The visible part of it; `client`: direction of its stream; `last_ns`: time of the last packet."""
        turns, midway = self._turns, self._talk.hello is None
        found = turns.summary(client, last_ns, midway=midway)
        return msgspec.structs.replace(self._talk.handshake, handshake_ns=turns.handshake_ns, turns=found)

    @property
    def waiting(self) -> int:
        """Bytes of both streams that could not be decrypted so far but may be later."""
        return sum(half.waiting for half in self._halves)

    @property
    def memory(self) -> int:
        """Approximate memory of the session and its buffers in bytes."""
        waiting = sum(half.waiting + len(half.queue) * RECORD_BYTES for half in self._halves)
        return SESSION_BYTES + self._turns.memory + waiting

    def feed(self, item: Item, keys: KeyLog, *, wanted: bool = True) -> list[Item]:
        """Take the connection's next item; returns it, and others that waited for it, without TLS.

        `wanted` False: the clear bytes are no longer needed.
        """
        self._keys = keys
        if not wanted and not self._over:
            self._stop()
        missing = [0, 0]
        if isinstance(item, Segment):
            missing[item.direction] = len(item.data)
            self._segment(item)
        elif isinstance(item, Gap):
            self._gap(item)
        elif isinstance(item, Closed):
            self._close(item)
        elif not isinstance(item, Late):
            self._put(item)
        for direction, passed in enumerate(self._passed):
            if missing[direction] != passed:
                # Nothing may follow the end.
                self._out.insert(0, Wrapped(direction, missing[direction] - passed))
        self._passed = [0, 0]
        out, self._out = self._out, []
        return out

    # -- items ------------------------------------------------------------------------------------------------------

    def _segment(self, item: Segment) -> None:
        self._turns.take(item)
        half = self._halves[item.direction]
        if self._over or half.dead:
            return
        self._at(item.order, item.released, item.packet)
        half.cutter.add(item.data, item.packet, item.time_ns, item.order, item.released)
        self._cut(half)
        self._drain()

    def _gap(self, item: Gap) -> None:
        self._turns.lose()
        half = self._halves[item.direction]
        if self._over or half.dead:
            self._put(msgspec.structs.replace(item, exact=False))
            return
        self._at(item.order, item.time_ns, item.packet)
        half.queue.append(Loss(item, half.cutter.gap(item.size)))
        self._drain()

    def _close(self, item: Closed) -> None:
        # Packets of other connections, which not every process sees, show when silence was long enough. So records that
        # a capture's later secrets would open are left unopened.
        sleeps = item.reason == "idle" and not self._keys.grows
        reason = self._reason_at_end() if sleeps else None
        self._at(item.order, item.time_ns, item.packet)
        if not (self._over or sleeps):
            self._drain(ended=True)
        if not self._over:
            if not any(half.opened for half in self._halves):
                self._reject(reason or why_failed(self._talk, self._halves, item) or self._reason_at_end())
            for half in self._halves:
                if half.waiting:
                    detail = f"the stream ended with {half.waiting} bytes of TLS records that could not be decrypted"
                    self._problem("stream-cut", detail, half, half.waiting)
        self._put(item)

    def _at(self, order: int, time_ns: int, packet: int) -> None:
        self._order = max(self._order, order)
        self._time, self._packet = time_ns, packet

    # -- records ----------------------------------------------------------------------------------------------------

    def _cut(self, half: Half) -> None:
        """Queue the complete records."""
        cutter = half.cutter
        while (record := cutter.cut()) is not None:
            half.queue.append(record)
            half.held += len(record.data)
            talk, kind = self._talk, record.content_type
            # TLS 1.3 sends ChangeCipherSpec only for the sake of middleboxes.
            if kind == APPLICATION_DATA or (kind == CHANGE_CIPHER_SPEC and not (talk.is_13 or talk.retried)):
                client = None if talk.hello is None else talk.client
                place = half.direction, record.marks[-1].time_ns, len(record.data)
                self._turns.seal(*place, client, tickets=talk.is_13)
        if cutter.flawed:
            if half.epoch.phase == "clear":
                own = self._talk.client in (None, half.direction)
                self._reject("its records are invalid" if own else "the answer of the other side is not TLS")
                return
            cutter.lose()
            gap = Gap(self._order, half.direction, 0, self._packet, self._time, True, self._time, exact=False)
            half.queue.append(Loss(gap, False))

    def _drain(self, *, ended: bool = False) -> None:
        """Process records in the order in which they were complete; `ended`: the connection is over."""
        while not self._over:
            ready = next_ready(self._talk, self._halves, self._keys, self._order)
            if ready is None:
                if any(self._resume(half) for half in self._halves if half.cutter.lost and not half.queue):
                    continue
                break
            entry = ready.queue.popleft()
            if isinstance(entry, Loss):
                self._lose(ready, entry)
            else:
                ready.held -= len(entry.data)
                self._take(ready, entry)
        # As in `_look_at_waiting`, without a call for each segment.
        if not self._over:
            useless = why_useless(self._talk, self._halves, self._keys, self._order, ended=ended)
            if useless is not None:
                self._reject(useless)

    def _take(self, half: Half, record: Record) -> None:
        if is_clear(half, record):
            kind = record.content_type
            if kind in (HANDSHAKE, ALERT, CHANGE_CIPHER_SPEC):
                self._content(half, record, 0, kind, record.data, clear=True)
            elif not self._flowing:
                self._reject("its records are invalid")
            else:
                self._fail(half)
            return
        client = self._talk.is_client(half)
        if half.slack:
            found = half.search(record, half.slack, self._keys, self._order, client=client)
            if found is not None:
                self._content(half, record, *found)
                return
        else:
            opener = half.opener(self._keys, self._order, client=client)
            assert opener is not None
            opened = opener.open(record, half.seq)
            if opened is not None:
                half.accept(len(record.data))
                self._content(half, record, opener.lead, *opened)
                return
        if half.skippable and not half.opened:
            half.skippable -= 1
        elif not any(other.opened for other in self._halves) and half.whole:
            self._reject("the available keys do not match it")
        else:
            self._fail(half)

    def _content(self, half: Half, record: Record, lead: int, kind: int, data: bytes, *, clear: bool = False) -> None:
        """Process the contents of a record; `clear`: it was not protected."""
        if kind == APPLICATION_DATA:
            if data:
                self._pass_on(half, record, lead, data)
        elif kind == HANDSHAKE:
            for message, body in half.handshake.add(data):
                wrong = self._talk.message(half, message, body, clear=clear)
                if wrong is not None:
                    self._reject(wrong)
            self._look_at_waiting()
        elif kind == ALERT:
            self._alert(half, data)
        elif kind == CHANGE_CIPHER_SPEC:
            self._talk.change_cipher(half)
            self._look_at_waiting()

    def _pass_on(self, half: Half, record: Record, lead: int, data: bytes) -> None:
        direction = half.direction
        if half.whole and not half.started:
            # Even without a captured SYN: the first clear byte is the stream's first byte.
            self._put(Started(max(record.order, self._order), direction, client=self._talk.is_client(half)))
        half.started = True
        self._flowing = True
        self._passed[direction] += len(data)
        # All of it is available only when the record is complete. But each byte is attributed to the packet that
        # carried it, so that latencies are right; the last one to the packet with the record's last byte.
        *marks, last = record.marks
        order, released = max(last.order, self._order), last.released
        at, end = 0, len(data)
        for mark in marks:
            stop = min(mark.end - lead, end - 1)
            if stop > at:
                self._put(Segment(order, direction, data[at:stop], mark.packet, mark.time_ns, released))
                at = stop
        self._put(Segment(order, direction, data[at:], last.packet, last.time_ns, released))

    # -- losses -----------------------------------------------------------------------------------------------------

    def _lose(self, half: Half, loss: Loss) -> None:
        half.handshake.clear()
        if half.epoch.phase != "clear" or not loss.in_step:
            half.whole = False
        if loss.in_step:
            half.slack += half.epoch.phase != "clear"
        self._put(msgspec.structs.replace(loss.gap, exact=False, order=max(loss.gap.order, self._order)))

    def _fail(self, half: Half) -> None:
        """A record could not be opened."""
        half.failed += 1
        half.slack += 1
        half.whole = False
        half.handshake.clear()
        self._put(Gap(self._order, half.direction, 0, self._packet, self._time, True, self._time, exact=False))
        if half.failed <= MAX_DAMAGED and not half.spent:
            self._problem("tls-record-damaged", "a TLS record could not be decrypted: it is damaged, or forged", half)
        else:
            self._give_up(half)

    def _resume(self, half: Half) -> bool:
        """Search for the next record after a loss."""
        client = self._talk.is_client(half)
        if not len(half.cutter) or not half.can_search(self._keys, self._order, client=client):
            return False
        found = half.resume(self._keys, self._order, client=client)
        if found is not None:
            record, opened = found
            self._content(half, record, *opened)
            self._cut(half)
            return True
        if half.given_up:
            self._give_up(half)
        return False

    def _give_up(self, half: Half) -> None:
        half.die()
        detail = "decryption of this stream ended: no record was found after missing or damaged bytes"
        self._problem("tls-lost", detail, half)

    def _alert(self, half: Half, data: bytes) -> None:
        if len(data) != 2 or data[1] in _QUIET or (data[0] != _FATAL and not self._talk.is_13):
            return
        client = self._talk.is_client(half)
        why = ended_with_alert(alert_name(data[1]), by_client=client, in_handshake=not self._flowing)
        if self._flowing:
            self._problem("tls-alert", why, half)
        else:
            if self._talk.lacks_certificate and not client:
                why += f": {NO_CLIENT_CERTIFICATE}"
            self._reject(why)

    # -- failures ----------------------------------------------------------------------------------------------------

    def _look_at_waiting(self) -> None:
        if not self._over:
            useless = why_useless(self._talk, self._halves, self._keys, self._order)
            if useless is not None:
                self._reject(useless)

    def _reason_at_end(self) -> str:
        return reason_at_end(self._talk, self._halves, self._keys, self._order)

    def _reject(self, reason: str) -> None:
        """Nothing of it can be decrypted."""
        if self._over:
            return
        what = self._talk.describe(self._time)
        # A client that names protocols is not Kafka's, which names none.
        likely = self._talk.hello is not None and not self._talk.hello.alpn
        direction = 0 if self._talk.client is None else self._talk.client
        place = self._packet, self._time
        self._put(Rejected(self._order, direction, "tls-not-decrypted", f"{NAMED}{what}; {reason}", *place, likely))
        self._stop()

    def _stop(self) -> None:
        self._over = True
        for half in self._halves:
            half.die()

    def _problem(self, kind: str, detail: str, half: Half, count: int | None = None) -> None:
        self._problems_found += 1
        if self._problems_found > MAX_PROBLEMS:
            return
        if self._problems_found == MAX_PROBLEMS:
            detail += " (no more TLS problems are reported for this connection)"
        self._put(TcpProblem(self._order, half.direction, kind, detail, self._packet, self._time, count))

    def _put(self, item: Item) -> None:
        self._out.append(item)
