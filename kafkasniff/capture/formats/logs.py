"""Logs as captures: request logs of brokers, and what clients log of requests and responses."""

from __future__ import annotations

import datetime
import ipaddress
import operator
import re
import struct
import zlib
from abc import abstractmethod
from collections import OrderedDict
from typing import Any, Final

import msgspec

from kafkasniff.capture.formats.broker_files import LATEST_NS, Conversation, Converter
from kafkasniff.model import BROKER_TIMES, BrokerTimes

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

# What clients log: each line about a request or a response becomes that, as far as it is known.
#
# Java clients log their bodies (`org.apache.kafka.clients.NetworkClient` at DEBUG), librdkafka only sizes
# (`debug=protocol`). A broker whose address is not in the log has one for documentation (RFC 5737), as clients do.

_CLIENT_LINE: Final = re.compile(
    rb"%7\|\d{1,10}\.\d{3}\|(?:SEND|RECV)\||"
    rb"(?:Sending|Received) [A-Z_]{3,60} re(?:quest|sponse) (?:with header|from node)"
)
_RDKAFKA: Final = re.compile(
    r"%7\|(\d{1,10})\.(\d{3})\|(SEND|RECV|CONNECTED)\|([^|#]{0,249})[^|]{0,40}\| \[thrd:[^\]]{0,300}\]: (\S{1,300}?): "
    r"(?:(?:Sent|Received) (\w{1,60}?)(?:Request|Response) \(v(\d{1,5}), (\d{1,9}) bytes.{0,40}?, CorrId (\d{1,10})|)"
)
"""Time, what happens, client id, broker; API, version, bytes and correlation id."""
_JAVA: Final = re.compile(
    r"\[(?P<client>[^\]]{0,600})\] (?P<verb>Sending|Received|Initiating) (?:[A-Z_]{3,60} |connection to )"
    r"(?:response from )?(?:request with header (?P<header>RequestHeader.{0,500}?) and timeout -?\d{1,20} to )?"
    r"node (?P<node>\S{1,300}?):?(?= )(?: for request with header (?P<answered>RequestHeader.{0,500}?):)? (?P<body>.*)",
    re.DOTALL,
)
_JAVA_HEADER: Final = re.compile(
    r"RequestHeader\(apiKey=(\w{1,60}), apiVersion=(\d{1,5}), clientId=(.{0,400}?), correlationId=(-?\d{1,10})"
    r"(?:, \w{1,30}=\d{1,5})?\)",
    re.DOTALL,
)
_JAVA_BROKER: Final = re.compile(r"\(id: ([+-]?\d{1,10}) .{0,100}\) using address [^/\s]{0,255}/(\S{1,60})", re.DOTALL)
_TRANSACTIONAL: Final = re.compile(r"transactionalId=(.{1,400})$", re.DOTALL)
_PARTITION: Final = re.compile(
    r"(?:(?P<id>[\w-]{22}):)?(?P<topic>[\w.-]{0,249})-(?P<partition>\d{1,9})=(?P<size>\d{1,9})", re.ASCII
)
_CLIENTS: Final = bytes((192, 0, 2, 1))
_BROKERS: Final = bytes((198, 51, 100))
_PORTS: Final = range(10_000, 60_000)
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


def log_of(head: bytes, name: str = "") -> LogLines | None:
    """The converter for a file that begins with these bytes (LOG_HEAD of them, or all); None if it is not a log."""
    if not is_text(head):
        return None
    if _MARK in head:
        return LogPackets()
    return ClientLogPackets(name) if _CLIENT_LINE.search(head) else None


class LogLines(Converter):
    """Turns the lines of a log into the bytes of a pcap file. It is never cut: a log ends anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._searched = 0
        """Bytes of the input without an end of line."""
        self._skipping = False
        self._line = self._time_ns = 0
        self._first_bad = ""
        """The first line that cannot be read, with the reason."""
        self._bad_lines = self._untimed = 0
        self._records = self._record_bytes = 0
        """Exchanges with records, and bytes of these."""

    @abstractmethod
    def _exchange(self, line: bytes) -> bytes:
        """The packets of what a line describes; none: it is a line of another logger, or unreadable."""

    @abstractmethod
    def _lacks(self, records: str) -> str:
        """What such a log does not have, beside `records`."""

    def _packets(self) -> bytes:
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
        self.omitted = self._lacks(records)
        if self._untimed:
            self.omitted += f"; {self._untimed} of its lines have no time, and got that of the line before"

    def _time(self, prefix: bytes) -> int:
        """When a line was written, in nanoseconds; without a zone, it is UTC."""
        match = _TIME.search(prefix)
        try:
            if match is None:
                raise ValueError
            *parts, fraction, zone = (group.decode() if group else "" for group in match.groups())
            year, month, day, hour, minute, second = map(int, parts)
            written = datetime.datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone))
        except ValueError:
            self._untimed += 1
            return self._time_ns
        seconds = (written - _EPOCH) // datetime.timedelta(seconds=1)
        self._time_ns = min(max(seconds * 10**9 + int(f"{fraction:0<9}"), 0), LATEST_NS)
        return self._time_ns


class LogPackets(LogLines):
    """A request log of a broker."""

    def __init__(self) -> None:
        super().__init__()
        self._times: dict[str, list[int]] = {}
        """Number of exchanges and sums of times by API."""
        self._conversations: OrderedDict[tuple[str, ...], Conversation] = OrderedDict()

    def _lacks(self, records: str) -> str:
        self.times = BrokerTimes({name: tuple(sums) for name, sums in self._times.items()})
        return f"a request log has no {records}, log-ins and round trips"

    def _exchange(self, line: bytes) -> bytes:
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

    def _conversation(self, text: str) -> tuple[Conversation, bool]:
        """The connection that a line names, and whether it is new. Raises ValueError."""
        match = _CONNECTION.fullmatch(text)
        if match is None:
            raise ValueError(f"connection {text!r:.80} is not two addresses and a number")
        name = match.groups()
        conversation = self._conversations.pop(name, None)
        is_new = conversation is None
        if conversation is None:
            broker, client = (_address(*name[at : at + 2]) for at in (0, 2))
            conversation = Conversation(client, broker)
        self._conversations[name] = conversation
        if len(self._conversations) > MAX_CONNECTIONS:
            self._conversations.popitem(last=False)
        return conversation, is_new


class ClientLogPackets(LogLines):
    """The log of Java clients or of librdkafka."""

    def __init__(self, name: str = "") -> None:
        """`name`: of the file. Connections of different files have different ports."""
        super().__init__()
        self._first_port = zlib.crc32(name.encode("utf-8", "surrogateescape"))
        self._conversations: OrderedDict[tuple[str, str], Conversation] = OrderedDict()
        """By client and broker, both as named in the log."""
        self._hosts: dict[str, bytes] = {}
        """Addresses that stand for hosts."""
        self._nodes: dict[tuple[str, str], tuple[bytes, int]] = {}
        """Addresses by client and node."""
        self._secured = False
        """A broker has TLS: clients may have certificates, which are not logged."""
        self._opened = self._cut = 0
        """Connections, and messages of which only the size is known."""

    def _lacks(self, records: str) -> str:
        bodies = f", bodies of {self._cut} messages" if self._cut else ""
        return f"the log of a client has no {records}, log-ins, addresses of clients and round trips{bodies}"

    def _exchange(self, line: bytes) -> bytes:
        if _CLIENT_LINE.search(line) is None and b"|CONNECTED|" not in line and b" Initiating connection " not in line:
            return b""
        text = line.decode(errors="replace")
        try:
            if match := _RDKAFKA.search(text):
                return self._rdkafka(*match.groups())
            match = _JAVA.search(text)
            if match is None:
                raise ValueError("it is cut")
            return self._java(match, self._time(line[: match.start()]))
        except (ValueError, TypeError, OverflowError, RecursionError, struct.error) as error:
            self._report(str(error) or type(error).__name__)
            return b""

    def _rdkafka(  # noqa: PLR0917 - the groups of its pattern
        self,
        seconds: str,
        milliseconds: str,
        event: str,
        client: str,
        broker: str,
        name: str | None,
        version: str | None,
        size: str | None,
        number: str | None,
    ) -> bytes:
        from kafkasniff.kafka.apis.dissectors import api_by_name
        from kafkasniff.kafka.apis.kafka_json import header_of

        time_ns = min(int(seconds + milliseconds) * 1_000_000, LATEST_NS)
        self._secured |= broker.startswith("ssl://")
        place, _, node = broker.rpartition("/")
        *host, port = place.rpartition("/")[2].rsplit(":", 1) if ":" in place else (place, "")
        address = self._address(client, node, "".join(host), port)
        if event == "CONNECTED":
            return self._open(client, broker, address, time_ns, is_java=False)
        if name is None or version is None or size is None or number is None:
            raise ValueError("it is cut")
        # It names some APIs without their last letter.
        known = api_by_name(name) or api_by_name(f"{name}s")
        if known is None:
            raise ValueError(f"API {name} is unknown")
        self._cut += 1
        conversation, packets = self._conversation(client, broker, address, time_ns, is_java=False)
        header = _header(known.key, version, number, client)
        # What it counts: the whole request with its length, and of a response what follows the correlation id.
        if event == "SEND":
            head = header_of("request", header)
            return packets + conversation.cut("request", head, max(int(size) - 4, len(head)), time_ns)
        head = struct.pack(">i", int(number))
        return packets + conversation.cut("response", head, int(size) + 4, time_ns)

    def _java(self, match: re.Match[str], time_ns: int) -> bytes:
        from kafkasniff.kafka.apis.dissectors import api_by_name
        from kafkasniff.kafka.apis.kafka_json import message_of, parse_text, values_of_text

        client, body = match["client"], match["body"]
        if match["verb"] == "Initiating":
            broker = _JAVA_BROKER.search(body)
            if broker is None:
                raise ValueError("the connection has no address")
            address = self._address(client, broker[1], broker[2], match["node"].rpartition(":")[2])
            return self._open(client, broker[1], address, time_ns, is_java=True)
        head = _JAVA_HEADER.fullmatch(match["header"] or match["answered"] or "")
        known = None if head is None else api_by_name(head[1])
        if head is None or known is None or int(head[2]) not in known.versions:
            raise ValueError("its header is cut, or its version unknown")
        header = _header(known.key, head[2], head[4], head[3])
        sizes: list[int] = []
        if match["verb"] == "Received":
            root = known.response(int(head[2])).root
            message = message_of("response", header, values_of_text(root, parse_text(body), sizes))
        elif body.startswith("{"):
            message = message_of("request", header, _produced(body, client, sizes))
        else:
            root = known.request(int(head[2])).root
            message = message_of("request", header, values_of_text(root, parse_text(body), sizes))
        self._records += 1 if sizes else 0
        self._record_bytes += sum(sizes)
        conversation, packets = self._conversation(
            client, match["node"], (_BROKERS + b"\1", 9092), time_ns, is_java=True
        )
        return packets + conversation.message("request" if match["header"] else "response", message, time_ns)

    def _address(self, client: str, node: str, host: str, port: str) -> tuple[bytes, int]:
        """The address of a node, which coordinators have without naming it, or one that stands for its host."""
        try:
            found = _address(host, port)
        except ValueError:
            if not port and (client, node) in self._nodes:
                return self._nodes[client, node]
            known = self._hosts.setdefault(host[:255], _BROKERS + bytes((1 + len(self._hosts) % 254,)))
            found = known, int(port) & 0xFFFF if port.isdecimal() else 9092
        self._nodes[client, node] = found
        for names in (self._nodes, self._hosts):
            if len(names) > MAX_CONNECTIONS:
                names.clear()
        return found

    def _conversation(
        self, client: str, broker: str, address: tuple[bytes, int], time_ns: int, *, is_java: bool
    ) -> tuple[Conversation, bytes]:
        """The connection of a message, and the packets that begin it if it is new."""
        packets = b""
        if (client, broker) not in self._conversations:
            packets = self._open(client, broker, address, time_ns, is_java=is_java)
        self._conversations.move_to_end((client, broker))
        return self._conversations[client, broker], packets

    def _open(self, client: str, broker: str, address: tuple[bytes, int], time_ns: int, *, is_java: bool) -> bytes:
        self._opened += 1
        made = Conversation((_CLIENTS, _PORTS[(self._first_port + self._opened) % len(_PORTS)]), address)
        self._conversations[client, broker] = made
        if len(self._conversations) > MAX_CONNECTIONS:
            self._conversations.popitem(last=False)
        # Java clients log no log-ins, and certificates of clients are not logged: there may have been any.
        return made.begin(time_ns, midway=is_java or self._secured)


def _header(key: int, version: str, number: str, client: str) -> dict[str, Any]:
    """The fields of both headers, by their texts."""
    names = {"request_api_key": key, "request_api_version": int(version), "correlation_id": int(number)}
    return {**names, "client_id": client}


def _produced(text: str, client: str, sizes: list[int]) -> dict[str, Any]:
    """The values of a Produce request, of which a Java client logs the sizes of records. Raises ValueError."""
    from kafkasniff.kafka.schema.codes import uuid_bytes

    match = re.match(r"\{acks=(-?\d{1,5}),timeout=(\d{1,10}),partitionSizes=\[(.*)\]\}", text, re.DOTALL)
    if match is None:
        raise ValueError("it is cut")
    named = _TRANSACTIONAL.search(client)
    topics: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for one in match[3].split(", ") if match[3] else ():
        part = _PARTITION.fullmatch(one)
        if part is None:
            raise ValueError(f"{one!r:.80} is not a partition and a size")
        sizes.append(int(part["size"]))
        parts = topics.setdefault((part["topic"], part["id"]), [])
        parts.append({"index": int(part["partition"]), "records": None})
    return {
        "transactional_id": None if named is None else named[1],
        "acks": int(match[1]),
        "timeout_ms": int(match[2]),
        "topic_data": [
            {"name": name, "topic_id": uuid_bytes(number) if number else None, "partition_data": parts}
            for (name, number), parts in topics.items()
        ],
    }


def _messages(said: _Line, sizes: list[int]) -> tuple[str, bytes, bytes]:
    """The API, the request, and the response, which is empty if there is none. Raises ValueError and others."""
    from kafkasniff.kafka.apis.dissectors import api
    from kafkasniff.kafka.apis.kafka_json import message_of, values_of

    header = msgspec.structs.asdict(said.request_header)
    known, version = api(header["request_api_key"]), header["request_api_version"]
    if known is None or version not in known.versions:
        raise ValueError(f"version {version} of API {header['request_api_key']} is unknown")
    body = known.request(version).root
    # Brokers do not read ApiVersions of a version that they do not know, and respond in version 0.
    unread = not said.request and bool(body.fields)
    defaults = {
        field.name: int(field.default, 0) for field in body.fields if field.default and field.type.startswith("int")
    }
    request = message_of("request", header, defaults if unread else values_of(body, said.request, sizes))
    if not isinstance(said.response, dict):
        return known.name, request, b""
    if unread:
        header["request_api_version"] = version = known.min_version
    return (
        known.name,
        request,
        message_of("response", header, values_of(known.response(version).root, said.response, sizes)),
    )


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
