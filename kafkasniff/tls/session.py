"""One TLS connection: the items of its streams in, the items of its clear streams out.

Theory of operation. Records of both streams are cut and processed in the order in which they were complete. Hellos
contain the client random that the secrets are looked up by. From then on each stream has an epoch (half.py), which
changes at ChangeCipherSpec (TLS 1.2) or at Finished, EndOfEarlyData and KeyUpdate (TLS 1.3). A record that cannot be
processed yet waits in its stream's queue for the other stream's hello, or for its secret (key logs grow while a live
capture runs). The queues are bounded (negotiation.py). A connection that cannot be decrypted is rejected with one
problem that describes what is visible of it.

Clear bytes are emitted as segments, so later stages need not know about TLS. Missing bytes are a gap whose size in
clear bytes is unknown (`Gap.exact`).
"""

from __future__ import annotations

import itertools
from typing import Final

import msgspec

from kafkasniff.model import NO_TIME, TlsHandshake, TlsTurns
from kafkasniff.tls.descriptions import NAMED, NO_CLIENT_CERTIFICATE, alert_name, ended_with_alert
from kafkasniff.tls.half import Half, Loss
from kafkasniff.tls.items import Closed, Gap, Item, Late, Rejected, Segment, Started, TcpProblem, Wrapped
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.negotiation import Negotiation, is_clear, next_ready, reason_at_end, why_failed, why_useless
from kafkasniff.tls.record import ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, Record

# When the two ends of a TLS connection spoke, which encryption does not hide.
#
# A *turn* of a stream is what it sends until the other one answers. The time from its last byte to the first byte of
# the answer estimates a latency: pipelined requests are one turn, and a long poll looks like a slow answer.

_BITS: Final = 4
"""Each power of two of a time in nanoseconds has this many bits' worth of buckets: they are at most 3% off."""
_BOTH: Final = 3
MAX_BUCKETS: Final = 2 * 64 << _BITS
"""Maximum number of buckets of both streams."""
LARGEST_ALERT: Final = 40
"""Bytes of the largest record that may be an alert, such as the close_notify of Java's TLS 1.3 (`failing`)."""
BUCKET_BYTES: Final = 100
"""Bytes of memory of a bucket."""


class Turns:
    """Takes the segments of both streams in order."""

    __slots__ = (
        "_counts",
        "_first",
        "_longest",
        "_lossy",
        "_sealed",
        "_settled",
        "_since",
        "_size",
        "_skips",
        "_speaker",
    )

    def __init__(self) -> None:
        self._first = NO_TIME
        """Time of the first segment."""
        self._settled = NO_TIME
        """When both streams were under their keys; NO_TIME: unknown, or not yet."""
        self._sealed = 0
        """A bit for each stream that has sent a record under its keys."""
        self._lossy = False
        """Bytes were missing."""
        self._skips = False
        """The server's next data belong to the handshake."""
        self._speaker = -1
        """Direction of the last segment; -1: unknown."""
        self._since = NO_TIME
        """Its time."""
        self._size = 0
        """Bytes of the turn so far."""
        self._longest = [0, 0]
        """Nanoseconds until the latest answer to each stream."""
        self._counts: dict[int, int] = {}
        """Number of answers by twice the bucket, plus the direction of what they answer."""

    def take(self, item: Segment) -> None:
        """Take a segment. Hot: called for each one of a TLS connection."""
        direction, time = item.direction, item.time_ns
        if self._first == NO_TIME:
            self._first = time
        if self._speaker == direction:
            self._size += len(item.data)
            if len(item.data) <= LARGEST_ALERT:
                return  # nothing asks so briefly, and a client that gives up says so much later
        else:
            asked = self._speaker >= 0 and self._size > LARGEST_ALERT
            skips, self._skips = self._skips, False
            if asked and skips and len(item.data) > LARGEST_ALERT:
                return  # tickets, for which the client did not wait
            if asked and not skips and NO_TIME not in (time, self._since):
                self._answered(self._speaker, max(time - self._since, 0))
            self._speaker, self._size = direction, len(item.data)
        self._since = time

    def _answered(self, direction: int, took: int) -> None:
        shift = max(took.bit_length() - _BITS - 1, 0)
        bucket = (shift << _BITS) + (took >> shift)
        key = 2 * bucket + direction
        self._counts[key] = self._counts.get(key, 0) + 1
        self._longest[direction] = max(self._longest[direction], took)

    def lose(self) -> None:
        """Bytes of a stream are missing: the following ones do not answer earlier ones."""
        self._speaker = -1
        self._lossy = True

    def seal(self, direction: int, time_ns: int, size: int, client: int | None, *, tickets: bool) -> None:
        """A record of a stream is under its keys, or the following ones are. Once both are, the handshake is over.

        `size`: bytes of the record; `client`: direction of the stream with the hello, if it was captured; `tickets`:
        the server's next data answer the handshake (TLS 1.3).
        """
        if self._sealed == _BOTH:
            if self._skips and self._speaker == direction:
                self._size += size  # sent with the end of the handshake, maybe in one packet
            return
        self._sealed |= 1 << direction
        if self._sealed != _BOTH or client is None:
            return
        if not self._lossy:
            self._settled = time_ns
        self._skips = tickets
        self._speaker = client if tickets else -1
        self._since, self._size = time_ns, 0
        self._longest, self._counts = [0, 0], {}

    @property
    def memory(self) -> int:
        """Approximate bytes of memory."""
        return len(self._counts) * BUCKET_BYTES

    @property
    def handshake_ns(self) -> int | None:
        """Duration of the handshake; None: it was not completed, or not captured as a whole."""
        if NO_TIME in (self._first, self._settled):
            return None
        return max(self._settled - self._first, 0)

    def summary(self, client: int, last_ns: int, *, midway: bool) -> TlsTurns:
        """The answers to the client's stream after the handshake.

        `last_ns`: time of the connection's last packet; `midway`: the handshake was before the capture.
        """
        if not midway and self._sealed != _BOTH:
            return TlsTurns()
        counts = sorted((key >> 1, count) for key, count in self._counts.items() if key & 1 == client)
        answers, longest = sum(count for _, count in counts), self._longest[client]
        unanswered = None
        # A client that leaves says so in an alert.
        asks = self._speaker == client and self._size > LARGEST_ALERT
        if asks and NO_TIME not in (self._since, last_ns):
            unanswered = max(last_ns - self._since, 0)
        if not answers:
            return TlsTurns(unanswered_ns=unanswered)
        p50, p99 = (min(_quantile(counts, -(-answers * part // 100)), longest) for part in (50, 99))
        return TlsTurns(answers, p50, p99, longest, unanswered)


def _quantile(counts: list[tuple[int, int]], rank: int) -> int:
    """The middle of the bucket with the value of that rank, counted from 1."""
    totals = itertools.accumulate(count for _, count in counts)
    bucket = next(bucket for (bucket, _), total in zip(counts, totals, strict=True) if total >= rank)
    shift = max((bucket >> _BITS) - 1, 0)
    low = bucket - (shift << _BITS) << shift
    return low + ((1 << shift) - 1 >> 1)


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
        tls_turns = turns.summary(client, last_ns, midway=midway)
        return msgspec.structs.replace(self._talk.handshake, handshake_ns=turns.handshake_ns, turns=tls_turns)

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
