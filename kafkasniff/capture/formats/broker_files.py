"""Files of a broker's data folder as captures: log segments, and the small files beside them."""

from __future__ import annotations

import re
import struct
import zlib
from abc import ABC, abstractmethod
from pathlib import PurePath
from typing import Any, Final

import msgspec
import numpy as np

from kafkasniff.capture.formats.pcap import NANOSECONDS
from kafkasniff.model import BrokerTimes, Direction

FILE_HEADER: Final = struct.pack("<IHHiIII", NANOSECONDS, 2, 4, 0, 0, 1 << 18, 101)
"""pcap with nanoseconds; packets begin with IP."""
LATEST_NS: Final = (1 << 32) * 10**9 - 1
"""The latest time that a pcap file can express."""

_LARGEST: Final = 65_535 - 60
"""Bytes of data in one packet."""
_SYN_ACK: Final = 0x12
_FIN_ACK: Final = 0x11
_DATA: Final = 0x18


class Converter(ABC):
    """Bytes of a file in, bytes of a capture out. `push` takes a block, then `pull` returns pieces of that."""

    failure: str | None = None
    """Why no more data follows."""
    cut = False
    """The failure is that the file ended too early."""
    damaged: str | None = None
    """What could not be read, while the rest was; known at its end."""
    omitted: str | None = None
    """What the capture lacks because the file never had it; known at its end."""
    times: BrokerTimes | None = None
    """Those of a request log, at its end."""

    def __init__(self) -> None:
        self._input = bytearray()
        self._begun = self._ended = False

    def push(self, data: bytes) -> None:
        """More bytes of the file."""
        self._input += data

    def pull(self) -> bytes:
        """The next bytes of the capture; none: more of the file is needed, or it has ended."""
        if not self._begun:
            self._begun = True
            return FILE_HEADER
        return self._packets()

    @abstractmethod
    def _packets(self) -> bytes:
        """The next packets, likewise."""

    def finish(self) -> None:
        """The file has ended; what is left can be pulled."""
        self._ended = True


class Conversation(msgspec.Struct):
    """A connection whose messages become packets."""

    client: tuple[bytes, int]
    """Address of 4 or 16 bytes, and port."""
    broker: tuple[bytes, int]
    sent: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    """Bytes of the client, and of the broker."""

    start: int = 0
    """Sequence number of the first byte, before which nothing was sent."""

    def message(self, direction: Direction, message: bytes, time_ns: int) -> bytes:
        """Records of a pcap file with a message, whose length is put in front."""
        data = struct.pack(">i", len(message)) + message
        pieces = (data[at : at + _LARGEST] for at in range(0, len(data), _LARGEST))
        return b"".join([self._packet(direction, piece, _DATA, time_ns) for piece in pieces])

    def cut(self, direction: Direction, message: bytes, size: int, time_ns: int) -> bytes:
        """The packet of a message of `size` bytes, of which only the first are known."""
        return self._packet(direction, struct.pack(">i", size) + message, _DATA, time_ns, unknown=size - len(message))

    def begin(self, time_ns: int, *, midway: bool) -> bytes:
        """What separates the connection from others between the same ports: the broker's SYN.

        `midway`: it did not begin with the first message that is known. Then it is as if a connection without data had
        ended before that message.
        """
        # Another file may have a connection between the same ports, with another number.
        self.start = time_ns // 1000
        self.sent = [self.start, self.start]
        opening = self._packet("response", b"", _SYN_ACK, time_ns)
        self.sent[1] += 1
        if midway:
            opening += self._packet("request", b"", _FIN_ACK, time_ns)
            opening += self._packet("response", b"", _FIN_ACK, time_ns)
            self.sent = [sent + 1 for sent in self.sent]
        return opening

    def _packet(self, direction: Direction, data: bytes, flags: int, time_ns: int, unknown: int = 0) -> bytes:
        side = 0 if direction == "request" else 1
        source, target = (self.client, self.broker) if side == 0 else (self.broker, self.client)
        size = 20 + len(data)
        # Packets that are larger than IP allows have no length there, as with segmentation offload.
        length = size if unknown <= 0 else 0
        if len(source[0]) == 4:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, length and 20 + length, 0, 0, 64, 6, 0) + source[0] + target[0]
        else:
            ip = struct.pack(">IHBB", 6 << 28, length, 6, 64) + source[0] + target[0]
        # No data is acknowledged: that would be measured as a round trip.
        sequence, acknowledged = self.sent[side] & 0xFFFF_FFFF, self.start & 0xFFFF_FFFF
        tcp = struct.pack(">HHIIBBHHH", source[1], target[1], sequence, acknowledged, 0x50, flags, 65_535, 0, 0)
        self.sent[side] += len(data) + unknown
        size += len(ip)
        return struct.pack("<IIII", *divmod(time_ns, 10**9), size, size + unknown) + ip + tcp + data


# Log segments of brokers as captures: each batch becomes the Fetch response that would carry it.
#
# A segment (`00000000000000000000.log`, also a snapshot of KRaft, `….checkpoint`) is a sequence of record batches as
# they travel, by `org.apache.kafka.common.record.FileRecords`. Topic and partition are the name of its folder.
# Addresses are those for documentation (RFC 5737), the client id is the name of the file, and the time of a message is
# the newest timestamp of its batch.

SEGMENT_HEAD: Final = 27
"""Bytes that decide whether a file is a segment: those up to the first timestamp of a batch."""
MAX_BATCH: Final = 100 << 20
"""Largest batch; what claims to be larger is damaged. The limit of a message, too."""
PIECE: Final = 64 << 10
"""Bytes of a damaged place that are passed on at a time."""
REACH: Final = 1 << 20
"""Largest batch that is found after a damaged place. So many bytes are read before the search."""
MAX_TRIES: Final = 64
"""Checksums that are computed for a piece of a damaged place."""

_PREFIX: Final = struct.Struct(">qi")
"""Base offset, and the number of bytes that follow."""
_INDEX_ENTRY: Final = struct.Struct(">ii")
"""Offset relative to the segment's first, and position in the segment (`OffsetIndex`)."""
_MAGIC_AT: Final = 16
_ATTRIBUTES: Final = struct.Struct(">Hi")
"""Attributes and last offset delta of a batch of magic 2."""
_CHECKSUM_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
"""Where the range of the checksum begins, too."""
_UNKNOWN_BITS: Final = 0xFF80
_SMALLEST: Final = {0: 14, 1: 22, 2: 49}
"""Smallest number of bytes after the prefix, by magic."""
_TIMESTAMP_AT: Final = {1: 18, 2: 35}
"""Where the newest timestamp is, by magic."""
_PLACE: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")

_CLIENT: Final = bytes((192, 0, 2, 1))
_BROKER: Final = bytes((192, 0, 2, 2))
_BROKER_PORT: Final = 9092
_FIRST_PORT: Final = 10_000
"""Each file is a connection: its port follows from the path."""
_FETCH: Final = 1
_FETCH_VERSION: Final = 11
"""The last version with names of topics in a fixed encoding."""


def is_segment(head: bytes | bytearray) -> bool:
    """Whether a file that begins with these bytes (SEGMENT_HEAD suffice) is a log segment."""
    if len(head) < SEGMENT_HEAD:
        return False
    offset, size = _PREFIX.unpack_from(head)
    magic = head[_MAGIC_AT]
    if offset < 0 or magic not in _SMALLEST or not _SMALLEST[magic] <= size <= MAX_BATCH:
        return False
    if magic < 2:
        # Entries of time indexes begin with milliseconds since 1970; those of offset indexes grow in both numbers.
        (first, first_place), (second, second_place), (third, _) = _INDEX_ENTRY.iter_unpack(head[:24])
        return offset < 1 << 40 and not (0 < first < second < third and 0 < first_place < second_place)
    attributes, last_delta = _ATTRIBUTES.unpack_from(head, _ATTRIBUTES_AT)
    return offset < 1 << 56 and not attributes & _UNKNOWN_BITS and last_delta >= 0


class SegmentPackets(Converter):
    """Turns the bytes of a segment into those of a pcap file."""

    def __init__(self, path: str) -> None:
        """`path`: of the segment; topic and partition are the name of its folder, else its own name."""
        super().__init__()
        name, topic, partition, self._conversation = _place_of(path)
        self._topic, self._client_id = (_string(one.encode()) for one in (topic, name))
        self._partition = struct.pack(">i", partition)
        self._position = 0
        self._taken = self._damaged_bytes = self._next_whole = 0
        self._first_damaged: int | None = None
        self._fetches = 0
        self._offset = 0
        self._time_ns = 0

    def push(self, data: bytes) -> None:
        """See `Converter`."""
        del self._input[: self._position]
        self._position = 0
        super().push(data)

    def _packets(self) -> bytes:
        while True:
            size = self._next_size()
            if not size:
                if self._ended and self._damaged_bytes:
                    where = f"the first at byte {self._first_damaged}"
                    self.damaged = f"{self._damaged_bytes} bytes in it do not form batches, {where}"
                return b""
            piece = bytes(self._input[self._position : self._position + size])
            self._advance(size)
            if piece.strip(b"\0"):
                return self._exchange(piece)
            # A segment that is preallocated ends with zeros.

    def _advance(self, size: int) -> None:
        self._position += size
        self._taken += size

    def _next_size(self) -> int:
        """Bytes of the next batch, or of what is there instead; 0: none, for now."""
        there = len(self._input) - self._position
        if there >= SEGMENT_HEAD and is_segment(self._input[self._position : self._position + SEGMENT_HEAD]):
            size = _size_at(self._input, self._position)
            if size <= there and (self._is_whole(self._position) or self._search(size) == size):
                # Only its own bytes are damaged, if any.
                return size
            if size > there and not self._ended:
                return 0
        elif not self._ended and there < REACH + 2 * PIECE:
            # The answer must not depend on how many bytes have come.
            return 0
        return self._damaged(there) if there else 0

    def _damaged(self, there: int) -> int:
        """Bytes up to the next whole batch, at most PIECE; 0: only an incomplete batch is left."""
        size = self._search(min(there, PIECE))
        left = self._input[self._position : self._position + size]
        if not left.strip(b"\0"):
            return size
        if self._ended and (there < SEGMENT_HEAD or is_segment(left)) and not self._continues(there):
            self.cut = True
            self.failure = f"its last batch is incomplete ({there} bytes of it)"
            self._advance(there)
            return 0
        self._damaged_bytes += size
        if self._first_damaged is None:
            self._first_damaged = self._taken
        return size

    def _continues(self, there: int) -> bool:
        """Whether a whole batch is in the `there` bytes that are left."""
        if self._next_whole <= self._taken:
            pieces = range(0, there, PIECE)
            found = (start + self._search(min(PIECE, there - start), start) for start in pieces)
            ends = (min(start + PIECE, there) for start in pieces)
            self._next_whole = self._taken + next((at for at, end in zip(found, ends, strict=True) if at < end), 0)
        return self._next_whole > self._taken

    def _search(self, size: int, start: int = 0) -> int:
        """Bytes from `start` up to the next whole batch with the right checksum, at most `size`."""
        position = self._position + start
        found = np.array(self._input[position : position + size + _MAGIC_AT], np.uint8)
        likely = np.flatnonzero((found[:-_MAGIC_AT] == 0) & (found[_MAGIC_AT:] == 2))
        places = likely[likely + start > 0][:MAX_TRIES].tolist()
        return next((place for place in places if self._is_whole(position + place)), size)

    def _is_whole(self, position: int) -> bool:
        if not is_segment(self._input[position : position + SEGMENT_HEAD]):
            return False
        end = position + _size_at(self._input, position)
        if end > len(self._input) or end - position > REACH:
            return False
        from kafkasniff.kafka.records.batches import crc32c

        (checksum,) = struct.unpack_from(">I", self._input, position + _CHECKSUM_AT)
        return bool(crc32c(bytes(self._input[position + _ATTRIBUTES_AT : end])) == checksum)

    def _exchange(self, batch: bytes) -> bytes:
        """The packets of a Fetch and of its response with a batch."""
        if is_segment(batch):
            self._offset = _PREFIX.unpack_from(batch)[0]
            place = _TIMESTAMP_AT.get(batch[_MAGIC_AT])
            if place is not None and len(batch) >= place + 8:
                (time_ms,) = struct.unpack_from(">q", batch, place)
                self._time_ns = min(time_ms * 1_000_000, LATEST_NS) if time_ms >= 0 else self._time_ns
        self._fetches = number = (self._fetches + 1) & 0x7FFF_FFFF
        head = struct.pack(">hhi", _FETCH, _FETCH_VERSION, number) + self._client_id
        asked = struct.pack(">iiiibiii", -1, 0, 0, MAX_BATCH, 0, 0, -1, 1) + self._topic + struct.pack(">i", 1)
        asked += self._partition + struct.pack(">iqqi", -1, self._offset, -1, MAX_BATCH)
        answer = struct.pack(">iihii", number, 0, 0, 0, 1) + self._topic + struct.pack(">i", 1)
        answer += self._partition + struct.pack(">hqqqiii", 0, -1, -1, -1, -1, -1, len(batch)) + batch
        request = self._conversation.message("request", head + asked + struct.pack(">ih", 0, 0), self._time_ns)
        return request + self._conversation.message("response", answer, self._time_ns)


def _size_at(data: bytearray, position: int) -> int:
    return _PREFIX.size + int(_PREFIX.unpack_from(data, position)[1])


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


# The small files beside segments, each as the response that would say the same:
#
# | file | response |
# | --- | --- |
# | `….snapshot`: producers (`ProducerStateManager`) | DescribeProducers |
# | `partition.metadata`: the topic's id (`PartitionMetadataFile`) | Metadata |
# | `quorum-state`: leader, epoch, voters (`FileQuorumStateStore`) | DescribeQuorum |
# | `…-checkpoint`: offsets by partition, or by leader epoch (`CheckpointFile`) | ListOffsets |

MAX_STATE: Final = 16 << 20
"""Largest of these files in bytes; those of brokers with 10,000 partitions take some 500 kB."""

_SNAPSHOT: Final = struct.Struct(">HII")
"""Version, checksum of what follows, number of producers."""
_PRODUCER: Final = struct.Struct(">qhiqiqiq")
"""Id, epoch, last sequence, last offset, offset delta, timestamp, coordinator's epoch, start of the transaction."""
_TOPIC_ID: Final = re.compile(rb"version: ?0\ntopic_id: ?([\w-]{22})\s*")
_QUORUM: Final = re.compile(rb'\{"(?:clusterId":"[\w-]{0,50}",")?leaderId":-?\d{1,10},"leaderEpoch":', re.ASCII)
_CHECKPOINT: Final = re.compile(rb"0\n\d{1,9}\n(?:(?:[\w.-]{1,249} )?\d{1,10} -?\d{1,19}\n)*", re.ASCII)
_STATE_HEADS: Final = (
    _TOPIC_ID,
    _QUORUM,
    re.compile(rb"0\n(?:0\n\Z|\d{1,9}\n(?:[\w.-]{1,249} )?\d{1,10} -?\d{1,19}\n)", re.ASCII),
)
_UNKNOWN: Final = -1
_NO_OPERATIONS: Final = -(1 << 31)
"""Operations that were not asked for."""
_DESCRIBE_PRODUCERS: Final = 61
_METADATA: Final = 3
_DESCRIBE_QUORUM: Final = 55
_LIST_OFFSETS: Final = 2


class QuorumState(msgspec.Struct, rename="camel"):
    """`quorum-state`, of versions 0 and 1."""

    leader_id: int
    leader_epoch: int
    current_voters: tuple[dict[str, int], ...] | None = ()


def is_state_file(head: bytes) -> bool:
    """Whether a file that begins with these bytes (all, if there are few) is one of those beside segments."""
    if head[:2] == b"\0\1":
        return len(head) >= _SNAPSHOT.size and _SNAPSHOT.unpack_from(head)[2] < MAX_STATE // _PRODUCER.size
    return any(pattern.match(head) for pattern in _STATE_HEADS)


class StatePackets(Converter):
    """Turns a small file of a data folder into one exchange; its client id is the name of the file."""

    def __init__(self, path: str) -> None:
        """`path` as in `SegmentPackets`."""
        super().__init__()
        self._name, self._topic, self._partition, self._conversation = _place_of(path)

    def push(self, data: bytes) -> None:
        """See `Converter`."""
        if len(self._input) <= MAX_STATE:
            super().push(data)

    def _packets(self) -> bytes:
        if not self._ended or not self._input:
            return b""
        data = bytes(self._input)
        self._input.clear()
        try:
            return self._exchange(data)
        except (ValueError, TypeError, struct.error, RecursionError) as error:
            self.failure = str(error) or type(error).__name__
            return b""

    def _exchange(self, data: bytes) -> bytes:
        """The packets. Raises ValueError and others."""
        if len(data) > MAX_STATE:
            raise ValueError(f"it is larger than {MAX_STATE >> 20} MiB")
        if data[:2] == b"\0\1":
            return self._producers(data)
        if match := _TOPIC_ID.fullmatch(data):
            from kafkasniff.kafka.schema.codes import uuid_bytes

            topic: dict[str, Any] = {"topic_id": uuid_bytes(match[1].decode()), "name": self._topic}
            topic["topic_authorized_operations"] = _NO_OPERATIONS
            answer = {"topics": [topic], "controller_id": _UNKNOWN}
            return self._stands_for(_METADATA, 12, {"topics": [topic]}, answer)
        if data[:1] == b"{":
            state = msgspec.json.decode(data, type=QuorumState)
            voters = [
                {"replica_id": current_voter.get("voterId", _UNKNOWN), "log_end_offset": _UNKNOWN}
                for current_voter in state.current_voters or ()
            ]
            part = {"leader_id": state.leader_id, "leader_epoch": state.leader_epoch, "current_voters": voters}
            part |= {"partition_index": self._partition, "high_watermark": _UNKNOWN}
            topics = {"topics": [{"topic_name": self._topic, "partitions": [part]}]}
            self.omitted = "the response that stands for quorum-state has no vote, and quorum-state no offsets"
            return self._stands_for(_DESCRIBE_QUORUM, 0, topics, topics)
        if _CHECKPOINT.fullmatch(data) is None:
            raise ValueError("it is not a checkpoint: a line is not a place and an offset")
        return self._checkpoint(data.decode().splitlines())

    def _producers(self, data: bytes) -> bytes:
        from kafkasniff.kafka.records.batches import crc32c

        _, checksum, count = _SNAPSHOT.unpack_from(data)
        if len(data) != _SNAPSHOT.size + count * _PRODUCER.size:
            raise ValueError(f"a snapshot of {count} producers has {len(data)} bytes")
        if crc32c(data[6:]) != checksum:
            raise ValueError("the checksum of the snapshot is wrong")
        names = (
            *("producer_id", "producer_epoch", "last_sequence", "", "", "last_timestamp"),
            *("coordinator_epoch", "current_txn_start_offset"),
        )
        producers = [dict(zip(names, values, strict=True)) for values in _PRODUCER.iter_unpack(data[_SNAPSHOT.size :])]
        time_ms = max((producer["last_timestamp"] for producer in producers), default=0)
        self.omitted = f"the response that stands for the snapshot has no last offsets (of {count} producers)"
        asked = {"topics": [{"name": self._topic, "partition_indexes": [self._partition]}]}
        part = {"partition_index": self._partition, "active_producers": producers}
        answer = {"topics": [{"name": self._topic, "partitions": [part]}]}
        return self._stands_for(_DESCRIBE_PRODUCERS, 0, asked, answer, min(max(time_ms, 0) * 10**6, LATEST_NS))

    def _checkpoint(self, lines: list[str]) -> bytes:
        """The lines after the version and the number of entries: `TOPIC PARTITION OFFSET`, or `EPOCH OFFSET`."""
        if int(lines[1]) != len(lines) - 2:
            raise ValueError(f"{lines[1]} entries are announced, and {len(lines) - 2} there")
        topics: dict[str, list[dict[str, int]]] = {}
        for line in lines[2:]:
            *place, number, offset = line.split(" ")
            part = dict.fromkeys(("timestamp", "leader_epoch", "current_leader_epoch"), _UNKNOWN)
            part |= {"partition_index": self._partition, "offset": int(offset)}
            part["partition_index" if place else "leader_epoch"] = int(number)
            topics.setdefault(place[0] if place else self._topic, []).append(part)
        answer = {"topics": [{"name": name, "partitions": parts} for name, parts in topics.items()]}
        return self._stands_for(_LIST_OFFSETS, 6, {"replica_id": _UNKNOWN, **answer}, answer)

    def _stands_for(
        self, key: int, version: int, request: dict[str, Any], response: dict[str, Any], time_ns: int = 0
    ) -> bytes:
        from kafkasniff.kafka.apis.kafka_json import message_of

        header = {"request_api_key": key, "request_api_version": version, "correlation_id": 1, "client_id": self._name}
        sent = self._conversation.message("request", message_of("request", header, request), time_ns)
        return sent + self._conversation.message("response", message_of("response", header, response), time_ns)


def _place_of(path: str) -> tuple[str, str, int, Conversation]:
    """The name of a file, the topic and the partition that its folder names, and the connection that it becomes."""
    file = PurePath(path)
    match = _PLACE.fullmatch(file.parent.name)
    topic, partition = (match["topic"], int(match["partition"])) if match else (file.name, 0)
    port = _FIRST_PORT + zlib.crc32(path.encode("utf-8", "surrogateescape")) % 55_000
    conversation = Conversation((_CLIENT, port), (_BROKER, _BROKER_PORT))
    name, topic = (
        one.encode("utf-8", "surrogateescape")[:249].decode("utf-8", "replace") for one in (file.name, topic)
    )
    return name, topic, partition, conversation
