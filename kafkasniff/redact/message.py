"""A message with its secrets blanked, and optionally its payload: same length, and as readable as possible.

Bytes are kept if the decoders show them. So an undecoded body is blank after the header, and so is one that may have
been misread, since it may contain a secret or payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from isal import isal_zlib

from kafkasniff.kafka.embedded.internal_topics import interpret_topic
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.kafka.records.batches import HEADER_SIZE, Batch, crc32c
from kafkasniff.kafka.records.record_list import MalformedError, read_varint
from kafkasniff.kafka.records.record_sets import find_batches
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.schema import data_schema
from kafkasniff.kafka.schema.secrets import may_be_misread
from kafkasniff.kafka.schema.walker import UNKNOWN_TAG, Span, value_at
from kafkasniff.model import Message, Problem

BLANK: Final = 0xFF
"""The byte used for blanks. It is invalid as a length, and is not mistaken for a real value: a stream that was out of
step stays so, whereas zeros would be records of Kafka's own topics, ids of schemas, nulls.
"""


class Copied:
    """Blank bytes, as many as `data[start:end]`; positions are those in `data`."""

    __slots__ = ("bytes", "data", "start")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.data = data
        self.start = start
        self.bytes = bytearray([BLANK]) * (end - start)

    def keep(self, first: int, last: int) -> None:
        """Show `data[first:last]`."""
        self.bytes[first - self.start : last - self.start] = self.data[first:last]

    def hide(self, first: int, last: int, stand_in: int = BLANK) -> None:
        """Blank it again; `stand_in`: the byte to use."""
        self.bytes[first - self.start : last - self.start] = bytes([stand_in]) * (last - first)

    def put(self, at: int, value: bytes) -> None:
        """Replace the bytes at `at`."""
        self.bytes[at - self.start : at - self.start + len(value)] = value

    def differs(self, first: int, last: int) -> bool:
        """Whether any of `data[first:last]` was replaced by something else."""
        return self.part(first, last) != memoryview(self.data)[first:last]

    def part(self, first: int, last: int) -> memoryview:
        """The replacement of `data[first:last]`. Released before the copy changes its length, which it never does."""
        return memoryview(self.bytes)[first - self.start : last - self.start]


class Visible(Copied):
    """Which bytes may be shown: 1 for each that was kept, 0 for blanks and for anything that was put in their place."""

    __slots__ = ()

    def __init__(self, data: bytes, start: int, end: int) -> None:
        super().__init__(data, start, end)
        self.bytes = bytearray(end - start)

    def keep(self, first: int, last: int) -> None:
        """Show `data[first:last]`."""
        self.bytes[first - self.start : last - self.start] = b"\1" * (last - first)

    def hide(self, first: int, last: int, stand_in: int = BLANK) -> None:
        """Blank it again."""
        self.bytes[first - self.start : last - self.start] = bytes(last - first)

    def put(self, at: int, value: bytes) -> None:
        """Hide the bytes at `at`, which `value` replaces elsewhere."""
        self.hide(at, at + len(value))

    def differs(self, first: int, last: int) -> bool:
        """Whether any of these bytes is hidden."""
        return self.bytes.find(0, first - self.start, last - self.start) >= 0


_ENTRY: Final = 12
"""Bytes before those that a batch's length counts: offset and length."""
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_COMMON_SIZE: Final = 17
"""Up to the magic all formats are alike."""
_CRC_AT: Final = 17
_CRC_START: Final = 21
_ATTRIBUTES_AT: Final = 21
_OLD_CRC_AT: Final = 12
_OLD_CRC_START: Final = 16
_OLD_HEADS: Final = (18, 26)
"""Bytes of a message in front of its key, by magic."""
_CODEC: Final = 7


class _Hidden(NamedTuple):
    """The parts of a record that may not be shown."""

    key: bool
    value: bool
    headers: bool

    @property
    def any(self) -> bool:
        return self.key or self.value or self.headers


def keep_records(copied: Copied, start: int, end: int, field: dict[str, Any], *, payload: bool, sure: bool) -> None:
    """Keep the visible parts of the `records` field `copied.data[start:end]`.

    `field` is the decoded field with its records; `payload`: that may be shown. `sure`: Kafka's own records were
    interpreted to the last byte; otherwise they are ordinary payload, and compressed ones are not shown at all.
    """
    first = start + field.get("leading_bytes", 0)
    flaws = DecodeContext(DecodeOptions(records="skip"))
    places, left = find_batches(copied.data, first, end, flaws)
    batches = field["batches"]
    if len(places) != len(batches):
        return
    for (position, stop, magic), batch in zip(places, batches, strict=True):
        if magic == 2:
            _batch(copied, position, stop, batch, payload=payload, sure=sure)
        else:
            _message(copied, position, stop, batch, payload=payload, sure=sure)
    _tail(copied, end - left, end, whole=not flaws.problems)


def _tail(copied: Copied, start: int, end: int, *, whole: bool) -> None:
    """The bytes after the last whole batch; `whole`: the beginning of another one, otherwise anything."""
    size, data = end - start, copied.data
    if size < _COMMON_SIZE or not whole:
        # Enough to cause the same problem, or none, again.
        if size >= _ENTRY:
            copied.keep(start + _LENGTH_AT, start + _ENTRY)
        if size >= _COMMON_SIZE:
            copied.keep(start + _MAGIC_AT, start + _COMMON_SIZE)
        return
    magic = data[start + _MAGIC_AT]
    head = HEADER_SIZE if magic == 2 else _OLD_HEADS[magic]
    copied.keep(start, min(start + head, end))
    crc = start + (_CRC_AT if magic == 2 else _OLD_CRC_AT)
    copied.hide(min(crc, end), min(crc + 4, end), 0)


def _batch(copied: Copied, position: int, stop: int, batch: dict[str, Any], *, payload: bool, sure: bool) -> None:
    """A batch of magic 2."""
    data, start = copied.data, position + HEADER_SIZE
    copied.keep(position, start)
    records = batch.get("records") or []
    hidden = [_hidden(record, batch, payload=payload, sure=sure) for record in records]
    if data[position + _ATTRIBUTES_AT + 1] & _CODEC:
        read = isinstance(batch, Batch) and batch.uncompressed is not None and len(records) == batch["record_count"]
        if read and sure and not any(one.any for one in hidden):
            copied.keep(start, stop)
    else:
        for record, one in zip(records, hidden, strict=True):
            after = _record(copied, start, stop, record, one)
            if after is None:
                break
            start = after
    if copied.differs(position, stop):
        crc = crc32c(copied.part(position + _CRC_START, stop))
        copied.put(position + _CRC_AT, _checksum(crc, right=batch["crc_ok"]))


def _message(copied: Copied, position: int, stop: int, batch: dict[str, Any], *, payload: bool, sure: bool) -> None:
    """An outermost message of magic 0 or 1."""
    data, magic = copied.data, copied.data[position + _MAGIC_AT]
    cursor = position + _OLD_HEADS[magic]
    copied.keep(position, min(cursor, stop))
    records = batch.get("records") or []
    hidden = [_hidden(record, batch, payload=payload, sure=sure) for record in records]
    if data[position + _CRC_AT] & _CODEC:
        shown = bool(records) and batch["record_count"] is not None and not any(one.any for one in hidden)
        shows = (shown and sure,) * 2
    else:
        shows = (not hidden[0].key, not hidden[0].value) if len(hidden) == 1 else (False, False)
    for show in shows:
        if cursor + 4 > stop:
            break
        length = int.from_bytes(data[cursor : cursor + 4], "big", signed=True)
        copied.keep(cursor, cursor + 4)
        cursor += 4
        if length > stop - cursor or length < -1:
            break
        field_end = cursor + max(length, 0)
        if show:
            copied.keep(cursor, field_end)
        cursor = field_end
    if copied.differs(position, stop):
        crc = isal_zlib.crc32(copied.part(position + _OLD_CRC_START, stop))
        copied.put(position + _OLD_CRC_AT, _checksum(crc, right=batch["crc_ok"]))


def _checksum(crc: int, *, right: bool) -> bytes:
    """A right checksum, or a wrong one."""
    return (crc if right else int(crc == 0)).to_bytes(4, "big")


def _hidden(record: dict[str, Any], batch: dict[str, Any], *, payload: bool, sure: bool) -> _Hidden:
    """The parts of a record that may not be shown. Kafka's own records are not payload, if they could be read."""
    key, value = isinstance(record["key"], dict), isinstance(record["value"], dict)
    if not payload:
        control = record.get("_control")
        if not (batch.get("control") and control is not None and control["value"] is not None):
            key = key or not sure or "type" not in (record.get("_key") or ())
            value = value or not sure or "type" not in (record.get("_value") or ())
        return _Hidden(key, value, True)
    return _Hidden(key, value, False)


def _record(copied: Copied, start: int, end: int, record: dict[str, Any], hidden: _Hidden) -> int | None:
    """Keep the visible parts of the record at `start`; returns the position after it, None if it cannot be read."""
    try:
        stop, fields = _fields(copied.data, start)
    except (IndexError, MalformedError):
        return None
    if stop > end:
        return None
    (key, value), headers = fields[:2], fields[2:]
    withheld = len(headers) != 2 * len(record.get("headers") or ())
    copied.keep(start, stop)
    if hidden.key:
        copied.hide(*key)
    if hidden.value:
        copied.hide(*value)
    for number, place in enumerate(headers):
        if withheld or (hidden.headers and number % 2):
            copied.hide(*place)
    return stop


def _fields(data: bytes, start: int) -> tuple[int, list[tuple[int, int]]]:
    """The end of the record at `start`, and the places of its key, its value, and key and value of each header.

    Null is an empty place. Raises IndexError and MalformedError if invalid.
    """
    length, position = _number(data, start, 5)
    stop = position + length
    position += 1
    for size in (10, 5):
        _, position = _number(data, position, size)
    places: list[tuple[int, int]] = []

    def field() -> None:
        nonlocal position
        length, begin = _number(data, position, 5)
        position = begin + max(length, 0)
        if position > stop:
            raise MalformedError
        places.append((begin, position))

    field()
    field()
    count, position = _number(data, position, 5)
    for _ in _counted(count, stop - position):
        field()
        field()
    if position != stop:
        raise MalformedError
    return stop, places


def _counted(count: int, room: int) -> Iterator[int]:
    # A header takes at least two bytes.
    if not 0 <= count <= room // 2:
        raise MalformedError
    return iter(range(count))


def _number(data: bytes, position: int, size: int) -> tuple[int, int]:
    value, position = read_varint(data, position, size)
    return value >> 1 ^ -(value & 1), position


_ID_END: Final = 4
"""Bytes of a response up to the end of its correlation id, all that can be read of an orphan."""
_NAME_LENGTH_END: Final = 10
"""Bytes of a request up to the length of its client id."""
_PRINCIPAL: Final = "request_principal"


class Blanker:
    """Blanks messages: secrets unless `secrets` are shown, keys and values of records unless `payload` is.

    `topic`: returns the name of a topic by its id, if known; `most`: fields of a message that are judged one by one;
    bytes after them are blank.
    """

    def __init__(
        self,
        *,
        secrets: bool,
        payload: bool,
        topic: Callable[[object], str | None] = lambda _: None,
        most: int | None = None,
    ) -> None:
        self.secrets = secrets
        self.payload = payload
        self._topic = topic
        self._most = most
        self.options = DecodeOptions(records="full", show_secrets=secrets)
        """The decoding options that it needs."""
        self._spans = DecodeOptions(records="skip", show_secrets=secrets, inside=False)

    def message(
        self, data: bytes, start: int, end: int, decoded: Decoded | Message, *, request: bool, cut: bool
    ) -> bytearray:
        """The replacement of the message `data[start:end]`, without its length prefix.

        `decoded` is the result of decoding it with `options`; `cut`: bytes are missing at its end.
        """
        copied = Copied(data, start, end)
        self._keep(copied, start, end, decoded, request=request, cut=cut)
        return copied.bytes

    def visible(self, data: bytes, message: Message) -> tuple[bytearray | None, bool]:
        """Which bytes of a message, its `data`, may be shown: 1 or 0 for each, or None for all.

        Also returns whether that is known of its records one by one, so that decompressed ones may be shown. The
        message was decoded with `options`; it was not yet hidden from anybody.
        """
        if self.secrets and self.payload:
            return None, True
        if self.payload and self._is_shown(message, cut=len(data) != message.size):
            return None, False
        shown = Visible(data, 0, len(data))
        request = message.type == "request"
        self._keep(shown, 0, len(data), message, request=request, cut=len(data) != message.size)
        return shown.bytes, True

    @staticmethod
    def _is_shown(message: Message, *, cut: bool) -> bool:
        """Whether the decoder shows all bytes of a message that it could not read to its end, or doubts.

        It looked for what may be a secret in them.
        """
        if message.api_key is None or message.api_version is None or message.header is None:
            return False
        if message.raw is not None:
            return True
        kinds = [problem.kind for problem in message.problems]
        if message.raw_redacted is not None or message.body is None or "body-withheld" in kinds:
            return False
        version = message.api_version if message.body_version is None else message.body_version
        plan = (request_plan if message.type == "request" else response_plan)(message.api_key, version)
        return may_be_misread(kinds, cut=cut) and not plan.has_secrets

    def _keep(
        self, copied: Copied, start: int, end: int, decoded: Decoded | Message, *, request: bool, cut: bool
    ) -> None:
        key, version = decoded.api_key, decoded.api_version
        if key is None or version is None or decoded.header is None:
            copied.keep(start, min(start + (_NAME_LENGTH_END if request else _ID_END), end))
            return
        body_version = version if decoded.body_version is None else decoded.body_version
        plan = (request_plan if request else response_plan)(key, body_version)
        header = plan.header if request else response_plan(key, version).header
        root = None if plan.schema is None else plan.schema.root
        clean = not may_be_misread((problem.kind for problem in decoded.problems), cut=cut)
        doubtful = not clean and (plan.has_secrets or (root is not None and root.payload))
        position = _keep_header(copied, start, end, header, request=request, tags=not doubtful)
        if position is None:
            copied.keep(start, min(start + (_NAME_LENGTH_END if request else _ID_END), end))
            return
        if decoded.body is None or root is None or doubtful:
            return
        if (
            clean
            and decoded.raw is None
            and decoded.raw_redacted is None
            and not root.records
            and (self.payload or not root.payload)
            and (self.secrets or not root.secrets)
        ):
            copied.keep(position, end)
            return
        self._body(copied, position, end, plan, decoded)

    def _body(self, copied: Copied, position: int, end: int, plan: MessagePlan, decoded: Decoded | Message) -> None:
        """Field by field, as far as the body could be read."""
        assert plan.schema is not None
        assert decoded.body is not None
        doubted = any(problem.kind == "internal-record" for problem in decoded.problems)
        _, spans = plan.schema.spans(copied.data, position, end, DecodeContext(self._spans), most=self._most)
        for span in spans:
            begin = span.content(copied.data)
            copied.keep(span.start, begin)
            field = span.field
            if begin == span.end:
                continue
            if field is not None and field.type == "records":
                records = value_at(decoded.body, span.path)
                if records is not None:
                    sure = not doubted
                    if not self.payload:
                        sure = self._understood(value_at(decoded.body, span.path.partition(".")[0]), records) and sure
                    keep_records(copied, begin, span.end, records, payload=self.payload, sure=sure)
            elif field is not None and field.nests is not None:
                beside = f"{span.path.rpartition('.')[0]}._{field.nests}".lstrip(".")
                self._inside(copied, begin, span.end, value_at(decoded.body, beside))
            elif span.path == _PRINCIPAL and f"_{_PRINCIPAL}" in decoded.body:
                copied.keep(begin, span.end)
            elif span.type == UNKNOWN_TAG and not self.payload and plan.schema.root.payload:
                continue  # a newer release may have put payload there
            elif _is_redacted(span) or (field is not None and field.payload and not self.payload):
                if field is not None and field.type == "string":
                    copied.hide(begin, span.end, 0)
            else:
                copied.keep(begin, span.end)

    def _understood(self, topic: Any, records: dict[str, Any]) -> bool:
        """Add the meanings of records of Kafka's own topics; False if not all of them could be read."""
        name = next((topic[field] for field in ("topic", "name") if field in topic), None)
        if name is None:
            name = self._topic(topic.get("topic_id"))
        flaws: list[Problem] = []
        if isinstance(name, str):
            interpret_topic(name, records, flaws)
        return not flaws

    def _inside(self, copied: Copied, begin: int, end: int, message: dict[str, Any] | None) -> None:
        """A message in an Envelope, if it was opened."""
        if message is None or message["api_key"] is None or message["api_version"] is None:
            return
        request = "client_id" in message
        if request:
            inner = decode_request(copied.data, begin, end, self.options)
        else:
            key, version = message["api_key"], message["api_version"]
            inner = decode_response(copied.data, begin, end, key, version, self.options)
        self._keep(copied, begin, end, inner, request=request, cut=False)


def _keep_header(copied: Copied, start: int, end: int, version: int, *, request: bool, tags: bool) -> int | None:
    """Keep a header and return its end; None if invalid.

    `tags`: with the contents of its tagged fields. No release defines any, so they may be bytes of a misread body.
    """
    schema = data_schema("RequestHeader" if request else "ResponseHeader", version)
    if schema is None:
        return None
    read, spans = schema.spans(copied.data, start, end, DecodeContext(DecodeOptions()))
    if not read.complete:
        return None
    for span in spans:
        whole = tags or span.type != UNKNOWN_TAG
        copied.keep(span.start, span.end if whole else span.content(copied.data))
    return read.position


def _is_redacted(span: Span) -> bool:
    return isinstance(span.value, dict) and "redacted" in span.value
