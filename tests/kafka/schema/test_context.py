"""What decoders report besides the body: problems within a bound, withheld secrets, and undoing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.schema.context import (
    MAX_PROBLEMS,
    DecodeContext,
    DecodeOptions,
)
from kafkasniff.model import ErrorCode

actions = st.lists(st.sampled_from(["problem", "error", "records", "decompressed", "tags"]), max_size=6)


def act(context: DecodeContext, done: list[str]) -> None:
    for index, action in enumerate(done):
        if action == "problem":
            context.problem("some-kind", f"number {index}", index)
        elif action == "error":
            context.errors.append(ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "error_code"))
        elif action == "records":
            context.records += 2
        elif action == "decompressed":
            context.decompressed += 100
        else:
            context.unknown_tags += 1


def state(context: DecodeContext) -> tuple[object, ...]:
    return [*context.problems], [*context.errors], context.mark()


@given(actions, actions, actions)
def test_rewind_undoes_everything_since_the_mark(before: list[str], tried: list[str], after: list[str]) -> None:
    """As if the decoder that gave up had never run."""
    context, other = DecodeContext(DecodeOptions()), DecodeContext(DecodeOptions())
    act(context, before)
    mark = context.mark()
    act(context, tried)
    context.rewind(mark)
    act(context, after)
    act(other, [*before])
    act(other, [*after])
    assert state(context) == state(other)


def test_problems_are_bounded_and_the_last_one_is_kept() -> None:
    context = DecodeContext(DecodeOptions())
    for index in range(MAX_PROBLEMS + 7):
        context.problem("some-kind", str(index), index)
    assert len(context.problems) == MAX_PROBLEMS
    assert context.problems_dropped == 7
    context.problem("the-end", "of it", always=True)
    assert context.problems[-1].kind == "the-end"
    # It survives a rewind to the state before it.
    mark = context.mark()
    context.problem("some-kind", "one more")
    context.rewind(mark)
    assert (len(context.problems), context.problems_dropped) == (MAX_PROBLEMS + 1, 7)


def test_positions_are_relative_to_the_message() -> None:
    context = DecodeContext(DecodeOptions(), base=100)
    context.problem("some-kind", "here", 107, size=3)
    context.problem("some-kind", "nowhere")
    assert [(one.offset, one.bytes) for one in context.problems] == [(7, 3), (None, None)]


def test_secrets_are_revealed_to_decoders_only() -> None:
    """By the identity of the replacement: equal lengths do not mean equal secrets."""
    context = DecodeContext(DecodeOptions(), withheld=[])
    first, second = context.withhold(b"abc"), context.withhold(b"xyz")
    assert first == second == {"redacted": 3}
    assert (context.revealed(first), context.revealed(second)) == (b"abc", b"xyz")
    assert context.revealed({"redacted": 3}) is None
    assert context.revealed(b"shown") == b"shown"
    assert context.revealed(None) is None
    # They are kept only if something decodes them.
    other = DecodeContext(DecodeOptions())
    assert other.revealed(other.withhold(b"abc")) is None
    assert other.withheld is None
