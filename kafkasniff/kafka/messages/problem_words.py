"""How problems of bodies are worded where the kernel reports them: in lines and in columns."""

from __future__ import annotations

from kafkasniff.kafka.messages.message_plan import MessagePlan
from kafkasniff.kafka.schema.body_problems import NUMBERED, TRAILING
from kafkasniff.kafka.schema.secrets import may_be_misread
from kafkasniff.native.line_problems import Careful, LineWordings, Wording

__all__ = ["careful", "wordings"]


def wordings() -> LineWordings:
    """The words of all problems that the kernel notes."""
    return LineWordings.of(
        Wording(one.kind.encode(), one.words.encode(), may_be_misread((one.kind,), cut=False)) for one in NUMBERED
    )


def careful(plan: MessagePlan, *, show_secrets: bool) -> Careful:
    """What the problems of a plan's bodies need besides."""
    marks = () if show_secrets else (b"",) if plan.has_secrets else tuple(plan.secret_marks)
    return Careful(TRAILING.words.format("{}", plan.api, plan.version).encode(), marks)
