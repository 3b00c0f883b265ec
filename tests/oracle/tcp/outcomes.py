"""What reassembly makes of packets, and a whole conversation as packets."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kafkasniff.tcp.packets import ACK, FIN, SYN, PacketBatch
from kafkasniff.tcp.segments import Item, Stretch
from tests.oracle.tcp.reassembly import Reassembler

from .batches import Raw, batch


def outcome(batches: list[PacketBatch], **options: int) -> dict[tuple[int, int], list[Any]]:
    """Per connection (first order, endpoints' client port): what it yielded, segment by segment, mergeable."""
    reassembler = Reassembler(**options)
    result: dict[tuple[int, int], list[Any]] = defaultdict(list)

    def take(deltas: list[tuple[Any, list[Item]]]) -> None:
        for connection, items in deltas:
            key = (connection.first_order, connection.endpoints[0][2])
            for item in items:
                if isinstance(item, Stretch):
                    rows = [
                        (
                            run.order[i],
                            direction,
                            run.buffer[run.offset[i] : run.offset[i] + run.length[i]],
                            run.packet[i],
                            run.time[i],
                            run.released[i],
                        )
                        for direction, run in enumerate(item.runs)
                        if run is not None
                        for i in range(run.first, run.last)
                    ]
                    result[key] += sorted(rows, key=lambda row: row[0])
                else:
                    result[key].append(item)

    for one in batches:
        take(reassembler.feed(one))
    take(reassembler.close())
    return dict(result)


def streams(rows: list[Any]) -> tuple[bytes, bytes]:
    return tuple(  # type: ignore[return-value]
        b"".join(row[2] for row in rows if isinstance(row, tuple) and row[1] == direction) for direction in (0, 1)
    )


def of_kind(rows: list[Any], kind: type) -> list[Any]:
    return [row for row in rows if isinstance(row, kind)]


def split_everywhere(packets: list[Raw]) -> list[PacketBatch]:
    return [batch([packet], start=index) for index, packet in enumerate(packets)]


def conversation(
    messages: list[tuple[int, bytes]], *, isn: tuple[int, int] = (100, 5000), segment: int = 7
) -> list[Raw]:
    """A whole connection: handshake, messages in segments with acknowledgements, both FINs."""
    seq = [isn[0] + 1, isn[1] + 1]
    packets = [Raw(0, isn[0], flags=SYN), Raw(1, isn[1], flags=SYN | ACK, ack=seq[0]), Raw(0, seq[0], ack=seq[1])]
    for sender, data in messages:
        for at in range(0, len(data), segment):
            part = data[at : at + segment]
            packets.append(Raw(sender, seq[sender], part, ack=seq[1 - sender]))
            seq[sender] += len(part)
        packets.append(Raw(1 - sender, seq[1 - sender], ack=seq[sender]))
    packets += [
        Raw(0, seq[0], flags=FIN | ACK, ack=seq[1]),
        Raw(1, seq[1], flags=FIN | ACK, ack=seq[0] + 1),
        Raw(0, seq[0] + 1, ack=seq[1] + 1),
    ]
    return packets


MESSAGES = [(0, b"the first request"), (1, b"its response, which is longer"), (0, b"another"), (1, b"and its answer")]

SENT = (b"the first requestanother", b"its response, which is longerand its answer")


def only(result: dict[Any, list[Any]]) -> list[Any]:
    assert len(result) == 1
    return next(iter(result.values()))
