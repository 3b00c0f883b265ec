"""The links of all connections, packet by packet: connections begin and end as in `tests.oracle.tcp.reassembly`.

`rows` are what the table `transport` has of them, `network` is what `timing` asks of an exchange's connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kafkasniff.engine.connection_stats import connection_id, endpoint
from kafkasniff.kafka.connection.waits import answers_at_once, throttle_ns
from kafkasniff.model import NO_TIME, Endpoint, Exchange, Message, SaslToken
from kafkasniff.native.streams import UNKNOWN, Network
from kafkasniff.packets import ACK, SYN, PacketBatch
from kafkasniff.timing import Trouble
from tests.oracle.tcp.connection import TcpConnection
from tests.oracle.tcp.reassembly import Reassembler
from tests.oracle.tcp.stream import Packet
from tests.oracle.timing.link import Link, LinkHalf

_END: Final = 1 << 63


class Links:
    """Follows all connections; `feed` takes batches of one packet."""

    def __init__(self) -> None:
        self._reassembler = Reassembler()
        self._found: dict[TcpConnection, Link] = {}
        self._by_id: dict[int, Link] = {}
        self._waiting: dict[TcpConnection, Packet] = {}
        """SYNs that may begin another connection."""
        self._done: dict[int, tuple[int, int, int]] = {}
        """By number of the connection: end of its last response, and of its last message."""

    def feed(self, batch: PacketBatch) -> None:
        """Take the next packet."""
        row = {name: int(getattr(batch, name)[0]) for name in _NAMES}
        source, target = (tuple(row[f"{end}_{part}"] for part in ("hi", "lo", "port")) for end in ("src", "dst"))
        key: Any = (source, target) if source <= target else (target, source)
        before = self._reassembler.connection(key)
        self._reassembler.feed(batch)
        now = self._reassembler.connection(key)
        assert now is not None
        ignored: list[Packet] = []
        for connection, syn in list(self._waiting.items()):
            if connection is before and now is not before and now.first_packet == syn.packet:
                self._syn(now, syn)
            elif connection.pending_syn is syn:
                continue
            elif connection is now and now.closed and (row["flags"] & SYN or key[syn.direction] != source):
                ignored.append(syn)
            else:
                self._syn(connection, syn)
            del self._waiting[connection]
        if now.pending_syn is not None and now.pending_syn.order == int(batch.order[0]):
            self._waiting[now] = now.pending_syn
        else:
            names = ("time_ns", "seq", "ack", "flags", "window", "wire_length", "ident")
            self._packet(now, source, *(row[name] for name in names))
        for syn in ignored:
            # This packet has closed the connection.
            self._syn(now, syn)

    def close(self) -> None:
        """The end of the captures."""
        for connection, syn in self._waiting.items():
            self._syn(connection, syn)

    def _syn(self, connection: TcpConnection, syn: Packet) -> None:
        source = connection.endpoints[syn.direction]
        self._packet(connection, source, syn.time_ns, syn.seq, syn.ack, syn.flags, 0, syn.wire_length, syn.ident)

    def _packet(  # noqa: PLR0917 - a row of a batch
        self, connection: TcpConnection, source: Any, time: int, seq: int, ack: int, flags: int, *more: int
    ) -> None:
        if time == NO_TIME:
            return
        link = self._found.get(connection)
        if link is None:
            one, other = connection.endpoints
            asks = flags & (SYN | ACK) == SYN
            link = Link((source, other if source == one else one), time, asks=asks)
            self._found[connection] = link
            self._by_id[connection_id(connection.endpoints, connection.first_time)] = link
        link.last_time = max(link.last_time, time)
        link.halves[link.ends.index(source)].packet(time, seq, ack, flags, *more)

    # -- queries ------------------------------------------------------------------------------------------------------

    def rows(self, clients: Mapping[int, Endpoint]) -> Iterator[dict[str, Any]]:
        """The rows of all connections; `clients`: of those whose messages show it, by `connection_id`."""
        for link in self._found.values():
            known = clients.get(connection_id(link.ends, link.first_time))
            yield _row(link, next((end for end in link.ends if endpoint(end) == known), None))

    def network(self, exchange: Exchange) -> Network | None:
        """What the network was like during an exchange that ends with the last packet."""
        message = exchange.request or exchange.response
        assert message is not None
        for connection, link in self._found.items():
            if (
                link is not None
                and connection_id(connection.endpoints, connection.first_time) == exchange.connection_id
            ):
                known = next(end for end in link.ends if endpoint(end) == message.client)
                done = self._done.get(exchange.connection, _NOTHING)
                self._end(exchange, *done)
                return _network(link, link.client(known), exchange, done)
        return None

    def _end(self, exchange: Exchange, before_done: int, quiet_since: int, muted_until: int) -> None:
        """Note when an exchange was over."""
        request, response = exchange.request, exchange.response
        times = [one.time_ns for one in (request, response) if one is not None and one.time_ns is not None]
        if request is not None and response is not None and len(times) == len(("request", "response")):
            before_done = max(before_done, times[-1])
            muted_until = max(muted_until, _muted_until(exchange, request, response))
        self._done[exchange.connection] = before_done, max(quiet_since, times[-1] if times else NO_TIME), muted_until

    def token(self, token: SaslToken) -> None:
        """Note when a token was complete."""
        assert token.connection is not None
        if token.time_ns is not None:
            before_done, _, muted_until = self._done.get(token.connection, _NOTHING)
            self._done[token.connection] = before_done, token.time_ns, muted_until


_NOTHING: Final = (NO_TIME, NO_TIME, NO_TIME)


def _muted_until(exchange: Exchange, request: Message, response: Message) -> int:
    """Time until which a response asks the client to send nothing; NO_TIME: it does not."""
    throttle, latency, asked = throttle_ns(response), exchange.latency_ns, request.time_ns
    assert latency is not None
    assert asked is not None
    waited = (exchange.behind_ns or 0) + (exchange.muted_ns or 0)
    held = not answers_at_once(request.api_key, request.api_version) and throttle <= (exchange.muted_ns or 0)
    return NO_TIME if not throttle or (held and waited <= latency) else asked + latency + throttle


_NAMES: Final = (
    *("src_hi", "src_lo", "src_port", "dst_hi", "dst_lo", "dst_port", "time_ns"),
    *("seq", "ack", "flags", "window", "wire_length", "ident"),
)


def _numbers(*values: int | None) -> list[int]:
    return [UNKNOWN if one is None else one for one in values]


def _network(link: Link, client: LinkHalf, exchange: Exchange, done: tuple[int, int, int]) -> Network:
    request, response, latency, duration = (
        exchange.request,
        exchange.response,
        exchange.latency_ns,
        exchange.duration_ns,
    )
    trips, resent_at, troubles = _numbers(None, None), NO_TIME, [Trouble(), Trouble()]
    if request is not None and response is not None and latency is not None and duration is not None:
        asked, answered = request.time_ns, response.time_ns
        assert asked is not None
        assert answered is not None
        trips = _numbers(*link.round_trips(client, answered))
        found = client.trouble.retransmitted_at(asked, asked + latency)
        resent_at = NO_TIME if found is None else found
        troubles = [half.trouble.between(answered - duration, answered) for half in (client, client.peer)]
    columns = (list(values) for values in zip(*troubles, strict=True))
    return Network(_numbers(*link.handshake()), trips, resent_at, *done, *columns)


def _row(link: Link, known: tuple[int, int, int] | None) -> dict[str, Any]:
    client = link.client(known)
    sides = {"client": client, "broker": client.peer}
    ends = {side: endpoint(link.end(half)) for side, half in sides.items()}
    broker_trip, client_trip = link.round_trips(client, _END)
    row: dict[str, Any] = {
        "connection_id": connection_id(link.ends, link.first_time),
        "time_ns": link.first_time,
        "end_time_ns": link.last_time,
        "opening": link.opening,
        "syns": link.syns,
        "ended_by": None if link.ended_by is None else "client" if link.ended_by is client else "broker",
        "ended_with": None if link.ended is None else "rst" if link.reset else "fin",
        "ended_ns": link.ended,
        "quiet_ns": None if link.ended is None or client.spoke is None else max(link.ended - client.spoke, 0),
        "broker_round_trip_us": None if broker_trip is None else broker_trip // 1000,
        "client_round_trip_us": None if client_trip is None else client_trip // 1000,
        "lost_longest_us": max(half.lost_longest_ns for half in sides.values()) // 1000,
        "slowest_round_trip_us": max(half.slowest_trip_ns for half in sides.values()) // 1000,
        "stalls": [
            {"sender": side, **stall._asdict()}
            for side, half in sides.items()
            for stall in half.stalls_until(link.last_time)
        ],
    }
    for side, half in sides.items():
        trouble = half.total(link.last_time)
        row |= {f"{side}_ip": ends[side].address, f"{side}_port": ends[side].port}
        row |= {f"{side}_packets": half.packets, f"{side}_data": half.data, f"{side}_lost": half.lost}
        row |= {f"{side}_again": trouble.again, f"{side}_late": trouble.late, f"{side}_closed": trouble.closed}
        row |= {f"{side}_round_trips": half.peer.trips, f"{side}_slow_round_trips": half.peer.slow_trips}
        row[f"{side}_closed_us"] = trouble.closed_ns // 1000
    return row
