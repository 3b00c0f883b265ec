"""All connections of a run according to their packets: packet batches in, a `Link` per remembered connection.

It takes the same batches as the inspector: for `timing`, which looks connections up, and for the table `transport`,
which takes each when it is over.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from kafkasniff.model import Endpoint
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY, in_proportion
from kafkasniff.tcp.packets import ACK, NO_TIME, SYN, PacketBatch
from kafkasniff.tcp.plan import End, Key, index_of, indexed_key
from kafkasniff.tcp.reassembly import IDLE_NS, LINGER_NS, packet_clock
from kafkasniff.timing.link import Link, LinkHalf
from kafkasniff.timing.trouble import Budget

__all__ = ["MAX_LINKS", "LinkWatch"]

MAX_LINKS: Final = 1 << 16
"""Maximum number of connections that are remembered, the latest; `LINK_BYTES` each. Fewer below 1 GiB of memory."""
LINK_BYTES: Final = 4_200

_NAMES: Final = ("src_hi", "src_lo", "src_port", "dst_hi", "dst_lo", "dst_port")
_ENDS: Final = np.dtype([(name, ">u2" if name.endswith("port") else ">u8") for name in _NAMES])
"""Source and destination in the bytes of `plan.index_of`, whose hash nobody can predict."""
_END: Final = _ENDS.itemsize // 2


class LinkWatch:
    """Follows all connections, or those of some `ports`.

    `over`: called with each connection that has ended, and which is of no use afterwards unless it `looks_up`.

    A connection begins and ends as in reassembly: with a SYN of another number, or after a silence. `looks_up`: `find`
    will be called; otherwise trouble is only counted, without its times, and connections that are over are not kept.
    `memory`: the process's budget in bytes.
    """

    def __init__(
        self,
        *,
        ports: Iterable[int] = (),
        over: Callable[[Link], None] | None = None,
        looks_up: bool = True,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self._ports = np.array(sorted(set(ports)), dtype=np.uint16)
        self._looks_up = looks_up
        self.over = over
        """Called with each connection that is over."""
        # Not a dict, which looks for its first entry among all that were removed.
        self._halves: OrderedDict[bytes, LinkHalf] = OrderedDict()
        """By source and destination; both halves of a connection are in it."""
        self._most = in_proportion(MAX_LINKS, memory)
        self._budget = Budget(memory) if looks_up else Budget.none()
        self._clock = 0
        """The packet clock at the latest packet."""
        self._swept = 0
        """Its value when connections that are over were last looked for."""
        self._replaced: list[Link] = []
        """Connections whose ends were reused within the last batch."""
        self.forgotten = 0
        """Number of connections that were dropped because there were too many."""

    def feed(self, batch: PacketBatch) -> None:
        """Take the next packets. Hot: a loop over all of them."""
        for link in self._replaced:
            link.before = None
        self._replaced.clear()
        mask = batch.time_ns != NO_TIME
        if len(self._ports):
            mask &= np.isin(batch.src_port, self._ports) | np.isin(batch.dst_port, self._ports)
        more = ("time_ns", "seq", "ack", "flags", "window", "wire_length", "ident")
        whole = bool(mask.all())
        clock_at = packet_clock(batch, self._clock)
        found = [*(getattr(batch, name) for name in _NAMES), clock_at, *(getattr(batch, name) for name in more)]
        columns = found if whole else [one[mask] for one in found]
        halves = self._halves
        ends = np.empty(len(columns[0]), _ENDS)
        for name, column in zip(_NAMES, columns, strict=False):
            ends[name] = column
        keys: list[bytes] = ends.view(f"V{_ENDS.itemsize}").tolist()
        rows = zip(*(one.tolist() for one in columns[6:]), strict=True)
        for key, (clock, time, seq, ack, flags, window, wire, ident) in zip(keys, rows, strict=True):
            half = halves.get(key)
            if half is None or (flags & SYN and half.isn != seq) or clock - half.link.last_clock >= LINGER_NS:
                half = self._half(key, half, clock, time, seq, flags)
            link = half.link
            link.last_clock = clock
            link.last_time = max(link.last_time, time)
            half.packet(time, seq, ack, flags, window, wire, ident)
        if len(clock_at):
            self._clock = int(clock_at[-1])
            if not self._looks_up and self._clock - self._swept >= LINGER_NS:
                self.sweep()

    def sweep(self) -> None:
        """Hand on the connections that are over: a later packet of theirs would begin another one.

        What is left depends on the packets alone, and so do the rows, however often this is called.
        """
        clock = self._swept = self._clock
        done = [
            link for link in self.open_links() if clock - link.last_clock >= (LINGER_NS if link.closed else IDLE_NS)
        ]
        for link in done:
            self._emit(link)
            self._remove(index_of(link.ends))

    def limit_memory(self, size: int) -> None:
        """From here on, keep at most as many connections as a budget of this many bytes allows."""
        self._most = in_proportion(MAX_LINKS, size)

    def open_links(self) -> list[Link]:
        """The connections that are not over, the one that began first coming first."""
        return list(dict.fromkeys(half.link for half in self._halves.values()))

    def absorb(self, others: Sequence[LinkWatch], wanted: Callable[[Sequence[Key]], list[bool]]) -> None:
        """Take over the connections of others, and drop those that are not wanted, by their endpoints."""
        links = [link for one in (self, *others) for link in one.open_links()]
        keep = wanted([link.ends for link in links]) if links else []
        self._clock = max(one._clock for one in (self, *others))
        self.index([link for link, kept in zip(links, keep, strict=True) if kept])

    def index(self, links: Iterable[Link]) -> None:
        """Follow these connections instead of those so far."""
        self._halves = OrderedDict()
        for link in links:
            key = index_of(link.ends)
            self._halves[key[_END:] + key[:_END]] = link.halves[1]
            self._halves[key] = link.halves[0]

    def _half(  # noqa: PLR0917 - a row of a batch
        self, key: bytes, half: LinkHalf | None, clock: int, time: int, seq: int, flags: int
    ) -> LinkHalf:
        """The sender of a packet that may be the first of a connection."""
        asks = bool(flags & SYN) and not flags & ACK
        old = None if half is None else half.link
        if half is not None and old is not None:
            silent = clock - old.last_clock
            other = asks and half.isn != seq
            if not other and silent < IDLE_NS and not (old.closed and silent >= LINGER_NS):
                return half
        link = Link(indexed_key(key), time, self._budget, asks=asks)
        link.last_clock = clock
        if old is not None:
            if self._looks_up:
                link.before = old
                self._replaced.append(link)
            self._emit(old)
            # New entries go to the end of the table, so that they are not dropped first.
            self._remove(key)
        self._halves[key[_END:] + key[:_END]] = link.halves[1]
        self._halves[key] = link.halves[0]
        if len(self._halves) > 2 * self._most:
            oldest = next(iter(self._halves))
            self._emit(self._halves[oldest].link)
            self._remove(oldest)
            self.forgotten += 1
        return link.halves[0]

    def _remove(self, key: bytes) -> None:
        # A forged packet may have two equal ends, and one entry.
        self._halves.pop(key, None)
        self._halves.pop(key[_END:] + key[:_END], None)

    def _emit(self, link: Link) -> None:
        # Immediately, though it may be queried until the next batch: batch boundaries must not matter.
        link.give_back()
        if self.over is not None:
            self.over(link)
        if not self._looks_up:
            link.dissolve()

    @property
    def memory(self) -> int:
        """Approximate size in bytes."""
        return len(self._halves) // 2 * LINK_BYTES

    def close(self) -> None:
        """There are no more packets."""
        for link in self.open_links():
            self._emit(link)
        self._halves.clear()

    def find(self, client: Endpoint, broker: Endpoint, time_ns: int) -> Link | None:
        """The connection between two ends at a time, with `client` as the client; None: it is not remembered."""
        one, other = _numbers(client), _numbers(broker)
        half = self._halves.get(index_of((one, other)))
        if half is None:
            return None
        link = half.link
        while link.before is not None and time_ns < link.first_time:
            link = link.before
        # Decoded messages show the roles better than ports do.
        link.client = link.halves[0 if link.ends[0] == one else 1]
        return link


@lru_cache(maxsize=4096)
def _numbers(end: Endpoint) -> End:
    """Address and port as packets have them (IPv4 mapped into IPv6)."""
    address = ipaddress.ip_address(end.address)
    if address.version == 4:
        return 0, 0xFFFF << 32 | int(address), end.port
    return int(address) >> 64, int(address) & (1 << 64) - 1, end.port
