"""Whole messages: header and body of one request or one response, whatever the bytes hold.

A message is `data[start:end]`, without its length prefix; `data` may hold more. Nothing here raises on bad bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from struct import Struct
from typing import Final

import msgspec

from kafkasniff.kafka.apis.dissectors import API_VERSIONS
from kafkasniff.kafka.apis.entities import each_whole
from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.kafka.schema.context import (
    LARGE_BODY,
    UNMARKED,
    ConnectionMemory,
    DecodeContext,
    DecodeOptions,
    Ended,
    LargeBody,
    Odd,
    RenderedRecords,
    RenderingOptions,
    varint_rest,
)
from kafkasniff.kafka.schema.secrets import may_be_misread
from kafkasniff.kafka.schema.walker import TRAILING
from kafkasniff.model import Body, ErrorCode, Problem

MAX_HEADER_TAGS: Final = 1000
"""Tagged fields of a header; none is defined to this day (KIP-482)."""

_head = Struct(">hhi").unpack_from
_int16 = Struct(">h").unpack_from


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The fields before a request's body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | bytes | None
    """bytes if it is not UTF-8."""
    length: int
    """Size of the header in bytes: the body starts there."""


def _text(raw: bytes) -> str | bytes:
    """A string of the wire; bytes if it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int] | None:
    """An unsigned varint and the position after it; None if it does not end before `end` or within 5 bytes."""
    if position >= end:
        return None
    value = data[position]
    position += 1
    if value > 0x7F:
        try:
            value, position = varint_rest(data, position, value)
        except (Odd, IndexError):
            return None
    return None if position > end else (value, position)


def read_tags(data: bytes, position: int, end: int) -> tuple[tuple[tuple[int, bytes], ...], int] | None:
    """The tag section of a header and the position after it; None if it does not fit."""
    if position < end and data[position] == 0:
        return (), position + 1
    read = read_varint(data, position, end)
    if read is None or read[0] > MAX_HEADER_TAGS:
        return None
    count, position = read
    tags: list[tuple[int, bytes]] = []
    for _ in range(count):
        tag = read_varint(data, position, end)
        size = None if tag is None else read_varint(data, tag[1], end)
        if tag is None or size is None or size[0] > end - size[1]:
            return None
        position = size[1] + size[0]
        tags.append((tag[0], data[size[1] : position]))
    return tuple(tags), position


def request_header(data: bytes, start: int, end: int, *, strict: bool = False) -> RequestHeader | None:
    """The header of a request, or None if the bytes cannot be one.

    Negative keys and versions, versions far above the known ones, and client ids or tags that do not fit are refused.
    `strict`, for judging bytes of unknown kind, also refuses unknown keys and versions, and client ids that are not
    printable text.
    """
    if end - start < 8:
        return None
    key, version, correlation_id = _head(data, start)
    if key < 0 or version < 0:
        return None
    plan = request_plan(key, version)
    if not plan.plausible_version or (strict and not plan.known_version):
        return None
    position = start + 8
    client_id: str | bytes | None = None
    if plan.header > 0:
        if end - position < 2:
            return None
        (length,) = _int16(data, position)
        position += 2
        if length >= 0:
            if length > end - position:
                return None
            client_id = _text(data[position : position + length])
            position += length
            if strict and not (isinstance(client_id, str) and client_id.isprintable()):
                return None
        elif length != -1:
            return None
        if plan.header > 1:
            tags = read_tags(data, position, end)
            if tags is None:
                return None
            position = tags[1]
    return RequestHeader(key, version, correlation_id, client_id, position - start)


def judge_tags(tags: tuple[tuple[int, bytes], ...], context: DecodeContext, position: int) -> None:
    """Report tags of a header that do not ascend; `position` is the end of the section."""
    for (one, _), (other, _) in pairwise(tags):
        if other <= one:
            context.problem("tags-not-ascending", f"header: tag {other} comes after tag {one}", position)
            return


def settled(plan: MessagePlan, body: Body, size: int, context: DecodeContext) -> Body | None:
    """The interpreted body of `size` bytes if there is nothing else to report; else None. Hot.

    Afterwards the context is empty.
    """
    is_metadata = plan.holds_metadata is not None and plan.holds_metadata(body)
    if (context.truncated and plan.whole_records) or (is_metadata and _rereads(context)):
        context.clear()
        return None
    if (
        plan.interpret is not None
        and (context.interpretable or is_metadata or not plan.reads_records)
        and context.options.inside
    ):
        plan.interpret(body, plan.version, context)
    if context.errors or context.problems:
        context.clear()
        return None
    if context.decompressed + size > LARGE_BODY:
        body = LargeBody(body)
    context.truncated = context.interpretable = False
    context.decompressed = context.unknown_tags = context.records = 0
    return body


def read_body(  # noqa: PLR0917 - where the body is, and what is known of it
    plan: MessagePlan, data: bytes, position: int, end: int, context: DecodeContext, cut: bool
) -> tuple[Body | None, bool]:
    """The body, and whether it was decoded to its end; `cut`: bytes are known to be missing at its end."""
    schema = plan.schema
    if schema is None:
        context.problem(*unknown_version(plan))
        return None, False
    mark = context.mark() if context.problems else UNMARKED
    if plan.has_secrets and plan.interpret is not None and context.options.inside:
        context.withheld = []
    complete = True
    try:
        # The same as `schema.read`, without its result's tuples: most messages pass here.
        body, after = schema.decode(data, position, end, context)
    except Ended as ended:
        body, after, complete = ended.body, ended.position, False
    except Odd:
        context.rewind(mark)
        body, after, complete = schema.walk(data, position, end, context)
    is_metadata = plan.holds_metadata is not None and plan.holds_metadata(body)
    if is_metadata and _rereads(context):
        context.rewind(mark)
        options = msgspec.structs.replace(context.options, records="full")
        context.options = options.decoding() if isinstance(options, RenderingOptions) else options
        return read_body(plan, data, position, end, context, cut)
    if complete and after != end:
        _report_trailing(plan, after, end, context)
    withheld = False
    if len(context.problems) > mark[0] and not context.options.show_secrets:
        # Checked now: interpreters have problems of their own.
        withheld = _may_show_secrets(plan, data[position:end], context.problems[mark[0] :], cut)
    if (
        plan.interpret is not None
        and (context.interpretable or is_metadata or not plan.reads_records)
        and context.options.inside
    ):
        plan.interpret(body, plan.version, context)
    if withheld:
        # Numbers are kept: pairing needs some.
        body = {name: value for name, value in body.items() if isinstance(value, int)}
        detail = "it is malformed, and may show a secret in the wrong place (--show-secrets shows it)"
        context.problem("body-withheld", detail, position, always=True)
    if context.decompressed + end - position > LARGE_BODY:
        body = LargeBody(body)
    return body, complete


def unknown_version(plan: MessagePlan) -> tuple[str, str]:
    """Kind and detail of the problem of a body that has no layout."""
    if plan.api is None:
        return "api-unknown", "the API key is not known"
    return "version-unknown", f"{plan.api} version {plan.version} is not known"


def _report_trailing(plan: MessagePlan, after: int, end: int, context: DecodeContext) -> None:
    detail = TRAILING.words.format(end - after, plan.api, plan.version)
    context.problem(TRAILING.kind, detail, after, size=end - after, always=True)


def _may_show_secrets(plan: MessagePlan, data: bytes, problems: Iterable[Problem], cut: bool) -> bool:
    """Whether a body with these problems may have its secrets in other fields."""
    return may_be_misread((problem.kind for problem in problems), cut=cut) and (
        plan.has_secrets or any(mark in data for mark in plan.secret_marks)
    )


def _rereads(context: DecodeContext) -> bool:
    """Whether a body with records of the metadata log has to be decoded again, since they were skipped or rendered."""
    options = context.options
    if options.records in {"metadata", "columns"}:
        return True
    return isinstance(options, RenderingOptions) and options.records == "full" and options.renderer is not None


def unread(plan: MessagePlan, raw: bytes, context: DecodeContext) -> tuple[bytes | None, int | None]:
    """The replacement for a body that was not decoded to its end: its bytes, or their number if they may be secret."""
    if not context.options.show_secrets and (plan.has_secrets or any(mark in raw for mark in plan.secret_marks)):
        return None, len(raw)
    return raw, None


UNSUPPORTED_VERSION: Final = 35

_DEFAULT: Final = DecodeOptions()
_int32 = Struct(">i").unpack_from


class Rest(msgspec.Struct, frozen=True):
    """An undecoded body of a message: `data[position:end]`. Decoding it needs no other message."""

    plan: MessagePlan
    data: bytes
    position: int
    end: int
    base: int
    """Where the message starts."""
    options: DecodeOptions
    cut: bool
    problems: tuple[Problem, ...]
    """Those of the header."""


class Decoded(msgspec.Struct, frozen=True):
    """A decoded message, before its place on the wire is known; fields as in `kafkasniff.model.Message`."""

    api_key: int | None = None
    api: str | None = None
    api_version: int | None = None
    correlation_id: int | None = None
    client_id: str | bytes | None = None
    header: Body | None = None
    header_tags: tuple[tuple[int, bytes], ...] = ()
    body: Body | None = None
    body_version: int | None = None
    raw: bytes | None = None
    raw_redacted: int | None = None
    errors: tuple[ErrorCode, ...] = ()
    problems: tuple[Problem, ...] = ()
    carry: object = None
    """For a request: data needed to decode its response."""
    rest: Rest | None = None
    """The body, if only the header was decoded (`read_rest`)."""


def decode_request(
    data: bytes,
    start: int,
    end: int,
    options: DecodeOptions = _DEFAULT,
    *,
    memory: ConnectionMemory | None = None,
    depth: int = 0,
    cut: bool = False,
    later: bool = False,
) -> Decoded:
    """Decode the request `data[start:end]`.

    `memory` is that of its connection, `depth` its nesting level (Envelope); `cut`: bytes are known to be missing at
    its end. `later`: leave a body undecoded that can be decoded at any time (`read_rest`).
    """
    if end - start < 8:
        return _without_header("a request has at least 8 bytes", end - start)
    key, version, correlation_id = _head(data, start)
    plan = request_plan(key, version)
    context = DecodeContext(options, start, memory, None, depth)
    position = start + 8
    client_id: str | bytes | None = None
    tags: tuple[tuple[int, bytes], ...] = ()
    header: Body
    if plan.header > 0:
        known = key, plan.api, version, correlation_id
        if end - position < 2:
            return _without_header("it ends within the client id", end - start, *known)
        (length,) = _int16(data, position)
        position += 2
        if length < -1 or length > end - position:
            detail = f"a client id of {length} bytes, {end - position} left"
            return _without_header(detail, position - 2 - start, *known)
        if length >= 0:
            try:
                client_id = data[position : position + length].decode()
            except UnicodeDecodeError:
                client_id = data[position : position + length]
                context.problem("string-not-utf8", f"client_id: {length} bytes that are not UTF-8", position)
            position += length
        header = {
            "request_api_key": key,
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": client_id,
        }
        if plan.header > 1:
            read = read_tags(data, position, end)
            if read is None:
                return _without_header("its tagged fields do not fit", position - start, *known)
            tags, position = read
            judge_tags(tags, context, position)
    else:
        header = {"request_api_key": key, "request_api_version": version, "correlation_id": correlation_id}
    raw: bytes | None = None
    raw_redacted: int | None = None
    body: Body | None = None
    rest: Rest | None = None
    if later and options.bodies and plan.alone and not plan.needed:
        rest = Rest(plan, data, position, end, start, options, cut, tuple(context.problems))
    elif options.bodies or plan.needed:
        body, raw, raw_redacted = _read(plan, data, position, end, context, cut)
    return Decoded(
        key,
        plan.api,
        version,
        correlation_id,
        client_id,
        header,
        tags,
        body,
        None,
        raw,
        raw_redacted,
        tuple(context.errors) if context.errors else (),
        _problems(context) if context.problems else (),
        context.carry,
        rest,
    )


def read_rest(decoded: Decoded) -> Decoded:
    """The message with its body, where only its header was read; it stays as it is, so that it can be read again."""
    rest = decoded.rest
    if rest is None:
        return decoded
    context = DecodeContext(rest.options, rest.base)
    if rest.problems:
        context.problems = list(rest.problems)
    body, raw, raw_redacted = _read(rest.plan, rest.data, rest.position, rest.end, context, rest.cut)
    return msgspec.structs.replace(
        decoded,
        body=body,
        raw=raw,
        raw_redacted=raw_redacted,
        errors=tuple(context.errors),
        problems=_problems(context),
        rest=None,
    )


def decode_response(  # noqa: PLR0917 - the message's place and what its request was, in the order of decode_request
    data: bytes,
    start: int,
    end: int,
    api_key: int,
    api_version: int,
    options: DecodeOptions = _DEFAULT,
    *,
    memory: ConnectionMemory | None = None,
    request: object = None,
    depth: int = 0,
    cut: bool = False,
    later: bool = False,
) -> Decoded:
    """Decode the response `data[start:end]` to a request of that API key and version.

    `memory` is that of its connection, `request` the request's `Decoded.carry`, `depth` its nesting level (Envelope);
    `cut`: bytes are known to be missing at its end; `later` as in `decode_request`.
    """
    plan = response_plan(api_key, api_version)
    if end - start < 4:
        return _without_header("a response has at least 4 bytes", end - start, api_key, plan.api, api_version)
    (correlation_id,) = _int32(data, start)
    context = DecodeContext(options, start, memory, request, depth)
    position = start + 4
    tags: tuple[tuple[int, bytes], ...] = ()
    if plan.header > 0:
        read = read_tags(data, position, end)
        if read is None:
            detail = "its tagged fields do not fit"
            return _without_header(detail, position - start, api_key, plan.api, api_version, correlation_id)
        tags, position = read
        judge_tags(tags, context, position)
    body_version: int | None = None
    if api_key == API_VERSIONS and end - position >= 2 and _int16(data, position)[0] == UNSUPPORTED_VERSION:
        body_version = _version_of_refusal(plan, data, position, end, options)
        if body_version == api_version:
            body_version = None
        else:
            plan = response_plan(api_key, body_version)
    raw: bytes | None = None
    raw_redacted: int | None = None
    body: Body | None = None
    rest: Rest | None = None
    if later and options.bodies and plan.alone and not plan.needed:
        rest = Rest(plan, data, position, end, start, options, cut, tuple(context.problems))
    elif options.bodies or plan.needed:
        body, raw, raw_redacted = _read(plan, data, position, end, context, cut)
    return Decoded(
        api_key,
        plan.api,
        api_version,
        correlation_id,
        None,
        {"correlation_id": correlation_id},
        tags,
        body,
        body_version,
        raw,
        raw_redacted,
        tuple(context.errors) if context.errors else (),
        _problems(context) if context.problems else (),
        rest=rest,
    )


def _read(  # noqa: PLR0917 - as `read_body`
    plan: MessagePlan,
    data: bytes,
    position: int,
    end: int,
    context: DecodeContext,
    cut: bool,
) -> tuple[Body | None, bytes | None, int | None]:
    """A body, and what stands for it where it was not read to its end."""
    body, complete = read_body(plan, data, position, end, context, cut)
    if not complete:
        return body, *unread(plan, data[position:end], context)
    if context.truncated and plan.whole_records and body is not None:
        _judge_whole(body, plan, context)
    return body, None, None


def _judge_whole(body: Body, plan: MessagePlan, context: DecodeContext) -> None:
    """Report truncated batches: a Fetch response may end within one, a Produce request may not."""
    assert plan.schema is not None  # it was decoded
    for records, name, partition in each_whole(plan.schema.root, body):
        count = records.truncated if isinstance(records, RenderedRecords) else records["truncated_bytes"]
        if count:
            place = f"of {name}" if partition is None else f"for partition {partition}"
            context.problem("records-truncated", f"{count} bytes after the last whole batch {place}", size=count)


def _version_of_refusal(plan: MessagePlan, data: bytes, position: int, end: int, options: DecodeOptions) -> int:
    """The version of the body of an ApiVersions response with error 35.

    A broker that does not know the requested version answers in version 0 (KIP-511). If that does not consume the body
    exactly and the requested version does, it is the latter; in doubt it is 0.
    """
    for schema in (response_plan(API_VERSIONS, 0).schema, plan.schema):
        if schema is not None:
            walk = schema.read(data, position, end, DecodeContext(options, position))
            if walk.complete and walk.position == end:
                return schema.version
    return 0


def _problems(context: DecodeContext) -> tuple[Problem, ...]:
    if context.problems_dropped:
        context.problem("more-problems", f"{context.problems_dropped} more problems in this message", always=True)
    return tuple(context.problems)


def _without_header(  # noqa: PLR0917 - as `Decoded`
    detail: str,
    offset: int,
    api_key: int | None = None,
    api: str | None = None,
    api_version: int | None = None,
    correlation_id: int | None = None,
) -> Decoded:
    """A message whose header cannot be read."""
    problem = Problem("header-truncated", f"not a header: {detail}", offset)
    return Decoded(api_key, api, api_version, correlation_id, problems=(problem,))
