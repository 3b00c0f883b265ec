"""Request logs of brokers as captures: each line becomes the request and the response that it describes.

Brokers write them since Kafka 2.7 (KIP-673, `kafka.network.RequestConvertToJson`), with the logger
`kafka.request.logger` at DEBUG or TRACE. Such a line has the JSON of both bodies, the connection, and the broker's own
times. It is written when the response has been sent.
"""

from __future__ import annotations

import datetime
import ipaddress
import operator
import re
import struct
from collections import OrderedDict
from typing import Any, Final

import msgspec

from kafkasniff.capture.formats.made_packets import FILE_HEADER, LATEST_NS, Conversation, Converter
from kafkasniff.model import BROKER_TIMES, BrokerTimes

__all__ = ["LOG_HEAD", "LogPackets", "is_request_log", "is_text"]

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

    def give(self, data: bytes) -> None:
        """More bytes of the log."""
        self._input += data

    def finish(self) -> None:
        """The log has ended; what is left can be taken."""
        self._ended = True

    def take(self) -> bytes:
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
    request = _header("RequestHeader", known.request_header(version), head)
    request += encode(body, defaults if unread else values_of(body, said.request, sizes))
    if not isinstance(said.response, dict):
        return known.name, request, b""
    version = known.min_version if unread else version
    body = known.response(version).root
    response = _header("ResponseHeader", known.response_header(version), head)
    return known.name, request, response + encode(body, values_of(body, said.response, sizes))


def _header(name: str, version: int, head: _Header) -> bytes:
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
