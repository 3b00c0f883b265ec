"""Bodies of messages, whatever the bytes hold: by the native kernel, or by the walker if they are not clean."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kafkasniff.kafka.messages.message_plan import MessagePlan
from kafkasniff.kafka.schema.body_forms import LARGE_BODY, LargeBody
from kafkasniff.kafka.schema.body_problems import TRAILING
from kafkasniff.kafka.schema.context import UNMARKED, DecodeContext, RenderingOptions
from kafkasniff.kafka.schema.secrets import may_be_misread
from kafkasniff.kafka.schema.wire import Ended, Odd
from kafkasniff.model import Body, Problem

__all__ = ["read_body", "settled", "unknown_version", "unread"]


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
