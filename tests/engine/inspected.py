"""Packets of one connection as they are sent, and what the inspector makes of them."""

from __future__ import annotations

from typing import Any

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange, Message, Problem
from kafkasniff.tcp.packets import ACK, FIN, SYN
from tests.craft import kafka_bytes as kb
from tests.oracle.tcp.batches import Raw, batch

BATCH = kb.record_batch([kb.record(0, b"k", b"value")])


class Talk:
    """Packets of one connection, in the order in which they are sent."""

    def __init__(self, *, conversation: int = 0, handshake: bool = True, segment: int = 1460) -> None:
        self.seq = [1000, 2000]
        self.packets: list[Raw] = []
        self.segment = segment
        self.conversation = conversation
        if handshake:
            self.packets += [
                self._raw(0, self.seq[0] - 1, flags=SYN),
                self._raw(1, self.seq[1] - 1, flags=SYN | ACK, ack=self.seq[0]),
            ]

    def _raw(self, sender: int, seq: int, payload: bytes = b"", **fields: Any) -> Raw:
        return Raw(sender, seq, payload, conversation=self.conversation, **fields)

    def send(self, sender: int, data: bytes, *, snap: int | None = None) -> Talk:
        for at in range(0, len(data), self.segment):
            part = data[at : at + self.segment]
            kept = part if snap is None else part[:snap]
            self.packets.append(self._raw(sender, self.seq[sender], kept, wire=len(part), ack=self.seq[1 - sender]))
            self.seq[sender] += len(part)
        return self

    def lose(self, sender: int, count: int) -> Talk:
        """Bytes that were sent but not captured, acknowledged often enough to be known as lost."""
        self.seq[sender] += count
        return self

    def acknowledge(self, sender: int, times: int = 40) -> Talk:
        self.packets += [self._raw(sender, self.seq[sender], ack=self.seq[1 - sender]) for _ in range(times)]
        return self

    def metadata(self, *numbers: int) -> Talk:
        """Exchanges one after the other."""
        for number in numbers:
            self.send(0, kb.metadata_request(number, None)).send(1, kb.metadata_response(number, "h", 1, []))
        return self

    def end(self, flags: int = FIN | ACK) -> Talk:
        for sender in (0, 1):
            self.packets.append(self._raw(sender, self.seq[sender], flags=flags, ack=self.seq[1 - sender]))
            self.seq[sender] += 1
        return self


def inspect(packets: list[Raw] | Talk, **options: Any) -> list[Any]:
    """Events of the inspector; fails if one batch and packet by packet differ."""
    if isinstance(packets, Talk):
        packets = packets.packets
    inspector = Inspector(**options)
    whole = inspector.feed(batch(packets)) + inspector.close()
    inspector = Inspector(**options)
    single: list[Any] = []
    for index, packet in enumerate(packets):
        single += inspector.feed(batch([packet._replace(time_ns=(index + 1) * 1000)], start=index))
    single += inspector.close()
    assert single == whole
    return whole


def messages(out: list[Any]) -> list[tuple[Any, ...]]:
    return [(m.type, m.api, m.api_version, m.correlation_id, m.exchange) for m in out if isinstance(m, Message)]


def statuses(out: list[Any]) -> list[tuple[int, str]]:
    return [(e.exchange, e.status) for e in out if isinstance(e, Exchange)]


def problems(out: list[Any]) -> list[str]:
    """Kinds of problems of streams."""
    return [p.kind for p in out if isinstance(p, Problem)]


def flaws(out: list[Any]) -> list[str]:
    """Kinds of problems of messages."""
    return [p.kind for m in out if isinstance(m, Message) for p in m.problems]


def greeted(**options: Any) -> Talk:
    return Talk(**options).send(0, kb.api_versions_request(1)).send(1, kb.api_versions_response(1))


GREETING = [("request", "ApiVersions", 0, 1, 1), ("response", "ApiVersions", 0, 1, 1)]
