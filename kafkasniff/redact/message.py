"""A message with its secrets blanked, and optionally its payload: same length, and as readable as possible.

Bytes are kept if the decoders show them. So an undecoded body is blank after the header, and so is one that may have
been misread, since it may contain a secret or payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafkasniff.kafka.embedded.internal_topics import interpret_topic
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.data_schemas import data_schema
from kafkasniff.kafka.schema.secrets import may_be_misread
from kafkasniff.kafka.schema.spans import UNKNOWN_TAG, Span, value_at
from kafkasniff.model import Message, Problem
from kafkasniff.redact.copied import Copied, Visible
from kafkasniff.redact.records import keep_records

__all__ = ["Blanker"]

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
