"""Files of brokers as captures: log segments, and request logs."""

from __future__ import annotations

import datetime
import ipaddress
import operator
import re
import struct
import zlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from pathlib import PurePath
from typing import Any, Final

import msgspec
import numpy as np

from kafkasniff.capture.formats.pcap import NANOSECONDS
from kafkasniff.model import BROKER_TIMES, BrokerTimes, Direction

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

    @abstractmethod
    def push(self, data: bytes) -> None:
        """More bytes of the file."""

    @abstractmethod
    def pull(self) -> bytes:
        """The next bytes of the capture; none: more of the file is needed, or it has ended."""

    @abstractmethod
    def finish(self) -> None:
        """The file has ended; what is left can be pulled."""


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

    def _packet(self, direction: Direction, data: bytes, flags: int, time_ns: int) -> bytes:
        side = 0 if direction == "request" else 1
        source, target = (self.client, self.broker) if side == 0 else (self.broker, self.client)
        size = 20 + len(data)
        if len(source[0]) == 4:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 0, 0, 64, 6, 0) + source[0] + target[0]
        else:
            ip = struct.pack(">IHBB", 6 << 28, size, 6, 64) + source[0] + target[0]
        # No data is acknowledged: that would be measured as a round trip.
        sequence, acknowledged = self.sent[side] & 0xFFFF_FFFF, self.start & 0xFFFF_FFFF
        tcp = struct.pack(">HHIIBBHHH", source[1], target[1], sequence, acknowledged, 0x50, flags, 65_535, 0, 0)
        self.sent[side] += len(data)
        size += len(ip)
        return struct.pack("<IIII", *divmod(time_ns, 10**9), size, size) + ip + tcp + data


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
        # Entries of time indexes begin with milliseconds since 1970.
        return bool(offset < 1 << 40)
    attributes, last_delta = _ATTRIBUTES.unpack_from(head, _ATTRIBUTES_AT)
    return offset < 1 << 56 and not attributes & _UNKNOWN_BITS and last_delta >= 0


class SegmentPackets(Converter):
    """Turns the bytes of a segment into those of a pcap file."""

    def __init__(self, path: str) -> None:
        """`path`: of the segment; topic and partition are the name of its folder, else its own name."""
        file = PurePath(path)
        found = _PLACE.fullmatch(file.parent.name)
        topic, partition = (found["topic"], int(found["partition"])) if found else (file.name, 0)
        self._topic = _string(topic.encode("utf-8", "surrogateescape")[:249])
        port = _FIRST_PORT + zlib.crc32(path.encode("utf-8", "surrogateescape")) % 55_000
        self._conversation = Conversation((_CLIENT, port), (_BROKER, _BROKER_PORT))
        self._partition = struct.pack(">i", partition)
        self._client_id = _string(file.name.encode("utf-8", "surrogateescape")[:1000])
        self._input = bytearray()
        self._position = 0
        self._begun = self._ended = False
        self._taken = self._damaged_bytes = self._next_whole = 0
        self._first_damaged: int | None = None
        self._fetches = 0
        self._offset = 0
        self._time_ns = 0

    def push(self, data: bytes) -> None:
        """More bytes of the segment."""
        del self._input[: self._position]
        self._position = 0
        self._input += data

    def finish(self) -> None:
        """The segment has ended; what is left can be pulled."""
        self._ended = True

    def pull(self) -> bytes:
        """The next bytes of the capture; none: more of the segment is needed, or it has ended."""
        if not self._begun:
            self._begun = True
            return FILE_HEADER
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


# Request logs of brokers as captures: each line becomes the request and the response that it describes.
#
# Brokers write them since Kafka 2.7 (KIP-673, `kafka.network.RequestConvertToJson`), with the logger
# `kafka.request.logger` at DEBUG or TRACE. Such a line has the JSON of both bodies, the connection, and the broker's
# own times. It is written when the response has been sent.

LOG_HEAD: Final = 64 << 10
"""Bytes of a log that decide whether it is a request log: other loggers may write to the same file."""
MAX_LINE: Final = 16 << 20
"""Largest line in bytes; a longer one is skipped."""
MAX_CONNECTIONS: Final = 1 << 16
"""Connections that are followed at a time. The one that was quiet for the longest time is forgotten first."""

_MARK: Final = b"Completed request:{"
_TIME: Final = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_CONNECTION: Final = re.compile(r"([^-]{1,64}):(\d{1,5})-([^-]{1,64}):(\d{1,5})-([\d-]{1,40})", re.ASCII)
"""Broker, client, and number of the connection (`org.apache.kafka.common.network.ServerConnectionId`)."""
_LONGEST_MS: Final = 1e10
"""No exchange takes longer."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class _Header(msgspec.Struct, rename="camel"):
    """`requestHeader` of a line."""

    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None = None


class _Line(msgspec.Struct, rename="camel"):
    """What a line says of an exchange; times in milliseconds."""

    request_header: _Header
    request: dict[str, Any]
    connection: str
    total_time_ms: float
    security_protocol: str = ""
    request_queue_time_ms: float = 0
    local_time_ms: float = 0
    remote_time_ms: float = 0
    throttle_time_ms: float = 0
    response_queue_time_ms: float = 0
    send_time_ms: float = 0
    response: Any = None
    """Not an object if there is none (acks=0)."""


_TIMES: Final = tuple(f"{name}_time_ms" for name in BROKER_TIMES)
_DECODER: Final = msgspec.json.Decoder(_Line)


def is_text(head: bytes) -> bool:
    """Whether a file that begins with these bytes may be a request log, as far as its first bytes show."""
    return head[:1] > b"\x1f" and b"\0" not in head


def is_request_log(head: bytes) -> bool:
    """Whether a file that begins with these bytes (LOG_HEAD of them, or all) is a request log."""
    return is_text(head) and _MARK in head


class LogPackets(Converter):
    """Turns the lines of a request log into the bytes of a pcap file. It is never cut: a log ends anywhere."""

    def __init__(self) -> None:
        self._times: dict[str, list[int]] = {}
        """Number of exchanges and sums of times by API."""
        self._input = bytearray()
        self._searched = 0
        """Bytes of the input without an end of line."""
        self._begun = self._ended = self._skipping = False
        self._line = self._time_ns = 0
        self._first_bad = ""
        """The first line that cannot be read, with the reason."""
        self._bad_lines = self._untimed = 0
        self._records = self._record_bytes = 0
        """Exchanges with records, and bytes of these."""
        self._conversations: OrderedDict[tuple[str, ...], Conversation] = OrderedDict()

    def push(self, data: bytes) -> None:
        """More bytes of the log."""
        self._input += data

    def finish(self) -> None:
        """The log has ended; what is left can be pulled."""
        self._ended = True

    def pull(self) -> bytes:
        """The next bytes of the capture; none: more of the log is needed, or it has ended."""
        if not self._begun:
            self._begun = True
            return FILE_HEADER
        while (line := self._next_line()) is not None:
            packets = self._exchange(line)
            if packets:
                return packets
        if self._ended:
            self._conclude()
        return b""

    def _next_line(self) -> bytes | None:
        """A line; None: none is complete."""
        while True:
            end = self._input.find(b"\n", self._searched)
            if end < 0 and self._ended and (self._input or self._skipping):
                end = len(self._input)
            if end < 0:
                self._searched = len(self._input)
                if self._searched > MAX_LINE:
                    self._skipping, self._searched = True, 0
                    self._input.clear()
                return None
            line = bytes(self._input[:end])
            del self._input[: end + 1]
            self._searched = 0
            self._line += 1
            if not self._skipping and len(line) <= MAX_LINE:
                return line
            self._skipping = False
            self._report(f"it has more than {MAX_LINE >> 20} MiB")

    def _report(self, reason: str) -> None:
        self._bad_lines += 1
        if self._bad_lines == 1:
            self._first_bad = f"line {self._line}: {reason}"

    def _conclude(self) -> None:
        if self._bad_lines:
            self.damaged = f"{self._bad_lines} of its lines cannot be read, the first is {self._first_bad}"
        records = f"records of {self._records} exchanges ({self._record_bytes} bytes)" if self._records else "records"
        self.omitted = f"a request log has no {records}, log-ins and round trips"
        if self._untimed:
            self.omitted += f"; {self._untimed} of its lines have no time, and got that of the line before"
        self.times = BrokerTimes({name: tuple(sums) for name, sums in self._times.items()})

    def _exchange(self, line: bytes) -> bytes:
        """The packets of the exchange that a line describes; none: it is a line of another logger, or unreadable."""
        begin = line.find(_MARK)
        if begin < 0:
            return b""
        sizes: list[int] = []
        try:
            said = _DECODER.decode(line[begin + len(_MARK) - 1 : line.rindex(b"}") + 1])
            name, request, response = _messages(said, sizes)
            conversation, is_new = self._conversation(said.connection)
        except (ValueError, TypeError, OverflowError, RecursionError, struct.error) as error:
            self._report(str(error) or type(error).__name__)
            return b""
        self._records += 1 if sizes else 0
        self._record_bytes += sum(sizes)
        times = [int(min(max(time, 0), _LONGEST_MS) * 1000) for time in map(said.__getattribute__, _TIMES)]
        sums = self._times.setdefault(name, [0] * (1 + len(times)))
        sums[:] = map(operator.add, sums, (1, *times))
        done = self._time(line[:begin])
        begun = max(done - 1000 * times[0], 0)
        # Others begin with a log-in, which is not in the log.
        packets = conversation.begin(begun, midway=said.security_protocol != "PLAINTEXT") if is_new else b""
        packets += conversation.message("request", request, begun)
        return packets + (conversation.message("response", response, done) if response else b"")

    def _time(self, prefix: bytes) -> int:
        """When a line was written, in nanoseconds; without a zone, it is UTC."""
        found = _TIME.search(prefix)
        try:
            if found is None:
                raise ValueError
            *parts, fraction, zone = (group.decode() if group else "" for group in found.groups())
            year, month, day, hour, minute, second = map(int, parts)
            written = datetime.datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone))
        except ValueError:
            self._untimed += 1
            return self._time_ns
        seconds = (written - _EPOCH) // datetime.timedelta(seconds=1)
        self._time_ns = min(max(seconds * 10**9 + int(f"{fraction:0<9}"), 0), LATEST_NS)
        return self._time_ns

    def _conversation(self, text: str) -> tuple[Conversation, bool]:
        """The connection that a line names, and whether it is new. Raises ValueError."""
        found = _CONNECTION.fullmatch(text)
        if found is None:
            raise ValueError(f"connection {text!r:.80} is not two addresses and a number")
        name = found.groups()
        conversation = self._conversations.pop(name, None)
        is_new = conversation is None
        if conversation is None:
            broker, client = (_address(*name[at : at + 2]) for at in (0, 2))
            conversation = Conversation(client, broker)
        self._conversations[name] = conversation
        if len(self._conversations) > MAX_CONNECTIONS:
            self._conversations.popitem(last=False)
        return conversation, is_new


def _messages(said: _Line, sizes: list[int]) -> tuple[str, bytes, bytes]:
    """The API, the request, and the response, which is empty if there is none. Raises ValueError and others."""
    from kafkasniff.kafka.apis.dissectors import api
    from kafkasniff.kafka.apis.kafka_json import encode, values_of

    head = said.request_header
    known, version = api(head.request_api_key), head.request_api_version
    if known is None or version not in known.versions:
        raise ValueError(f"version {version} of API {head.request_api_key} is unknown")
    body = known.request(version).root
    # Brokers do not read ApiVersions of a version that they do not know, and respond in version 0.
    unread = not said.request and bool(body.fields)
    defaults = {
        field.name: int(field.default, 0) for field in body.fields if field.default and field.type.startswith("int")
    }
    request = _encoded_header("RequestHeader", known.request_header(version), head)
    request += encode(body, defaults if unread else values_of(body, said.request, sizes))
    if not isinstance(said.response, dict):
        return known.name, request, b""
    version = known.min_version if unread else version
    body = known.response(version).root
    response = _encoded_header("ResponseHeader", known.response_header(version), head)
    return known.name, request, response + encode(body, values_of(body, said.response, sizes))


def _encoded_header(name: str, version: int, head: _Header) -> bytes:
    from kafkasniff.kafka.apis.kafka_json import encode
    from kafkasniff.kafka.schema.schema import data_schema

    schema = data_schema(name, version)
    assert schema is not None
    return encode(schema.root, msgspec.structs.asdict(head))


def _address(host: str, port: str) -> tuple[bytes, int]:
    number = int(port)
    if number > 65_535:
        raise ValueError(f"port {number} is above 65535")
    return ipaddress.ip_address(host.strip("[]").partition("%")[0]).packed, number


def _zone(text: str) -> datetime.timezone:
    if text in ("", "Z"):
        return datetime.UTC
    offset = datetime.timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return datetime.timezone(-offset if text[0] == "-" else offset)
